"""The baseline as seen from outside, and its repair after parts of it were removed."""

from __future__ import annotations

import subprocess
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from waiting import PATIENCE, until

if TYPE_CHECKING:
    from collections.abc import Callable

    from machines import Machine, Play, Result

NODES = ("node1", "node2", "node3")
PLAYBOOK = "playbooks/baseline.yml"
LOOK = "Inspect the node"
LOGIN = ("org.freedesktop.login1", "/org/freedesktop/login1", "org.freedesktop.login1.Manager")
RESERVED = "/proc/sys/net/ipv4/ip_local_reserved_ports"
# Holds dpkg's lock like apt, from the word "held" until stdin closes.
HOLD = (
    "import fcntl, sys; lock = open('/var/lib/dpkg/lock-frontend', 'w');"
    "fcntl.lockf(lock, fcntl.LOCK_EX); print('held', flush=True); sys.stdin.read()"
)


@pytest.fixture(scope="module")
def nodes(play: Play, node: Callable[[str], Machine]) -> list[Machine]:
    result = play(PLAYBOOK)
    assert result.rc == 0, result.stdout
    return [node(name) for name in NODES]


@pytest.fixture(scope="module")
def again(nodes: list[Machine], play: Play) -> Result:
    return play(PLAYBOOK, check=True, extravars={"full": True})


@pytest.fixture
def on_first(nodes: list[Machine], play: Play) -> Callable[..., Result]:
    """Run the baseline on the first node."""

    def run(*, check: bool = False, **variables: Any) -> Result:
        return play(PLAYBOOK, limit="node1", check=check, extravars=variables)

    return run


def settings(machine: Machine) -> dict[str, str]:
    shown = machine.inside("systemctl", "show", "--property=DefaultLimitNOFILE,DefaultLimitNOFILESoft")
    return dict(line.split("=") for line in shown.stdout.splitlines())


def removes_ipc(machine: Machine) -> bool:
    return machine.inside("busctl", "get-property", *LOGIN, "RemoveIPC").stdout.strip() == "b true"


def changed_tasks(result: Result) -> set[str]:
    return {entry.partition(": ")[2] for entry in result.changed}


def test_check_mode_finds_nothing_to_change(again: Result) -> None:
    assert again.rc == 0, again.stdout
    assert again.changed == []


def test_settings_that_a_container_forbids_are_reported(again: Result) -> None:
    for name in NODES:
        left_out = {each["id"]: each["why"] for each in again.results(LOOK)[name]["left_out"]}
        assert "CAP_SYS_TIME" in left_out["chrony.service"]
        assert "CAP_SYS_RESOURCE" in left_out["/etc/security/limits.d/90-muster.conf"]


def test_systemd_units_get_the_training_limits(nodes: list[Machine]) -> None:
    for machine in nodes:
        assert settings(machine) == {"DefaultLimitNOFILE": "1048576", "DefaultLimitNOFILESoft": "65536"}


def test_kernel_settings_match_the_file(nodes: list[Machine]) -> None:
    for machine in nodes:
        for line in machine.inside("grep", "^-", "/etc/sysctl.d/90-muster.conf").stdout.splitlines():
            key, value = line.removeprefix("-").split(" = ")
            live = machine.inside("cat", f"/proc/sys/{key.replace('.', '/')}").stdout.split()
            # Only the host of the sandbox may change these two settings.
            assert live == value.split() or key in ("net.core.rmem_max", "net.core.wmem_max"), key


def test_training_user_can_log_in_and_has_no_privileges(nodes: list[Machine]) -> None:
    for machine in nodes:
        assert machine.inside("getent", "passwd", "muster").stdout.strip().endswith(":/bin/bash")
        assert machine.inside("id", "-Gn", "muster").stdout.split() == ["muster"]
        assert machine.inside("su", "-l", "muster", "-c", "sudo -n true", check=False).returncode != 0


def test_unattended_upgrades_skip_the_gpu_stack_and_do_not_reboot(nodes: list[Machine]) -> None:
    for machine in nodes:
        dumped = machine.inside("apt-config", "dump").stdout
        assert 'Unattended-Upgrade::Package-Blacklist:: "libnvidia-";' in dumped
        assert 'Unattended-Upgrade::Automatic-Reboot "false";' in dumped


def test_needrestart_never_prompts_or_restarts_a_launch(nodes: list[Machine]) -> None:
    program = (
        "our %nrconf = (restart => 'i', kernelhints => 1, blacklist_rc => [qr(^mine)]);"
        "do '/etc/needrestart/conf.d/90-muster.conf'; die $@ if $@;"
        "my @hit = grep { 'muster-launch-1.service' =~ $_ } @{$nrconf{blacklist_rc}};"
        "print join(' ', $nrconf{restart}, $nrconf{kernelhints}, scalar @hit, scalar @{$nrconf{blacklist_rc}});"
    )
    for machine in nodes:
        assert machine.inside("perl", "-e", program).stdout == "l -1 1 2"


def test_unapplied_settings_are_applied_by_the_next_run(nodes: list[Machine], on_first: Callable[..., Result]) -> None:
    first = nodes[0]
    # State after a run that was killed between writing its files and applying them.
    first.inside(
        "sh",
        "-ec",
        "cd /etc/systemd; mv system.conf.d /run/system; mv logind.conf.d /run/logind;"
        "systemctl daemon-reexec; systemctl restart systemd-logind;"
        "mv /run/system system.conf.d; mv /run/logind logind.conf.d;"
        f"echo 0 >/proc/sys/net/ipv4/tcp_mtu_probing; echo >{RESERVED}",
    )
    assert removes_ipc(first)
    assert settings(first)["DefaultLimitNOFILESoft"] != "65536"

    planned = on_first(check=True)
    assert planned.rc == 0, planned.stdout
    assert "-systemd-logind.service: uses RemoveIPC=yes instead of no" in planned.stdout
    assert removes_ipc(first)

    result = on_first()
    assert result.rc == 0, result.stdout
    assert changed_tasks(result) == {"Apply kernel settings", "Reload the systemd settings", "Start units"}
    assert not removes_ipc(first)
    assert settings(first)["DefaultLimitNOFILESoft"] == "65536"
    assert first.inside("cat", "/proc/sys/net/ipv4/tcp_mtu_probing").stdout.strip() == "1"
    assert first.inside("cat", RESERVED).stdout.strip() == "29500"
    assert on_first().changed == []


@pytest.mark.moment
def test_login_session_survives_a_restart_of_logind(nodes: list[Machine], on_first: Callable[..., Result]) -> None:
    first = nodes[0]
    # Another setting that overrides ours and is removed without logind reading the change.
    first.inside("sh", "-ec", "printf '[Login]\\nRemoveIPC=yes\\n' >/etc/systemd/logind.conf.d/99-test.conf")
    first.inside("systemctl", "restart", "systemd-logind")
    first.inside("rm", "-f", "/etc/systemd/logind.conf.d/99-test.conf", "/run/go")
    with ThreadPoolExecutor() as pool:
        login = pool.submit(first.ssh, "sudo touch /run/in; until test -e /run/go; do sleep 0.2; done; echo lives")
        until(lambda: first.inside("rm", "/run/in", check=False).returncode == 0, PATIENCE, "the login is open")
        try:
            assert changed_tasks(on_first()) == {"Start units"}
        finally:
            first.inside("touch", "/run/go")
        assert login.result(timeout=10).stdout == "lives\n"
    assert not removes_ipc(first)


def test_conflicting_setting_is_reported(nodes: list[Machine], on_first: Callable[..., Result]) -> None:
    first = nodes[0]
    theirs = "/etc/systemd/logind.conf.d/99-test.conf"
    first.inside("sh", "-ec", f"printf '[Login]\\nRemoveIPC=yes\\n' >{theirs}; systemctl restart systemd-logind")
    try:
        result = on_first()
    finally:
        first.inside("rm", theirs)
    assert result.rc != 0
    message = result.results("Verify the result").get("node1", {}).get("msg", "")
    assert message.startswith("node1: systemd-logind.service uses RemoveIPC=yes instead of no.")
    assert "something else on the node stands against it" in message
    assert changed_tasks(on_first()) == {"Start units"}
    assert not removes_ipc(first)


def test_ports_reserved_by_others_stay_reserved(nodes: list[Machine], on_first: Callable[..., Result]) -> None:
    first = nodes[0]
    first.inside("sh", "-ec", f"echo 30000-30010 >{RESERVED}")
    result = on_first()
    assert changed_tasks(result) == {"Write files", "Apply kernel settings"}
    assert first.inside("cat", RESERVED).stdout.strip() == "29500,30000-30010"
    first.inside("sh", "-ec", f"echo 29500 >{RESERVED}")
    assert changed_tasks(on_first()) == {"Write files"}


def test_verify_reports_differences_and_changes_nothing(nodes: list[Machine], on_first: Callable[..., Result]) -> None:
    first = nodes[0]
    assert on_first(node_baseline_mode="verify").rc == 0
    first.inside("sh", "-ec", "echo 100 >/proc/sys/net/core/somaxconn; rm /etc/apt/apt.conf.d/52muster")
    result = on_first(node_baseline_mode="verify")
    assert result.rc != 0
    message = result.results(LOOK)["node1"]["msg"]
    assert message.startswith(
        "node1: /etc/apt/apt.conf.d/52muster is missing; net.core.somaxconn is 100 and not 16384."
    )
    assert "node_baseline_mode=manage" in message
    assert first.inside("cat", "/proc/sys/net/core/somaxconn").stdout.strip() == "100"
    assert on_first(node_baseline_mode="off").changed == []
    assert changed_tasks(on_first()) == {"Write files", "Apply kernel settings"}


@pytest.mark.moment
def test_holder_of_the_dpkg_lock_is_reported(nodes: list[Machine], on_first: Callable[..., Result]) -> None:
    argv = ["podman", "exec", "--interactive", nodes[0].container, "python3", "-c", HOLD]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        try:
            assert holder.stdout
            assert holder.stdout.readline() == "held\n"
            # Installed packages need no package tools, so nothing waits.
            assert on_first().rc == 0
            result = on_first(node_baseline_extra_packages=["hello"], node_baseline_wait=2)
        finally:
            holder.communicate()
    assert result.rc != 0
    message = result.results(LOOK)["node1"]["msg"]
    assert "which holds /var/lib/dpkg/lock-frontend is still running after 2 s" in message
    assert message.startswith("node1: python3 (pid ")


def test_uid_of_another_account_is_refused(on_first: Callable[..., Result]) -> None:
    result = on_first(cluster_user="trainer", node_baseline_user_uid="1000")
    assert result.rc != 0
    assert "the uid 1000 of trainer already belongs to admin" in result.stdout
