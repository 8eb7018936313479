"""Simulate a user who runs the commands of the docs, with a home, a checkout and an inventory `lab` of sandbox nodes.

Prerequisites that the pages name are created on this machine and on the nodes. Placeholders in commands (node names,
launch ids, local folders) are filled in.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pexpect
import yaml

import cifar_archive
from lab import KEY
from paths import NAME, ROOT, SANDBOXES

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from machines import Machine
    from people import Person

SAMPLE_ID = "20261121-093142-1df3"
LAUNCH = re.compile(r"\blaunch (\d{8}-\d{6}-[0-9a-f]{4}): ")
COLOURS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
LONG = 900  # seconds; ends a hanging command, with room for a busy machine
TRAINING = ROOT / "tests/integration/payloads/shown_training.py"


@dataclass(frozen=True)
class Output:
    """The exit status and output of a command."""

    status: int | None
    lines: list[str]

    @property
    def last(self) -> str:
        return self.lines[-1] if self.lines else ""

    def __str__(self) -> str:
        return f"ended with {self.status}:\n" + "\n".join(self.lines[-60:])


@dataclass
class Desk:
    """folder: with a short path, because it contains sockets of SSH connections. launch_id: of the newest launch."""

    folder: Path
    nodes: Sequence[Machine]
    person: Person
    launch_id: str = ""

    @property
    def checkout(self) -> Path:
        return self.folder / "muster"

    def set_up(self) -> None:
        """Create the parts of the workplace on this machine."""
        listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        names = subprocess.run(listed, cwd=ROOT, check=True, capture_output=True, text=True).stdout
        for name in filter(None, names.split("\0")):
            if (ROOT / name).is_file():
                target = self.checkout / name
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, target)
        # The test environment contains the packages of a user's .venv at the same versions.
        for name, made in ((".venv", ".venv-dev"), (".sandbox", ".sandbox")):
            (self.checkout / name).symlink_to(ROOT / made)
        # As script/setup writes it into .venv, which is that of another checkout here.
        (self.folder / "bin").mkdir()
        program = f'PYTHONPATH="{self.checkout}" exec "{self.checkout}/.venv/bin/python" -P -m muster_cli "$@"'
        (self.folder / "bin/muster").write_text(f"#!/bin/sh\n{program}\n")
        (self.folder / "bin/muster").chmod(0o755)
        shutil.copytree(SANDBOXES, self.checkout / "inventory/sandbox", dirs_exist_ok=True)
        self.write_lab()
        self.bring_here()

    def write_lab(self) -> None:
        """Fill in inventory/lab as a user does."""
        hosts = {node.name: {"ansible_host": node.address} for node in self.nodes}
        lab = self.checkout / "inventory/lab"
        (lab / "hosts.yml").write_text(yaml.safe_dump({"gpu_nodes": {"hosts": hosts}}))
        options = {
            "ansible_user": "admin",
            "ansible_ssh_private_key_file": str(KEY),
            # This machine is busy: keep slow nodes in the launch.
            "launch_silence_timeout": 60,
            "launch_users": [self.person.name],
            "ssh_mesh_users": [self.person.name],
            "cluster_environments": {"vision": {"provided": True}},
            # The source of PyTorch on this machine.
            **yaml.safe_load((SANDBOXES / "group_vars/sandbox/this_host.yml").read_text()),
        }
        with (lab / "group_vars/all.yml").open("a") as file:
            file.write(yaml.safe_dump(options))

    def bring_here(self) -> None:
        """Create the local files that the pages name as prerequisites."""
        home, beside = self.folder / "home", self.folder
        for folder in (home / "project", beside / "project", home / ".ssh", beside / "logs", beside / "data/cifar10"):
            folder.mkdir(parents=True)
        for place in (home / "project", beside / "project", self.checkout):
            shutil.copy(TRAINING, place / "train.py")
        (home / "tokens.env").write_text("HF_TOKEN=hf_0123456789abcdefghij\n")
        (home / "tokens.env").chmod(0o600)
        (home / ".ssh/config").write_text("".join(f"Host gpu{n}\n  HostName 10.0.2.{n}\n" for n in (1, 2)))
        (self.checkout / "hostfile").write_text("gpu1 10.0.2.1 slots=8\n10.0.2.2 slots=8\n")
        (self.checkout / "job.yml").write_text(shown("job_files.md", r"```yaml\n(launch_script_src.*?)```"))
        (beside / "job.yml").write_text(shown("launch_users.md", r"```yaml\n(launch_project: ../project\n.*?)```"))
        (beside / "project/job.yml").write_text(shown("coming_from.md", r"```yaml\n(cluster_launch_nodes.*?)```"))
        (beside / "hosts").write_text("127.0.0.1 localhost\n" + "".join(f"10.0.2.{n} gpu0{n}\n" for n in range(1, 5)))
        cifar_archive.write(beside / "data/cifar10" / "cifar-10-python.tar.gz")
        words = "[rank1]: Traceback (most recent call last):\n[rank1]: ValueError: sample 17 is broken\n"
        for rank, text in enumerate(("step 1\n", words, "step 1\n")):
            (beside / f"logs/rank{rank}.stderr.log").write_text(text)

    def bring_to_nodes(self) -> None:
        """Create the same prerequisites on the nodes, where the training user already exists."""
        for node in self.nodes:
            node.inside("install", "--directory", "/srv/project", "/data/train", "/opt/muster/pytorch/named/vision")
            node.inside("install", "--directory", "--owner=muster", "/srv/cifar10")
            node.inside("chown", "muster:", "/srv/project")
            node.podman_copy(TRAINING, "/srv/project/train.py")
            node.podman_copy(self.folder / "data/cifar10/cifar-10-python.tar.gz", "/srv/cifar10/")
            node.inside("sh", "-ec", "echo 1 > /data/train/a; cd /data; sha256sum train/a > SHA256SUMS")
            node.inside("ln", "-sfn", "/opt/muster/pytorch/current", "/opt/muster/pytorch/named/vision/current")

    def clear_nodes(self) -> None:
        for node in self.nodes:
            node.inside("rm", "-rf", "/srv/project", "/srv/cifar10", "/data", "/opt/muster/pytorch/named/vision")

    def hold(self, *, on: bool) -> None:
        """Set whether the training script runs until it is stopped. Otherwise, it ends by itself."""
        for node in self.nodes:
            node.inside(*(("touch",) if on else ("rm", "-f")), "/srv/project/hold")

    def launches(self) -> str:
        """Return the launch units that run on the nodes."""
        argv = ["systemctl", "list-units", "--plain", "--no-legend", "muster-launch-*"]
        return "".join(node.inside(*argv).stdout for node in self.nodes)

    def own(self, command: str) -> str:
        """Replace the sample values in a command with the values of this workplace."""
        share, copied = "share_to=/srv/share/lab", "data_copy_src=/data/cifar10"
        for sample, value in {
            SAMPLE_ID: self.launch_id,
            "node7": "node3",
            "node9": "node3",
            share: f"share_to={self.folder}/lab",
            copied: f"data_copy_src={self.folder}/data/cifar10",
            "data_copy_src=$HOME/cifar10": f"data_copy_src={self.folder}/data/cifar10",
            "why /tmp/logs": f"why {self.folder}/logs",
            ".venv/bin/muster": "muster",
        }.items():
            command = command.replace(sample, value)
        return command

    def run_command(
        self, command: str, *, folder: str = "muster", more: str = "", answers: Sequence[Sequence[str]] = ()
    ) -> Output:
        """Run a command in a folder of the workplace, in a terminal, and wait for it to end."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("ANSIBLE_")}
        path = f"{self.folder / 'bin'}:{self.checkout / '.venv/bin'}:{kept['PATH']}"
        environment = {
            **kept,
            "HOME": str(self.folder / "home"),
            "TERM": "xterm",
            "MUSTER_CLUSTER": "lab",
            "PATH": path,
        }
        if "../lab" in command:  # a user launch: with the user's account and key
            environment |= {
                "ANSIBLE_REMOTE_USER": self.person.name,
                "ANSIBLE_PRIVATE_KEY_FILE": str(self.person.key),
            }
        # The host names that this machine knows. Nothing else of it is changed.
        hosts = f"mount --bind {shlex.quote(str(self.folder / 'hosts'))} /etc/hosts"
        argv = ["unshare", "--mount", "bash", "-c", f"{hosts} && {self.own(command)} {more}"]
        if command.startswith("script/demo"):
            # The tests' sandbox belongs to another checkout, and mounts of new machines are visible to all.
            begin, last = os.environ.get("MUSTER_SANDBOX_PREFIX", "10.203.77").rsplit(".", 1)
            third = (int(last) + 25) % 256
            environment |= {"MUSTER_SANDBOX": f"{NAME}-desk", "MUSTER_SANDBOX_PREFIX": f"{begin}.{third}"}
            argv = ["bash", "-c", command]
        child: Any = pexpect.spawn(
            argv[0],
            argv[1:],
            cwd=str(self.folder / folder),
            env=environment,
            encoding="utf-8",
            codec_errors="replace",
            timeout=LONG,
            dimensions=(60, 200),
        )
        output = ""
        try:
            for pattern, answer in answers:
                child.expect(pattern)
                output += child.before + child.after
                child.send(answer)
            child.expect(pexpect.EOF)
            output += child.before
        except (pexpect.EOF, pexpect.TIMEOUT) as problem:
            output += f"{child.before}\n({type(problem).__name__} before {answers}, or its end)"
        child.close(force=True)
        text = COLOURS.sub("", output).replace("\r", "")
        if found := LAUNCH.findall(text):
            self.launch_id = found[-1]
        return Output(child.exitstatus, [line for line in text.splitlines() if line.strip()])


def shown(page: str, pattern: str) -> str:
    """Return the text of a page that matches the pattern, such as the content of a file."""
    found = re.search(pattern, (ROOT / "docs" / page).read_text(), re.DOTALL)
    assert found, f"docs/{page} no longer shows {pattern}"
    return found[1] + "\n"
