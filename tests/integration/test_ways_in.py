"""Access to nodes before Muster: SSH with a password, different users per node, sudo with a password."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from lab import at, make_lab

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from machines import Machine, Play

pytestmark = pytest.mark.slow
TRUST = "playbooks/trust.yml"
COPY = {"trust_confirmed": True, "trust_copy_key": True}
USERS = {"node1": "erika", "node2": "otto"}
LET_IN_BY = "right-horse"
DROP_IN = "/etc/ssh/sshd_config.d/01-ways-in.conf"
THEIRS = "# a line of her own\n"


@dataclass(frozen=True)
class Lab:
    """Two nodes with different users, their inventory, and the password options of the commands."""

    inventory: Path
    nodes: dict[str, Machine]
    password: str

    @property
    def key(self) -> str:
        return (self.inventory.parent / "key.pub").read_text()

    def keys(self, name: str) -> str:
        path = f"/home/{USERS[name]}/.ssh/authorized_keys"
        return self.nodes[name].inside("cat", path, check=False).stdout

    def sshd(self, name: str, *settings: str) -> None:
        lines = "\\n".join(["PasswordAuthentication yes", *settings])
        self.nodes[name].inside("sh", "-c", f"printf '{lines}\\n' > {DROP_IN}")
        self.nodes[name].restart_sshd()


@pytest.fixture
def lab(tmp_path: Path, node: Callable[[str], Machine]) -> Iterator[Lab]:
    nodes = {name: node(name) for name in USERS}
    argv = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "anna@desk", "-f", str(tmp_path / "key")]
    subprocess.run(argv, check=True)
    (tmp_path / "password").write_text(LET_IN_BY)
    hosts = {name: {**at(machine)[name], "ansible_user": USERS[name]} for name, machine in nodes.items()}
    inventory = make_lab(tmp_path / "lab", hosts, ansible_ssh_private_key_file=str(tmp_path / "key"))
    here = Lab(inventory, nodes, f"--connection-password-file={tmp_path}/password")
    for name, machine in nodes.items():
        user = USERS[name]
        machine.inside("useradd", "--create-home", "--shell=/bin/bash", user)
        machine.inside("sh", "-c", f"echo {user}:{LET_IN_BY} | chpasswd")
        machine.inside(
            "sh", "-c", f"echo '{user} ALL=(ALL) ALL' > /etc/sudoers.d/{user}; chmod 440 /etc/sudoers.d/{user}"
        )
        here.sshd(name)
    yield here
    for name, machine in nodes.items():
        machine.inside("rm", "-f", DROP_IN, f"/etc/sudoers.d/{USERS[name]}")
        machine.restart_sshd()
        machine.inside("userdel", "--remove", "--force", USERS[name], check=False)


def test_key_is_authorized_after_a_login_with_the_password(play: Play, lab: Lab) -> None:
    lab.nodes["node1"].inside("install", "--directory", "--mode=0700", "--owner=erika", "/home/erika/.ssh")
    theirs = (
        f"echo '{THEIRS.strip()}' > /home/erika/.ssh/authorized_keys; chown erika: /home/erika/.ssh/authorized_keys"
    )
    lab.nodes["node1"].inside("sh", "-c", theirs)

    without = play(TRUST, inventory=lab.inventory, extravars=COPY)
    assert without.rc != 0
    assert "node2: the node accepts neither your key nor the password. Add --ask-pass to the command" in without.stdout

    copied = play(TRUST, inventory=lab.inventory, extravars=COPY, cmdline=lab.password)
    assert copied.rc == 0, copied.stdout
    task = "Authorize the SSH key of the controller"
    assert sorted(copied.changed) == [f"node1: {task}", f"node2: {task}"]
    assert lab.keys("node1") == THEIRS + lab.key
    assert lab.keys("node2") == lab.key
    stat = lab.nodes["node2"].inside("stat", "--format=%a %U", "/home/otto/.ssh", "/home/otto/.ssh/authorized_keys")
    assert stat.stdout.split("\n")[:2] == ["700 otto", "600 otto"]
    # Root's authorized_keys stays unchanged.
    assert lab.key not in lab.nodes["node2"].inside("sh", "-c", "cat ~root/.ssh/authorized_keys", check=False).stdout

    again = play(TRUST, inventory=lab.inventory, extravars=COPY)
    assert again.rc == 0, again.stdout
    assert again.changed == []


def test_users_and_sudo_passwords_can_differ_between_nodes(play: Play, lab: Lab) -> None:
    assert play(TRUST, inventory=lab.inventory, extravars=COPY, cmdline=lab.password).rc == 0
    become = lab.password.replace("connection", "become")
    looked = play("playbooks/inspect.yml", inventory=lab.inventory, cmdline=become)
    assert looked.rc == 0, looked.stdout
    (look,) = looked.results("Inspect all nodes at once").values()
    assert set(look["nodes"]) == set(USERS)
    checked = play("playbooks/baseline.yml", inventory=lab.inventory, cmdline=become, check=True)
    assert checked.rc == 0, checked.stdout
    assert {one.partition(":")[0] for one in checked.changed} == set(USERS)


def test_authorized_key_that_sshd_rejects_is_reported(play: Play, lab: Lab) -> None:
    lab.sshd("node2", "PubkeyAuthentication no")
    copied = play(TRUST, inventory=lab.inventory, extravars=COPY, cmdline=lab.password)
    assert copied.rc != 0
    assert "node2: the key is in authorized_keys, but sshd does not accept it" in copied.stdout
    assert lab.keys("node1") == lab.key
