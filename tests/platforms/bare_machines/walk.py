"""The steps of a user from an inventory with two lines to HEALTHY, with the commands from README."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pexpect
import yaml

from bare import NODES, USER, pip_variables
from paths import BIN, ROOT

if TYPE_CHECKING:
    from pathlib import Path

    from bare import Bare

SAMPLE = ROOT / "inventory/lab"
RECAP = re.compile(r"^(\S+) +: ok=\d+ +changed=(\d+) +unreachable=(\d+) +failed=(\d+)", re.MULTILINE)
STEP = 1800.0  # seconds; ends a hanging command


@dataclass(frozen=True)
class Step:
    """A command and its result."""

    name: str
    rc: int
    seconds: float
    output: str = field(repr=False)

    @property
    def changed(self) -> int:
        return sum(int(changed) for _, changed, *_ in RECAP.findall(self.output))

    @property
    def last_line(self) -> str:
        return self.output.strip().splitlines()[-1] if self.output.strip() else ""


class Walk:
    """The controller's side of a row: an inventory, a key, a vault secret, and the commands that have run."""

    def __init__(self, bare: Bare, logs: Path) -> None:
        self.bare = bare
        self.logs = logs
        self.inventory = bare.folder / bare.row
        self.key = bare.folder / "id_ed25519"
        self.steps: list[Step] = []

    def write_inventory(self) -> None:
        """Copy inventory/lab, set addresses and the login user, and encrypt the sudo password."""
        shutil.rmtree(self.inventory, ignore_errors=True)
        shutil.copytree(SAMPLE, self.inventory)
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.key)], check=True)
        vault = self.bare.folder / "vault_password"
        vault.write_text(self.bare.password[::-1])
        vault.chmod(0o600)
        hosts = self.inventory / "hosts.yml"
        text = hosts.read_text()
        for sample, address in zip(re.findall(r"ansible_host: (\S+)", text), NODES.values(), strict=True):
            text = text.replace(f"ansible_host: {sample}", f"ansible_host: {address}")
        hosts.write_text(text)
        encrypted = subprocess.run(
            [
                BIN / "ansible-vault",
                "encrypt_string",
                "--vault-password-file",
                vault,
                "--stdin-name",
                "ansible_become_password",
            ],
            input=self.bare.password,
            check=True,
            capture_output=True,
            text=True,
            cwd=ROOT,
        ).stdout
        variables = {"ansible_user": USER, "ansible_ssh_private_key_file": str(self.key), "pytorch_variant": "cuda"}
        options = self.inventory / "group_vars/all.yml"
        own = yaml.safe_dump({**variables, **pip_variables()[0]})
        options.write_text(f"{options.read_text()}\n{own}{encrypted}")

    def copy_key(self) -> None:
        """Install the key on each node with ssh-copy-id, which logs in with the password and a known host key."""
        begun = time.monotonic()
        known, home = self.inventory / "known_hosts", self.bare.folder / "home"
        (home / ".ssh").mkdir(parents=True, exist_ok=True)
        said = ""
        for address in NODES.values():
            options = ["-o", f"UserKnownHostsFile={known}", "-o", "StrictHostKeyChecking=yes"]
            child = pexpect.spawn(
                "ssh-copy-id",
                ["-i", f"{self.key}.pub", *options, f"{USER}@{address}"],
                encoding="utf-8",
                timeout=60,
                # ssh-copy-id needs a writable ~/.ssh.
                env={**os.environ, "HOME": str(home)},
            )
            child.expect("password: ")
            child.sendline(self.bare.password)
            child.expect(pexpect.EOF)
            child.close()
            said += child.before
            assert child.exitstatus == 0, child.before
        self._keep(Step("ssh-copy-id", 0, time.monotonic() - begun, said))

    def play(self, name: str, *arguments: str) -> Step:
        """Run ansible-playbook as a user would."""
        environment = {key: value for key, value in os.environ.items() if not key.startswith(("ANSIBLE_", "MUSTER_"))}
        environment["ANSIBLE_VAULT_PASSWORD_FILE"] = str(self.bare.folder / "vault_password")
        begun = time.monotonic()
        done = subprocess.run(
            [BIN / "ansible-playbook", *arguments, "-i", self.inventory],
            check=False,
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=STEP,
        )
        return self._keep(Step(name, done.returncode, time.monotonic() - begun, done.stdout))

    def _keep(self, step: Step) -> Step:
        self.steps.append(step)
        number = len(self.steps)
        (self.logs / f"{number}-{step.name.replace(' ', '-')}.log").write_text(step.output)
        return step
