"""The node's half of a change of sshd's algorithms (plugins/action/ssh_mesh_sshd.py).

Piped into the node's own Python (3.10+, standard library only), with a verb as argument and a JSON payload behind it on
standard input.

    look   the file as it is
    apply  write it, let sshd judge all of its settings, and reload sshd; on a bad judgement the file is as before
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

Json = dict[str, Any]

SSHD = "/usr/sbin/sshd"
UNIT = "ssh.service"
TIMEOUT = 30


def main(verb: str, payload: Json) -> Json:
    return {"look": look, "apply": apply}[verb](payload)


def look(request: Json) -> Json:
    return {"before": read(request["path"])}


def apply(request: Json) -> Json:
    path = request["path"]
    before = read(path)
    write(path, request["settings"])
    judged = run([SSHD, "-t"])
    if judged.returncode:
        if before is None:
            os.unlink(path)
        else:
            write(path, before)
        return {"failed": "sshd refuses its settings: " + " ".join(judged.stderr.split())}
    # Where a socket starts sshd, it may be that none runs now: the next one reads the file.
    if run(["systemctl", "--quiet", "is-active", UNIT]).returncode == 0:
        reloaded = run(["systemctl", "reload", UNIT])
        if reloaded.returncode:
            return {"failed": "sshd could not be reloaded: " + " ".join(reloaded.stderr.split())}
    return {"failed": ""}


def run(argv: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(argv, check=False, capture_output=True, text=True, timeout=TIMEOUT)


def read(path: str) -> str | None:
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            return file.read()
    except FileNotFoundError:
        return None


def write(path: str, text: str) -> None:
    """At once or not at all. The name does not end in .conf, so that sshd never reads half a file."""
    new = path + ".muster-new"
    with open(new, "w", encoding="utf-8", errors="surrogateescape") as file:
        file.write(text)
        os.fchmod(file.fileno(), 0o644)
        file.flush()
        os.fsync(file.fileno())
    os.replace(new, path)


if __name__ == "__main__":
    json.dump(main(sys.argv[1], json.loads(sys.stdin.buffer.read())), sys.stdout)
    sys.stdout.write("\n")
