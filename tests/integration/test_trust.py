"""First contact with sandbox machines, from an inventory without their host keys."""

from __future__ import annotations

import os
import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pexpect
import pytest
import yaml

from drill import listening
from lab import KEY, SANDBOX_KNOWS, at, make_lab
from paths import BIN, ENVIRONMENT, ROOT
from waiting import PATIENCE, until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from machines import Machine, Play, Result

TRUST = "playbooks/trust.yml"
YES = {"trust_confirmed": True}
HOST_KEY = "/etc/ssh/ssh_host_ed25519_key"


@pytest.fixture
def first(node: Callable[[str], Machine]) -> Machine:
    return node("node1")


@pytest.fixture
def second(node: Callable[[str], Machine]) -> Machine:
    return node("node2")


@pytest.fixture
def outsider(node: Callable[[str], Machine]) -> Machine:
    return node("outsider")


def host_key(machine: Machine) -> str:
    return " ".join(machine.inside("cat", f"{HOST_KEY}.pub").stdout.split()[:2])


def fingerprint(machine: Machine) -> str:
    return machine.inside("ssh-keygen", "-lf", f"{HOST_KEY}.pub").stdout.split()[1]


def states(result: Result) -> dict[str, str]:
    """Return the state of each node from the table, which is printed in every mode and on failure."""
    lines = result.stdout.splitlines()
    head = next(number for number, line in enumerate(lines) if line.split()[:2] == ["node", "address"])
    column = lines[head].index("state")
    rows: dict[str, str] = {}
    for line in lines[head + 1 :]:
        if len(line) <= column or not line.split()[0].startswith(("node", "outsider")):
            break
        rows[line.split()[0]] = line[column:]
    return rows


def pins(lab: Path) -> list[str]:
    """Return the lines of the project's known_hosts without the node name."""
    path = lab / "known_hosts"
    lines = path.read_text().splitlines() if path.exists() else []
    return [" ".join(line.split()[:3]) for line in lines if not line.startswith("#")]


def ssh_trusts(lab: Path, machine: Machine) -> bool:
    options = [f'UserKnownHostsFile="{lab}/known_hosts"', "StrictHostKeyChecking=yes", "GlobalKnownHostsFile=none"]
    options += ["BatchMode=yes", "ConnectTimeout=5", "ControlPath=none", "IdentitiesOnly=yes"]
    argv = ["ssh", "-F", "none", "-i", str(KEY), *(f"-o{option}" for option in options)]
    argv += [f"admin@{machine.address}", "true"]
    return subprocess.run(argv, check=False, capture_output=True).returncode == 0


def without_a_terminal(lab: Path, *arguments: str, playbook: str = TRUST) -> subprocess.CompletedProcess[str]:
    """Run a playbook without a terminal, like an unattended job. Other tests provide a terminal without input."""
    argv = [str(BIN / "ansible-playbook"), playbook, "-i", str(lab), *arguments]
    return subprocess.run(
        argv,
        cwd=ROOT,
        env={**os.environ, **ENVIRONMENT},
        check=False,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )


@contextmanager
def another_host_key(machine: Machine) -> Iterator[None]:
    """Replace the host key, as after a new installation."""
    machine.inside("sh", "-c", f"cp -p {HOST_KEY} /tmp/kept && cp -p {HOST_KEY}.pub /tmp/kept.pub && rm {HOST_KEY}*")
    try:
        machine.inside("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", HOST_KEY)
        machine.restart_sshd()
        yield
    finally:
        machine.inside("sh", "-ec", f"mv /tmp/kept {HOST_KEY}; mv /tmp/kept.pub {HOST_KEY}.pub")
        machine.restart_sshd()


def test_first_contact_pins_confirmed_host_keys(play: Play, tmp_path: Path, first: Machine, second: Machine) -> None:
    lab = make_lab(tmp_path / "my lab", at(first, second))
    refused = play("playbooks/plan.yml", inventory=lab)
    assert refused.rc == 0, refused.stdout  # contacts no node and needs no key
    assert not ssh_trusts(lab, first)

    checked = play(TRUST, inventory=lab, check=True)
    assert states(checked) == {"node1": "new", "node2": "new"}
    assert fingerprint(first) in checked.stdout
    assert f"+{first.address} {host_key(first)}" in checked.stdout
    assert pins(lab) == []

    unasked = without_a_terminal(lab)
    assert unasked.returncode != 0
    assert f"-i '{lab}' -e trust_confirmed=true" in unasked.stdout
    assert pins(lab) == []

    confirmed = play(TRUST, inventory=lab, extravars=YES)
    assert confirmed.rc == 0, confirmed.stdout
    assert len(confirmed.changed) == 1
    assert pins(lab) == [f"{machine.address} {host_key(machine)}" for machine in (first, second)]
    assert (lab / "known_hosts").stat().st_mode & 0o777 == 0o644
    assert ssh_trusts(lab, first)
    assert ssh_trusts(lab, second)

    # Every playbook reads the file, no inventory plugin parses it, and a second run does not rewrite it.
    again = play(TRUST, inventory=lab)
    assert again.rc == 0, again.stdout
    assert again.changed == []
    assert states(again) == {"node1": "known", "node2": "known"}


def test_all_keys_are_confirmed_with_one_prompt(sandbox: None, tmp_path: Path, first: Machine, second: Machine) -> None:
    lab = make_lab(tmp_path / "lab", at(first, second))
    for answer, pinned in (("no", 0), ("yes", 2)):
        argv = [str(BIN / "ansible-playbook"), TRUST, "-i", str(lab)]
        environment = {**os.environ, **ENVIRONMENT, "TERM": "dumb"}
        child = pexpect.spawn(argv[0], argv[1:], env=environment, cwd=str(ROOT), timeout=PATIENCE)
        child.expect_exact("Trust these 2 new keys?")
        child.expect_exact("[yes/no]")
        child.sendline(answer)
        child.expect(pexpect.EOF)
        child.close()
        assert (child.exitstatus == 0) == bool(pinned)
        assert len(pins(lab)) == pinned


@pytest.mark.moment
def test_changed_key_is_refused(play: Play, tmp_path: Path, first: Machine, second: Machine, outsider: Machine) -> None:
    lab = make_lab(tmp_path / "lab", at(second, outsider))
    assert play(TRUST, inventory=lab, extravars=YES).rc == 0
    before = pins(lab)
    # node1 is new in the same run.
    nodes = yaml.safe_load((lab / "hosts.yml").read_text())
    nodes["gpu_nodes"]["hosts"].update(at(first))
    (lab / "hosts.yml").write_text(yaml.safe_dump(nodes))
    with another_host_key(outsider):
        assert not ssh_trusts(lab, outsider)
        refused = play(TRUST, inventory=lab, extravars=YES)
        assert refused.rc != 0
        assert states(refused) == {"node2": "known", "outsider": "CHANGED", "node1": "new"}
        assert "outsider: host key rejected (CHANGED): the known key is SHA256:" in refused.stdout
        assert "-e trust_replace=outsider." in refused.stdout
        assert pins(lab) == [*before, f"{first.address} {host_key(first)}"]
        # An expected change is still confirmed by the user.
        unasked = without_a_terminal(lab, "-e", "trust_replace=outsider")
        assert unasked.returncode != 0
        assert "-e trust_confirmed=true -e trust_replace=outsider" in unasked.stdout
        replaced = play(TRUST, inventory=lab, extravars={**YES, "trust_replace": "outsider"})
        assert replaced.rc == 0, replaced.stdout
        assert states(replaced)["outsider"] == "replaced"
        assert f"{outsider.address} {host_key(outsider)}" in pins(lab)
        assert len(pins(lab)) == 3
        assert ssh_trusts(lab, outsider)
    assert not ssh_trusts(lab, outsider)
    assert outsider.ssh_answers()


@pytest.mark.moment
def test_unreachable_nodes_do_not_block_the_others(
    play: Play, tmp_path: Path, first: Machine, second: Machine, outsider: Machine
) -> None:
    prefix = first.address.rpartition(".")[0]
    nodes: dict[str, dict[str, Any]] = {
        "node7": {"ansible_host": f"{prefix}.251"},
        **at(first),
        "node8": {"ansible_host": outsider.address, "ansible_port": 8099},
        "node9": {"ansible_host": outsider.address, "ansible_port": 8098, "cluster_address": f"{prefix}.252"},
    }
    lab = make_lab(tmp_path / "lab", nodes)
    unit = ["systemd-run", "--quiet", "--collect", "--unit=muster-test-web"]
    outsider.inside(*unit, "python3", "-m", "http.server", "8099")
    try:
        until(lambda: 8099 in listening(outsider.container), PATIENCE, "the web server listens")
        result = play(TRUST, inventory=lab, extravars=YES)
    finally:
        outsider.inside("systemctl", "stop", "muster-test-web")
    assert result.rc == 0, result.stdout
    found = states(result)
    assert found["node1"] == "new"
    assert found["node7"].startswith("no answer: ")
    assert found["node8"] == "no answer: the port is open, but the service is not an SSH server"
    assert found["node9"] == "no answer: connection refused"
    assert pins(lab) == [f"{first.address} {host_key(first)}"]
    silent = play(TRUST, inventory=lab, extravars=YES, limit="node9")
    assert silent.rc != 0
    assert "No node responded" in silent.stdout


def test_inventory_fingerprints_need_no_prompt(play: Play, tmp_path: Path, first: Machine, second: Machine) -> None:
    nodes = {
        **at(first, cluster_host_key=fingerprint(first)),
        **at(second, cluster_host_key=fingerprint(first)),
    }
    lab = make_lab(tmp_path / "lab", nodes)
    result = play(TRUST, inventory=lab)
    assert result.rc != 0
    assert states(result) == {"node1": "matches the inventory", "node2": "does NOT match the inventory"}
    assert f"node2: host key rejected (does NOT match the inventory): the key is {fingerprint(second)}" in result.stdout
    assert pins(lab) == [f"{first.address} {host_key(first)}"]


def test_hashed_and_foreign_lines_are_kept(play: Play, tmp_path: Path, first: Machine, second: Machine) -> None:
    lab = make_lab(tmp_path / "lab", at(first))
    pinned = lab / "known_hosts"
    pinned.write_text(f"{first.address} {host_key(first)}\n")
    subprocess.run(["ssh-keygen", "-q", "-H", "-f", str(pinned)], check=True, capture_output=True)
    hashed = pinned.read_text()
    assert first.address not in hashed
    known = play(TRUST, inventory=lab)
    assert known.rc == 0, known.stdout
    assert states(known) == {"node1": "known"}

    nodes = yaml.safe_load((lab / "hosts.yml").read_text())
    nodes["gpu_nodes"]["hosts"].update(at(second))
    (lab / "hosts.yml").write_text(yaml.safe_dump(nodes))
    assert play(TRUST, inventory=lab, extravars=YES).rc == 0
    assert pinned.read_text() == f"{hashed}{second.address} {host_key(second)} muster:node2\n"

    # node2 leaves: its line is reported and kept.
    del nodes["gpu_nodes"]["hosts"]["node2"]
    (lab / "hosts.yml").write_text(yaml.safe_dump(nodes))
    left = play(TRUST, inventory=lab)
    assert left.rc == 0, left.stdout
    assert f"its key is still pinned. Remove it with: ssh-keygen -R {second.address}" in left.stdout


def test_nodes_behind_a_bastion_are_pinned(play: Play, tmp_path: Path, first: Machine, outsider: Machine) -> None:
    """The outsider is the bastion. ssh requires that its host key is already known."""
    known = tmp_path / "bastion_known_hosts"
    settings = tmp_path / "ssh_config"
    settings.write_text(
        f"Host bastion\n  HostName {outsider.address}\n  User admin\n  IdentityFile {KEY}\n  IdentitiesOnly yes\n"
        f"  UserKnownHostsFile {known}\n  GlobalKnownHostsFile none\n"
    )
    lab = make_lab(tmp_path / "lab", at(first), ansible_ssh_common_args=f"-F {settings} -J bastion")
    stranger = play(TRUST, inventory=lab, extravars=YES)
    assert stranger.rc != 0
    assert "bastion: " in states(stranger)["node1"]
    assert "Host key verification failed" in states(stranger)["node1"]

    line = next(line for line in SANDBOX_KNOWS.read_text().splitlines() if line.startswith(outsider.address))
    known.write_text(f"{line}\n")
    pinned = play(TRUST, inventory=lab, extravars=YES)
    assert pinned.rc == 0, pinned.stdout
    assert pins(lab) == [f"{first.address} {host_key(first)}"]


def test_unknown_key_error_points_to_the_trust_playbook(tmp_path: Path, first: Machine) -> None:
    lab = make_lab(tmp_path / "lab", at(first))
    result = without_a_terminal(lab, playbook="playbooks/baseline.yml")
    assert result.returncode != 0
    assert "unreachable=1" in result.stdout
    assert f"ansible-playbook playbooks/trust.yml -i {lab} (" in result.stdout.splitlines()[-1]
