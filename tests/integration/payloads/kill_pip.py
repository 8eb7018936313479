"""Kill the pip that installs into an environment, and its parent: kill_pip.py PIPE FOLDER

PIPE is a named pipe that replaces pip's configuration file. Each pip process blocks until this script opens the pipe,
and reads until this script closes the pipe. A pip that installs into an environment in FOLDER is killed before that.
Other pip processes continue. Runs on sandbox machines.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path


def reader(pipe: str) -> int:
    """Return another process that has the pipe open, or 0."""
    there = Path(pipe).stat()
    for entry in Path("/proc").glob("[0-9]*/fd/*"):
        try:
            if os.path.samestat(entry.stat(), there) and int(entry.parts[2]) != os.getpid():
                return int(entry.parts[2])
        except OSError:
            continue  # the process has ended
    return 0


def main(pipe: str, folder: str) -> None:
    while True:
        with Path(pipe).open("w"):
            # The reader's own open returns only when the kernel schedules it.
            while not (pid := reader(pipe)):
                time.sleep(0.05)
            command = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
            if command[0].startswith(f"{folder}/") and "install" in command:
                parent = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
                for each in (parent, pid):
                    os.kill(each, signal.SIGKILL)
                return
        while reader(pipe) == pid:
            time.sleep(0.05)


if __name__ == "__main__":
    main(*sys.argv[1:])
