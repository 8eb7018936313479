"""Snapshots of a machine's files, packages, units, firewall and network settings, taken without SSH and Ansible.

snapshot.py keep FOLDER MACHINE...      writes a snapshot of each machine
snapshot.py compare FOLDER MACHINE...   prints the differences and exits with 1 if there are any
"""

from __future__ import annotations

import difflib
import io
import json
import subprocess
import sys
import tarfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from machines import find_machine

if TYPE_CHECKING:
    from machines import Machine

FOLDERS = ("etc", "home", "root", "usr/local", "srv", "var/lib/muster", "var/spool/cron")
# Ansible's own folder is not part of the machine's state.
PASSING = "/.ansible"
LOOKS = {
    "packages": "dpkg-query --show --showformat '${Package} ${Version} ${db:Status-Status}\\n'",
    # Without transient units, such as logins.
    "units": "systemctl list-unit-files --no-legend --plain | grep -v ' transient '",
    "firewall": "nft --stateless list ruleset",
    "network settings": "sysctl --all --pattern '^net\\.' 2>&1 | grep -v 'conntrack_count'",
}


def take(machine: Machine) -> dict[str, str]:
    """Return the state as texts: every file by its path, and every probe by its subject."""
    looks = {subject: machine.inside("sh", "-c", command).stdout for subject, command in LOOKS.items()}
    return {**looks, **files(machine)}


def files(machine: Machine) -> dict[str, str]:
    """Return owner, mode and content of the files that belong to the machine's state."""
    command = f"cd / && exec tar --create --ignore-failed-read {' '.join(FOLDERS)} 2>/dev/null"
    packed = subprocess.run(
        ["podman", "exec", machine.container, "sh", "-c", command], check=False, capture_output=True
    )
    found = {}
    with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as archive:
        for member in archive:
            path = f"/{member.name}"
            if PASSING not in path:
                stream = archive.extractfile(member) if member.isreg() else None
                content = stream.read().decode(errors="replace") if stream else member.linkname
                found[path] = f"{member.uid}:{member.gid} {member.mode:o}\n{content}"
    return found


def differences(before: dict[str, str], after: dict[str, str]) -> list[str]:
    """Return the differences line by line."""
    found: list[str] = []
    for subject in sorted({*before, *after}):
        old, new = (state.get(subject, "").splitlines() for state in (before, after))
        found += difflib.unified_diff(old, new, f"{subject} before", f"{subject} after", "", "", 0, "")
    return found


def lost(before: dict[str, str], after: dict[str, str]) -> list[str]:
    """Return the removed lines. Added and moved lines are ignored."""
    found = []
    for subject, text in before.items():
        gone = Counter(text.splitlines()) - Counter(after.get(subject, "").splitlines())
        found += [f"{subject}: {line}" for line in gone.elements() if line.strip()]
    return found


def main(verb: str, folder: str, *names: str) -> int:
    status = 0
    Path(folder).mkdir(exist_ok=True)
    for name in names:
        path = Path(folder) / f"{name}.json"
        now = take(find_machine(name))
        if verb == "keep":
            path.write_text(json.dumps(now))
        elif found := differences(json.loads(path.read_text()), now):
            print(f"{name} differs:", *found, sep="\n")
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
