"""Users with a plain login on the nodes: accounts without sudo, with their keys and own checkouts."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from paths import BIN, ENVIRONMENT, ROOT
from waiting import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from machines import Machine


@dataclass(frozen=True)
class Person:
    """A user with an account of this name and uid on the nodes, and a key on this machine."""

    name: str
    uid: int
    folder: Path

    @property
    def key(self) -> Path:
        return self.folder / "id_ed25519"

    @property
    def checkout(self) -> Path:
        """Return the user's own Muster checkout, separate from the one that prepared the nodes."""
        return self.folder / "muster"

    def ssh(self, machine: Machine, command: str, *, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run a shell command over SSH as this user."""
        options = ["BatchMode=yes", "ConnectTimeout=5", "IdentitiesOnly=yes", "ControlPath=none"]
        options.append(f"UserKnownHostsFile={machine.folder}/known_hosts")
        argv = ["ssh", "-F", "none", "-i", str(self.key), *(f"-o{option}" for option in options)]
        argv += [f"{self.name}@{machine.address}", command]
        return subprocess.run(argv, check=check, capture_output=True, text=True)

    def command(self, *words: str) -> list[str]:
        """Return an Ansible command for the checkout, with the options from README."""
        program = str(BIN / words[0])
        return [program, *words[1:], "-u", self.name, "--private-key", str(self.key)]

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*words),
            cwd=self.checkout,
            env=self.environment,
            check=False,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=2 * PATIENCE,
        )

    @property
    def environment(self) -> dict[str, str]:
        """Return an environment without variables of this repository or of the administrator's sandbox."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("ANSIBLE_", "MUSTER_"))}
        # HOME also separates the shared SSH connections of this user.
        return {**kept, "PATH": ENVIRONMENT["PATH"], "HOME": str(self.folder)}


def make_person(folder: Path, name: str, uid: int, machines: Sequence[Machine]) -> Person:
    """Create the account on these machines with a key from this machine."""
    folder.mkdir(parents=True)
    person = Person(name, uid, folder)
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", str(person.key)], check=True)
    public = person.key.with_suffix(".pub").read_text().strip()
    for machine in machines:
        remove_person(machine, name)
        machine.inside("useradd", "--create-home", "--shell=/bin/bash", f"--uid={uid}", name)
        ssh = f"install -d -m 700 -o {name} -g {name} /home/{name}/.ssh"
        theirs = f"chown {name}: /home/{name}/.ssh/authorized_keys"
        machine.inside("sh", "-ec", f"{ssh}; echo '{public}' > /home/{name}/.ssh/authorized_keys; {theirs}")
    return person


def remove_person(machine: Machine, name: str) -> None:
    """Remove the account with its processes and files."""
    gone = f"id {name} >/dev/null 2>&1 || exit 0; loginctl disable-linger {name}; loginctl terminate-user {name}"
    machine.inside("sh", "-c", f"{gone}; userdel --force --remove {name}; rm -rf /var/lib/muster/users/{name}")


def check_out(person: Person) -> None:
    """Copy tracked and new files as a separate checkout, without .venv, .sandbox and artifacts."""
    argv = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(argv, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file() and not name.startswith("tests/"):
            target = person.checkout / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target)


@contextmanager
def people(machines: Sequence[Machine], **uids: int) -> Iterator[list[Person]]:
    """Yield users with accounts on these machines, and remove the accounts afterwards.

    Their folders have short names, because the path of a shared connection's socket may have at most 107 characters.
    """
    with tempfile.TemporaryDirectory(prefix="people-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        made = [make_person(Path(folder) / name, name, uid, machines) for name, uid in uids.items()]
        try:
            yield made
        finally:
            for machine in machines:
                for person in made:
                    remove_person(machine, person.name)
