"""A hostile training user: replaces writable files with links, pipes, folders and endless files.

    hostile_user.py SEED SECRET_FILE SECRET_FOLDER VICTIM_PID FOLDER...

FOLDER: patterns, relative to the root, of folders that the user may write, now or later. The program runs until it is
killed and prints the number of replacements from time to time.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

NAMES = (
    *("result.json", "ranks.json", "agent.log", "torchrun", "logs", "unit", "script"),
    *("job", "attempt_0", "0", "1", "99999999999", "x", "stdout.log", "stderr.log", "error.json"),
)
DEEP = ("[" * 200_000, '{"a":' * 5000, "9" * 100_000, "\0" * 9, '"\\ud800"')
SAID = 50
MOST = 300  # maximum of known folders


class Attacker:
    def __init__(self, secret_file: Path, secret_folder: Path, victim: int) -> None:
        self.secrets = (secret_file, secret_folder / "secret")
        self.secret_folder = secret_folder
        self.victim = victim
        self.swaps = 0

    def strike(self, folder: Path) -> None:
        """Replace one entry of a folder."""
        path, fresh = folder / random.choice(NAMES), folder / f".{random.random()}"
        kinds = (self.link, self.hard_link, self.pipe, self.sparse, self.forged, self.deep, self.tree)
        with suppress(OSError):
            random.choice(kinds)(fresh)
            with suppress(OSError):
                path.rename(folder / f".{random.random()}")  # a file cannot replace a folder
            fresh.rename(path)
            self.swaps += 1
            if self.swaps % SAID == 0:
                print(self.swaps, flush=True)

    def link(self, path: Path) -> None:
        targets = (*self.secrets, self.secret_folder, "/proc/1/environ", "/dev/zero", "..", path)
        path.symlink_to(random.choice(targets))

    def hard_link(self, path: Path) -> None:
        path.hardlink_to(random.choice(self.secrets))

    def pipe(self, path: Path) -> None:
        os.mkfifo(path)

    def sparse(self, path: Path) -> None:
        with path.open("wb") as stream:
            stream.truncate(1 << 40)

    def forged(self, path: Path) -> None:
        """Write a rank table or a result that refers to processes of other users."""
        started = started_at(self.victim)
        pids = (1, self.victim, -1, 0, -self.victim, 1 << 80, "1", None, [self.victim], True)
        ranks = [{"rank": 0, "local_rank": 0, "started": started, "gone_at": None, "pid": pid} for pid in pids]
        agent: Any = random.choice((self.victim, {"pid": self.victim, "started": started}, [], None))
        shapes = ({"agent": agent, "ranks": ranks}, ranks, {"reason": [1]}, {"reason": "exit"})
        path.write_text(json.dumps(random.choice(shapes)))

    def deep(self, path: Path) -> None:
        path.write_text(random.choice(DEEP))

    def tree(self, path: Path) -> None:
        rank = path / "attempt_0/0"
        rank.mkdir(parents=True)
        (rank / random.choice(("stdout.log", "stderr.log", "error.json"))).symlink_to(self.secrets[0])


def started_at(pid: int) -> int:
    with suppress(OSError):
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    return 0


def folders(patterns: list[str]) -> list[Path]:
    """Return the folders that match the patterns, and their subfolders."""
    found = [path for pattern in patterns for path in Path("/").glob(pattern.lstrip("/"))]
    for path in found:
        if len(found) > MOST:
            break
        with suppress(OSError):
            found += [each for each in islice(path.iterdir(), MOST) if each.is_dir() and not each.is_symlink()]
    return found


def main() -> None:
    seed, secret_file, secret_folder, victim, *patterns = sys.argv[1:]
    random.seed(int(seed))
    attacker = Attacker(Path(secret_file), Path(secret_folder), int(victim))

    print("at it", flush=True)
    while True:
        here = folders(patterns)
        for folder in random.sample(here, min(len(here), 20)):
            attacker.strike(folder)
        if not here:
            time.sleep(0.001)


if __name__ == "__main__":
    main()
