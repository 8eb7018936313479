"""Logins between nodes as seen from outside: valid logins work, and similar but invalid logins fail."""

from __future__ import annotations

import json
import subprocess
from contextlib import contextmanager
from itertools import permutations
from typing import TYPE_CHECKING, Any

import pytest

from lab import SANDBOX_KNOWS, at, make_lab
from paths import ARTIFACTS, BIN, SANDBOXES
from snapshot import differences, files
from waiting import PATIENCE, until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from machines import Machine, Play, Result

USER = "muster"
HOME = f"/home/{USER}/.ssh"
IDENTITY = f"/var/lib/muster/ssh/{USER}/id_ed25519"
DROPIN = "/etc/ssh/sshd_config.d/90-muster.conf"
SITE = "/etc/ssh/sshd_config.d/10-site.conf"
STOLEN = "/tmp/muster_test_key"
KNOWN = "/tmp/muster_test_known_hosts"
# Host names and the firewall are separate roles with their own tests.
ALONE = {"cluster_hosts_mode": "off", "firewall_mode": "off"}
FILES = "Authorize logins between the nodes"
ALGORITHMS = "Disable weak sshd algorithms and test a new connection"
PROOF = "Test logins on the peers"


@pytest.fixture(scope="module")
def mesh(play: Play) -> Callable[..., Result]:
    """Return a function that runs the role alone on nodes with their user."""
    baseline = play("playbooks/baseline.yml")
    assert baseline.rc == 0, baseline.stdout

    def run(extravars: dict[str, Any] | None = None, **requested: Any) -> Result:
        return play("playbooks/network.yml", extravars={**ALONE, **(extravars or {})}, **requested)

    result = run()
    assert result.rc == 0, result.stdout
    return run


@pytest.fixture
def nodes(mesh: Callable[..., Result], node: Callable[[str], Machine]) -> list[Machine]:
    return [node("node1"), node("node2"), node("node3")]


def as_user(machine: Machine, command: str) -> subprocess.CompletedProcess[str]:
    return machine.inside("runuser", "-l", USER, "-c", command, check=False)


def log_in(machine: Machine, target: str) -> subprocess.CompletedProcess[str]:
    return as_user(machine, f"ssh -oBatchMode=yes -oConnectTimeout=5 {target} hostname")


def read(machine: Machine, name: str) -> str:
    """Return a file of the user, including carriage returns. Return "" if the file is missing."""
    argv = ["podman", "exec", machine.container, "cat", f"{HOME}/{name}"]
    return subprocess.run(argv, check=False, capture_output=True).stdout.decode()


def put(machine: Machine, path: str, text: str) -> None:
    """Write a file. An existing file keeps owner and mode, a new file belongs to root."""
    argv = ["podman", "exec", "--interactive", machine.container, "sh", "-c", f"umask 077; cat >{path}"]
    subprocess.run(argv, input=text, check=True, capture_output=True, text=True)


def public_key(machine: Machine) -> str:
    return " ".join(machine.inside("ssh-keygen", "-y", "-f", IDENTITY).stdout.split()[:2])


@contextmanager
def as_before(machine: Machine, *names: str) -> Iterator[None]:
    """Restore files of the user after the block."""
    kept = {name: read(machine, name) for name in names}
    try:
        yield
    finally:
        for name, text in kept.items():
            if text:
                put(machine, f"{HOME}/{name}", text)
            else:
                machine.inside("rm", "-f", f"{HOME}/{name}")


@contextmanager
def carrying(key: str, target: Machine, *machines: Machine) -> Iterator[list[str]]:
    """Copy a private key to these machines. Yield the command that logs in on the target with this key only."""
    known = next(line for line in SANDBOX_KNOWS.read_text().splitlines() if line.startswith(f"{target.address} "))
    options = ["IdentitiesOnly=yes", "BatchMode=yes", "ConnectTimeout=5", f"UserKnownHostsFile={KNOWN}"]
    try:
        for machine in machines:
            put(machine, STOLEN, key)
            put(machine, KNOWN, f"{known}\n")
        yield ["ssh", "-i", STOLEN, *(f"-o{one}" for one in options), f"{USER}@{target.address}", "hostname"]
    finally:
        for machine in machines:
            machine.inside("rm", "-f", STOLEN, KNOWN)


def test_every_node_logs_in_on_every_other_by_name_and_address(nodes: list[Machine]) -> None:
    for machine, peer in permutations(nodes, 2):
        for target in (peer.name, peer.address):
            done = log_in(machine, target)
            assert done.stdout.strip() == peer.name, f"{machine.name} -> {target}: {done.stderr}"


def test_full_run_changes_nothing_and_tests_all_logins(mesh: Callable[..., Result]) -> None:
    result = mesh({"full": True})
    assert result.rc == 0, result.stdout
    assert result.changed == []
    tried = {name: sorted(found["tried"]) for name, found in result.results(PROOF).items()}
    assert tried == {"node1": ["node2", "node3"], "node2": ["node1", "node3"], "node3": ["node1", "node2"]}


def test_every_node_has_its_own_private_key(nodes: list[Machine]) -> None:
    assert len({public_key(machine) for machine in nodes}) == 3
    for machine in nodes:
        assert machine.inside("stat", "-c", "%U %a", IDENTITY).stdout.split() == [USER, "600"]
        # Only root can replace the file.
        folder = IDENTITY.rpartition("/")[0]
        assert machine.inside("stat", "-c", "%U %a", folder).stdout.split() == ["root", "755"]
        assert machine.inside("runuser", "-u", "nobody", "--", "cat", IDENTITY, check=False).returncode != 0


def test_private_key_is_valid_only_from_its_node(nodes: list[Machine], node: Callable[[str], Machine]) -> None:
    first, second, _ = nodes
    outsider = node("outsider")
    with carrying(first.inside("cat", IDENTITY).stdout, second, first, outsider) as command:
        # Key and network are fine: the key is valid only from its own node.
        assert first.inside(*command, check=False).stdout.strip() == second.name
        refused = outsider.inside(*command, check=False)
        assert refused.returncode == 255
        assert "Permission denied" in refused.stderr


@pytest.mark.moment
def test_changed_host_key_is_refused(nodes: list[Machine]) -> None:
    """The peer presents another key, as an impostor would."""
    first, second, _ = nodes
    path = "/etc/ssh/ssh_host_ed25519_key"
    second.inside("sh", "-c", f"cp -p {path} /tmp/kept && cp -p {path}.pub /tmp/kept.pub && rm {path}*")
    try:
        second.inside("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path)
        second.restart_sshd()
        shown = first.inside("ssh-keyscan", "-t", "ed25519", second.address).stdout.split()
        assert shown[2] not in read(first, "muster_known_hosts")
        refused = log_in(first, second.name)
        assert refused.returncode == 255
        assert "Host key verification failed" in refused.stderr
    finally:
        second.inside("sh", "-ec", f"mv /tmp/kept {path}; mv /tmp/kept.pub {path}.pub")
        second.restart_sshd()
    assert log_in(first, second.name).stdout.strip() == second.name


def test_manually_accepted_host_keys_are_ignored(mesh: Callable[..., Result], nodes: list[Machine]) -> None:
    first, second, _ = nodes
    with as_before(first, "muster_known_hosts", "known_hosts"):
        forged = read(first, "muster_known_hosts").replace(f"{second.name},{second.address} ", "elsewhere ")
        put(first, f"{HOME}/muster_known_hosts", forged)
        # The correct key in the user's own known_hosts must not count, because wrong keys get there as easily.
        good = next(line for line in SANDBOX_KNOWS.read_text().splitlines() if line.startswith(f"{second.address} "))
        put(first, f"{HOME}/known_hosts", f"{good}\n")
        first.inside("chmod", "644", f"{HOME}/known_hosts")
        assert "Host key verification failed" in log_in(first, second.address).stderr
        repaired = mesh()
        assert repaired.rc == 0, repaired.stdout
        assert repaired.changed == [f"{first.name}: {FILES}"]
        assert log_in(first, second.address).stdout.strip() == second.name


def test_foreign_lines_are_kept(mesh: Callable[..., Result], nodes: list[Machine]) -> None:
    first, second, _ = nodes
    foreign = {
        "authorized_keys": "ssh-rsa AAAAB3NzaC1yc2E= somebody\r\n\n# no end",
        "config": "ServerAliveInterval 7\n\nHost *\n\tUser nobody\n",
        "known_hosts": "archive.example ssh-ed25519 AAAAC3NzaC1lZDI1NTE5 # by hand",
    }
    with as_before(first, *foreign):
        ours = {name: read(first, name) for name in foreign}
        for name, text in foreign.items():
            put(first, f"{HOME}/{name}", text)
        result = mesh()
        assert result.rc == 0, result.stdout
        assert result.changed == [f"{first.name}: {FILES}"]
        assert read(first, "authorized_keys") == f"{foreign['authorized_keys']}\n{ours['authorized_keys']}"
        assert read(first, "config") == f"{ours['config']}{foreign['config']}"
        assert read(first, "known_hosts") == foreign["known_hosts"]
        # The user's settings for all hosts apply, unless the login between nodes sets them.
        elsewhere, peer = (as_user(first, f"ssh -G {name}").stdout.splitlines() for name in ("elsewhere", second.name))
        assert {"serveraliveinterval 7", "user nobody"} <= set(elsewhere)
        assert f"identityfile {IDENTITY}" not in elsewhere
        assert {"serveraliveinterval 7", f"user {USER}", f"identityfile {IDENTITY}"} <= set(peer)
        assert log_in(first, second.name).stdout.strip() == second.name


def test_rotation_replaces_all_keys(mesh: Callable[..., Result], nodes: list[Machine]) -> None:
    first, second, _ = nodes
    before = {machine.name: public_key(machine) for machine in nodes}
    checked = mesh({"ssh_mesh_rotate": True}, check=True)
    assert checked.rc == 0, checked.stdout
    assert {machine.name: public_key(machine) for machine in nodes} == before
    with carrying(first.inside("cat", IDENTITY).stdout, second, first) as with_the_old_key:
        assert first.inside(*with_the_old_key, check=False).stdout.strip() == second.name
        rotated = mesh({"ssh_mesh_rotate": "true"}, cmdline="-vvv")
        assert rotated.rc == 0, rotated.stdout
        assert "Permission denied" in first.inside(*with_the_old_key, check=False).stderr
    assert sorted(rotated.changed) == sorted(checked.changed)
    after = {machine.name: public_key(machine) for machine in nodes}
    assert not set(before.values()) & set(after.values())
    shown = json.dumps(rotated.events, default=str)
    for machine in nodes:
        logins = read(machine, "authorized_keys")
        assert all(key in logins for key in after.values())
        assert not any(key in logins for key in before.values())
        assert machine.inside("sed", "-n", "3p", IDENTITY).stdout.strip() not in shown
        for peer in nodes:
            assert machine is peer or log_in(machine, peer.name).stdout.strip() == peer.name


@pytest.mark.moment
def test_dead_node_does_not_block_others_and_keeps_access(mesh: Callable[..., Result], nodes: list[Machine]) -> None:
    first, second, third = nodes
    third.podman("stop", "--time=0")
    try:
        with as_before(first, "authorized_keys"):
            whole = read(first, "authorized_keys")
            # A remaining node has something to repair, too.
            put(first, f"{HOME}/authorized_keys", whole.replace(f":{second.name}\n", ":somebody\n"))
            result = mesh()
            assert result.stats["dark"] == {third.name: 1}, result.stdout
            assert result.stats["failures"] == {}
            assert result.changed == [f"{first.name}: {FILES}"]
            assert read(first, "authorized_keys") == whole
        assert "not part of this run" in result.results(PROOF)[first.name]["not_tried"][third.name]
        assert log_in(second, first.name).stdout.strip() == first.name
    finally:
        third.podman("start")
        until(third.ssh_answers, PATIENCE, f"{third.name} is back")
    assert log_in(third, first.name).stdout.strip() == first.name
    assert log_in(first, third.name).stdout.strip() == third.name


def test_removed_node_loses_access(mesh: Callable[..., Result], nodes: list[Machine]) -> None:
    first, second, third = nodes
    theirs = {
        "authorized_keys": "ssh-rsa AAAAB3NzaC1yc2E= muster:rack:their-node\n",
        "config": "Host archive\n\tUser keeper\n",
        "known_hosts": "archive ssh-ed25519 AAAAC3NzaC1lZDI1NTE5\n",
    }
    for name, text in theirs.items():
        put(first, f"{HOME}/{name}", read(first, name) + text)
    try:
        left = mesh(inventory=SANDBOXES / "hosts.yml")
        assert left.rc == 0, left.stdout
        for machine in (first, second):
            for name in ("authorized_keys", "muster_known_hosts", "config"):
                assert third.name not in read(machine, name)
                assert third.address not in read(machine, name)
        assert all(read(first, name).endswith(text) for name, text in theirs.items())
        refused = log_in(third, first.name)
        assert refused.returncode == 255
        assert "Permission denied" in refused.stderr

        # The node is added again while another node is outside the run and does not know its key yet.
        stranger = mesh(limit=f"{first.name},{third.name}")
        assert stranger.rc == 0, stranger.stdout
        assert f"{second.name}: not part of this run" in " ".join(
            f"{name}: {why}" for name, why in stranger.results(PROOF)[first.name]["not_tried"].items()
        )
        assert log_in(third, first.name).stdout.strip() == first.name
        assert log_in(third, second.name).returncode == 255
    finally:
        for name, text in theirs.items():
            put(first, f"{HOME}/{name}", read(first, name).replace(text, ""))
        back = mesh()
    assert back.rc == 0, back.stdout
    assert log_in(third, second.name).stdout.strip() == second.name


def test_verify_reports_differences_and_changes_nothing(mesh: Callable[..., Result], nodes: list[Machine]) -> None:
    first, second, third = nodes
    right = mesh({"ssh_mesh_mode": "verify"})
    assert right.rc == 0, right.stdout
    with as_before(first, "authorized_keys"):
        lines = read(first, "authorized_keys").splitlines(keepends=True)
        put(first, f"{HOME}/authorized_keys", "".join(line for line in lines if f":{second.name}\n" not in line))
        assert log_in(second, first.name).returncode == 255
        third.inside("mv", DROPIN, f"{DROPIN}.kept")
        try:
            before = [files(machine) for machine in nodes]
            wrong = mesh({"ssh_mesh_mode": "verify"})
            assert [differences(old, files(machine)) for old, machine in zip(before, nodes, strict=True)] == [
                [],
                [],
                [],
            ]
        finally:
            third.inside("mv", f"{DROPIN}.kept", DROPIN)
    # The second node is correct, but cannot log in on the first.
    assert wrong.stats["failures"] == {first.name: 1, second.name: 1, third.name: 1}
    assert f"{first.name}: in ~{USER}/.ssh, authorized_keys has no lines for {second.name}" in wrong.stdout
    assert f"- {first.name}: sshd does not accept the key of {USER}" in wrong.stdout
    assert f"{third.name}: sshd does not match {DROPIN}" in wrong.stdout
    assert log_in(second, first.name).stdout.strip() == first.name


def test_check_mode_on_a_node_without_the_user_predicts_the_changes(
    mesh: Callable[..., Result], nodes: list[Machine], play: Play
) -> None:
    first, _, third = nodes
    third.inside("loginctl", "terminate-user", USER, check=False)
    third.inside("sh", "-ec", f"userdel --remove {USER} 2>&1; rm -r /var/lib/muster/ssh {DROPIN}")
    third.restart_sshd()
    before = files(first), files(third)
    checked = mesh(check=True)
    assert checked.rc == 0, checked.stdout
    assert [differences(old, files(machine)) for old, machine in zip(before, (first, third), strict=True)] == [[], []]
    baseline = play("playbooks/baseline.yml", limit=third.name)
    assert baseline.rc == 0, baseline.stdout
    done = mesh()
    assert done.rc == 0, done.stdout
    assert sorted(done.changed) == sorted(checked.changed)
    assert f"{third.name}: {ALGORITHMS}" in done.changed
    assert log_in(third, first.name).stdout.strip() == first.name


def test_settings_that_block_the_user_are_reported_and_kept(mesh: Callable[..., Result], nodes: list[Machine]) -> None:
    second = nodes[1]
    second.inside("usermod", "--shell", "/usr/sbin/nologin", USER)
    put(second, SITE, "AllowUsers admin\n")
    try:
        result = mesh()
        assert result.stats["failures"] == {second.name: 1}, result.stdout  # the other nodes continue
        assert f"sudo usermod --shell /bin/bash {USER}" in result.stdout
        assert f"sshd allows only admin (AllowUsers): add {USER} in" in result.stdout
        assert second.inside("getent", "passwd", USER).stdout.strip().endswith("/usr/sbin/nologin")
    finally:
        second.inside("usermod", "--shell", "/bin/bash", USER)
        second.inside("rm", SITE)
    assert log_in(nodes[0], second.name).stdout.strip() == second.name


def test_invalid_sshd_settings_are_reported_and_kept(mesh: Callable[..., Result], nodes: list[Machine]) -> None:
    first, second, _ = nodes
    put(first, SITE, "Nonsense yes\n")
    first.inside("mv", DROPIN, f"{DROPIN}.kept")
    try:
        result = mesh()
        assert result.stats["failures"] == {first.name: 1}, result.stdout
        assert f"{SITE}: line 1: Bad configuration option: Nonsense" in result.stdout
        assert first.inside("cat", SITE).stdout == "Nonsense yes\n"
        assert first.inside("test", "-e", DROPIN, check=False).returncode != 0
        assert first.ssh_answers()
        assert log_in(second, first.name).stdout.strip() == first.name
    finally:
        first.inside("mv", f"{DROPIN}.kept", DROPIN)
        first.inside("rm", SITE)


def test_settings_rejected_by_sshd_are_removed(mesh: Callable[..., Result], nodes: list[Machine]) -> None:
    first = nodes[0]
    kept = first.inside("cat", DROPIN).stdout
    result = mesh({"_ssh_mesh_sshd_settings": "Nonsense yes\n"}, limit=first.name)
    assert result.stats["failures"] == {first.name: 1}, result.stdout
    assert "was undone, because the change failed on the node (sshd rejects the settings" in result.stdout
    assert first.inside("cat", DROPIN).stdout == kept
    assert first.inside("sshd", "-t", check=False).returncode == 0
    assert first.ssh_answers()


def audit(machine: Machine) -> int:
    argv = [str(BIN / "ssh-audit"), "--skip-rate-test", "--level=fail", machine.address]
    return subprocess.run(argv, check=False, capture_output=True).returncode


@pytest.mark.moment
def test_ssh_audit_finds_no_failure(mesh: Callable[..., Result], nodes: list[Machine]) -> None:
    first = nodes[0]
    assert audit(first) in (0, 2)  # 3 means failures
    # State after a kill between writing and reload: the running sshd has not read the file.
    kept = first.inside("cat", DROPIN).stdout
    first.inside("mv", DROPIN, "/tmp/kept")
    first.restart_sshd()
    first.inside("mv", "/tmp/kept", DROPIN)
    assert audit(first) == 3
    repaired = mesh()
    assert repaired.rc == 0, repaired.stdout
    assert repaired.changed == [f"{first.name}: {ALGORITHMS}"]
    assert audit(first) in (0, 2)
    assert first.inside("cat", DROPIN).stdout == kept


@pytest.mark.moment
@pytest.mark.slow
def test_controller_with_only_the_ecdsa_key_is_not_locked_out(
    mesh: Callable[..., Result], nodes: list[Machine], tmp_path: Path
) -> None:
    first = nodes[0]
    first.inside("rm", DROPIN)
    first.restart_sshd()
    ecdsa = first.inside("cut", "-d ", "-f1,2", "/etc/ssh/ssh_host_ecdsa_key.pub").stdout
    lab = make_lab(tmp_path / "lab", at(first), cluster_name=ARTIFACTS.name)
    (lab / "known_hosts").write_text(f"{first.address} {ecdsa}")
    try:
        result = mesh(inventory=lab)
        assert result.rc != 0
        assert "was undone" in result.stdout
        assert "playbooks/trust.yml" in result.stdout
        assert first.inside("test", "-e", DROPIN, check=False).returncode != 0
        assert audit(first) == 3
        assert first.ssh_answers()
    finally:
        back = mesh()
    assert back.rc == 0, back.stdout
    assert audit(first) in (0, 2)
