"""The firewall as seen from outside: open and closed ports, kept rules, and no lockout."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from typing import IO, TYPE_CHECKING

import pytest
import yaml

from firewalls import PLAYBOOK, TASK, bare, state, unmanaged
from machines import find_machine
from outside import EVERY_PORT, LISTENER, Scan, conversation, listeners, scan
from paths import BIN, ENVIRONMENT, INVENTORY, ROOT
from waiting import PATIENCE, until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from machines import Machine, Play, Result

MASTER_PORT = 29500
TRAINING = [MASTER_PORT, 32768, 40001, 50021]
SERVICE = 8080
PORTS = [22, SERVICE, *TRAINING]
DROPPED = 5555  # by the site's own rule, if it exists
FOREIGN = (
    ["allow", "from", "198.51.100.0/24", "to", "any", "port", "9100", "proto", "tcp", "comment", "site: metrics"],
    ["limit", "2222/tcp"],
    ["deny", "log", "23/tcp"],
)
# Rules of a container engine, fail2ban and the site, beside ufw.
SITE = """
set -e
iptables -t nat -N DOCKER
iptables -t nat -A PREROUTING -m addrtype --dst-type LOCAL -j DOCKER
iptables -t nat -A DOCKER ! -i docker0 -p tcp -m tcp --dport 8081 -j DNAT --to-destination 172.17.0.2:80
iptables -t nat -A POSTROUTING -s 172.17.0.0/16 ! -o docker0 -j MASQUERADE
iptables -N DOCKER-USER
iptables -I FORWARD -i docker0 ! -o docker0 -j ACCEPT
iptables -I FORWARD -j DOCKER-USER
iptables -A DOCKER-USER -s 198.51.100.66/32 -j DROP
iptables -A DOCKER-USER -j RETURN
iptables -N f2b-sshd
iptables -I INPUT -p tcp -m multiport --dports 22 -j f2b-sshd
iptables -A f2b-sshd -s 198.51.100.7/32 -j REJECT --reject-with icmp-port-unreachable
iptables -A f2b-sshd -s 198.51.100.6/32 -j REJECT --reject-with icmp-port-unreachable
iptables -A f2b-sshd -j RETURN
ip6tables -N f2b-sshd
ip6tables -I INPUT -p tcp -m multiport --dports 22 -j f2b-sshd
ip6tables -A f2b-sshd -j RETURN
nft 'add table inet site; add chain inet site in { type filter hook input priority -5; }'
nft 'add rule inet site in tcp dport 5555 drop'
"""
NO_SITE = """
nft delete table inet site
iptables -t nat -F
iptables -t nat -X DOCKER
iptables -D FORWARD -j DOCKER-USER
iptables -D FORWARD -i docker0 ! -o docker0 -j ACCEPT
iptables -D INPUT -p tcp -m multiport --dports 22 -j f2b-sshd
ip6tables -D INPUT -p tcp -m multiport --dports 22 -j f2b-sshd
for chain in f2b-sshd DOCKER-USER; do iptables -F $chain; iptables -X $chain; done
ip6tables -F f2b-sshd
ip6tables -X f2b-sshd
"""
# A rule that cannot be evaluated in advance and blocks SSH.
TRAP = "-A ufw-before-input -p tcp --dport 22 -m conntrack --ctstate NEW -m length --length 0:65535 -j DROP"
# An open connection continues after a redirection, and hangs for a while after a power cut.
FRESH = {"ansible_ssh_args": "-o ControlMaster=no -o ControlPath=none"}
GUARD = "/var/lib/muster/guard/firewall/state.json"
SECONDS = 30
LONG = 600  # not waited for
BOOT = 90  # one second on an idle machine


@pytest.fixture(scope="module")
def outsider(play: Play) -> Machine:
    return find_machine("outsider")


@pytest.fixture(scope="module")
def nodes(play: Play) -> Iterator[list[Machine]]:
    """Yield two nodes without rules of Muster. The first has its own rules."""
    with unmanaged(play, FRESH) as machines:
        for rule in FOREIGN:
            machines[0].inside("ufw", *rule)
        yield machines


@pytest.fixture
def serving(nodes: list[Machine]) -> Iterator[list[Machine]]:
    """Yield the two nodes with a listener on every port."""
    with listeners(nodes[0], [DROPPED, *PORTS[1:]]), listeners(nodes[1], [DROPPED, *PORTS[1:]]):
        yield nodes


def of_others(machine: Machine) -> list[str]:
    """Return the iptables rules not written by ufw, in order with their chains, and the site's nftables table."""
    saved = machine.inside("sh", "-c", "iptables-save; ip6tables-save; nft --stateless list table inet site").stdout
    builtin = (":INPUT", ":FORWARD", ":OUTPUT", ":PREROUTING", ":POSTROUTING")  # have policies of ufw, and counters
    return [line for line in saved.splitlines() if "ufw" not in line and not line.startswith(("#", *builtin))]


def message_of(result: Result, name: str) -> str:
    return str(result.results(TASK)[name].get("msg", ""))


def answers(outsider: Machine, machine: Machine) -> bool:
    return scan(outsider, machine.address, 22).open == [22]


def rules(machine: Machine) -> list[str]:
    return [line.strip() for line in machine.inside("ufw", "show", "added").stdout.splitlines()[1:]]


def test_check_mode_reports_everything_and_changes_nothing(play: Play, serving: list[Machine]) -> None:
    before = [state(machine) for machine in serving]
    result = play(PLAYBOOK, check=True, extravars={"firewall_cut": []})
    assert result.rc == 0, result.stdout
    assert [state(machine) for machine in serving] == before
    diff = result.results(TASK)["node1"]["diff"]
    assert diff["before"].startswith("ufw: inactive\n")
    assert f"allow every port from {serving[1].address} on eth0  # muster: peer node2" in diff["after"]
    assert f"would block a service for other hosts: python3 in {LISTENER}.service, port" in message_of(result, "node1")
    assert f"add {{port: {DROPPED}, comment: python3}}, {{port: {SERVICE}, comment: pyth" in message_of(result, "node1")


def test_peers_are_allowed_and_others_are_blocked(play: Play, serving: list[Machine], outsider: Machine) -> None:
    first, second = serving
    assert scan(outsider, first.address, *PORTS).open == sorted(PORTS), "the ports must be open before the run"
    foreign = rules(first)
    result = play(PLAYBOOK)
    assert result.rc == 0, result.stdout
    with ThreadPoolExecutor() as pool:
        every = pool.submit(scan, outsider, first.address, EVERY_PORT)
        for machine, peer in ((first, second), (second, first)):
            assert scan(outsider, machine.address, *PORTS).open == [22]
            assert scan(peer, machine.address, *PORTS).open == sorted(PORTS)
        # The port that the site's own rule opens has no listener. All other ports drop packets.
        assert every.result() == Scan([22], refused=1)
    # ufw shows existing rules unchanged, followed by Muster's.
    assert rules(first)[: len(foreign)] == foreign
    assert "ufw allow in on eth0 from " + second.address + " comment 'muster: peer node2'" in rules(first)
    assert play(PLAYBOOK).changed == []


def test_rules_of_others_are_kept(play: Play, nodes: list[Machine], outsider: Machine) -> None:
    """Rules of others and open connections are kept when ufw is enabled and when Muster changes rules later."""
    machine, peer = nodes
    machine.inside("ufw", "--force", "disable")
    machine.inside("sh", "-c", SITE)
    before = of_others(machine)
    assert sum(line.startswith("-A") for line in before) == SITE.count(" -A ") + SITE.count(" -I ")
    assert DROPPED not in scan(peer, machine.address, DROPPED).open
    try:
        with conversation(peer, machine, MASTER_PORT) as say:
            assert say("before") == "before"
            shown = play(PLAYBOOK, limit=machine.name, check=True, extravars=FRESH)
            done = play(PLAYBOOK, limit=machine.name, extravars=FRESH)
            assert done.rc == 0, done.stdout
            assert of_others(machine) == before
            assert say("ufw is on") == "ufw is on"
            # The change matches the report of check mode.
            assert shown.results(TASK)[machine.name]["diff"] == done.results(TASK)[machine.name]["diff"]
            assert shown.changed == done.changed == [f"{machine.name}: {TASK}"]
            more = {**FRESH, "firewall_allow": [{"port": 9400, "from": ["198.51.100.0/24"]}]}
            assert play(PLAYBOOK, limit=machine.name, extravars=more).changed == done.changed
            assert of_others(machine) == before
            assert say("the new rule is active") == "the new rule is active"
            assert scan(outsider, machine.address, *PORTS).open == [22]
    finally:
        machine.inside("sh", "-c", NO_SITE)
    assert play(PLAYBOOK).rc == 0


def test_ufw_preserves_the_rules_of_muster(play: Play, serving: list[Machine]) -> None:
    """ufw keeps Muster's rules when it rewrites them. The next run restores a rule deleted with ufw."""
    first, second = serving
    before = first.inside("cat", "/etc/ufw/user.rules").stdout
    first.inside("ufw", "allow", "9999/udp")
    first.inside("ufw", "delete", "allow", "9999/udp")
    assert first.inside("cat", "/etc/ufw/user.rules").stdout == before
    first.inside("ufw", "delete", "allow", "in", "on", "eth0", "from", second.address)
    assert MASTER_PORT not in scan(second, first.address, MASTER_PORT).open
    assert play(PLAYBOOK).changed == [f"node1: {TASK}"]
    assert scan(second, first.address, MASTER_PORT).open == [MASTER_PORT]


# Commands on the first and on the second node.
BROKEN = (
    ("iptables -F ufw-user-input", "iptables -D ufw-before-input -j ufw-user-input"),
    ("ufw --force disable", "iptables -P INPUT ACCEPT; iptables -F INPUT"),
    ("ufw default allow incoming", "ip6tables -D ufw6-user-input 1; systemctl disable ufw.service"),
)
BROKEN_FURTHER = (
    (
        "iptables -P INPUT ACCEPT; sed -i s/ENABLED=yes/ENABLED=no/ /etc/ufw/ufw.conf",
        "iptables -D INPUT -j ufw-before-input; iptables -P INPUT ACCEPT",
    ),
    (
        "iptables -P INPUT ACCEPT; iptables -F; sed -i s/ENABLED=yes/ENABLED=no/ /etc/ufw/ufw.conf",
        "ip6tables -F; ip6tables -P INPUT ACCEPT",
    ),
)


@pytest.fixture(scope="module")
def correct_state(play: Play, nodes: list[Machine]) -> list[str]:
    """Return the rules that ufw generates from the correct files, for each node."""
    assert play(PLAYBOOK).rc == 0
    for machine in nodes:
        machine.inside("ufw", "reload")
    return [state(machine) for machine in nodes]


@pytest.mark.parametrize(
    "broken",
    [*BROKEN, *(pytest.param(pair, marks=pytest.mark.slow) for pair in BROKEN_FURTHER)],
    ids=" and ".join,
)
def test_inactive_rules_are_repaired(
    play: Play, serving: list[Machine], correct_state: list[str], outsider: Machine, broken: tuple[str, str]
) -> None:
    for machine, command, known in zip(serving, broken, correct_state, strict=True):
        machine.inside("sh", "-c", command)
        assert state(machine) != known, "the command changed nothing"
    # Uses the open connection, because some of these commands block new SSH connections.
    assert sorted(play(PLAYBOOK).changed) == [f"node1: {TASK}", f"node2: {TASK}"]
    for machine, known in zip(serving, correct_state, strict=True):
        assert state(machine) == known
        assert scan(outsider, machine.address, *PORTS).open == [22]
        assert "Status: active" in machine.inside("ufw", "status").stdout
        assert machine.inside("systemctl", "is-enabled", "ufw").stdout == "enabled\n"


def test_tight_mode_allows_only_the_required_ports(play: Play, serving: list[Machine], outsider: Machine) -> None:
    first, second = serving
    allow = [{"port": SERVICE, "from": [f"{outsider.address}/32"], "comment": "dashboard"}]
    result = play(PLAYBOOK, extravars={"firewall_tight": True, "firewall_allow": allow})
    assert result.rc == 0, result.stdout
    with ThreadPoolExecutor() as pool:
        every = pool.submit(scan, second, first.address, EVERY_PORT)
        assert scan(second, first.address, *PORTS).open == [22, MASTER_PORT, 32768, 40001]
        assert scan(outsider, first.address, *PORTS).open == [22, SERVICE]
        seen = every.result()
    let_in = {22, 2222, *range(29400, 29600), *range(32768, 40960)}
    assert set(seen.open) <= let_in
    assert len(seen.open) + seen.refused == len(let_in), "all of these ports and no others"
    assert first.inside("cat", "/proc/sys/net/ipv4/ip_local_port_range").stdout.split() == ["32768", "40959"]
    assert play(PLAYBOOK, extravars={"firewall_tight": True, "firewall_allow": allow}).changed == []
    assert play(PLAYBOOK).rc == 0
    assert first.inside("cat", "/proc/sys/net/ipv4/ip_local_port_range").stdout.split() == ["32768", "60999"]
    assert first.inside("ls", "/etc/sysctl.d/60-muster-firewall.conf", check=False).returncode != 0
    assert scan(second, first.address, *PORTS).open == sorted(PORTS)
    assert scan(outsider, first.address, *PORTS).open == [22]


def test_existing_rule_that_blocks_a_launch_is_reported(play: Play, nodes: list[Machine]) -> None:
    nodes[0].inside("ufw", "insert", "1", "deny", f"{MASTER_PORT}/tcp")
    nodes[1].inside("nft", "add table inet site; add chain inet site in { type filter hook input priority -5; };")
    nodes[1].inside("nft", "add rule inet site in tcp dport 32768-60999 reject")
    before = [state(machine) for machine in nodes]
    try:
        for mode in ("verify", "manage"):
            result = play(PLAYBOOK, extravars={"firewall_mode": mode})
            assert result.rc != 0
            assert [state(machine) for machine in nodes] == before
            assert f"ufw rule [1], deny {MASTER_PORT}/tcp from anywhere" in message_of(result, "node1")
            assert "ufw delete 1" in message_of(result, "node1")
            assert "tcp dport 32768-60999 reject (nft inet site, chain in, handle " in message_of(result, "node2")
            assert "nft insert rule inet site in iifname eth0 ip saddr" in message_of(result, "node2")
            assert result.changed == []
    finally:
        nodes[0].inside("ufw", "delete", "1", check=False)
        nodes[0].inside("ufw", "delete", "deny", f"{MASTER_PORT}/tcp", check=False)
        nodes[1].inside("nft", "delete", "table", "inet", "site")
    assert play(PLAYBOOK, extravars={"firewall_mode": "verify"}).rc == 0


def test_ports_published_by_a_container_engine_are_reported(play: Play, nodes: list[Machine]) -> None:
    rule = "DOCKER ! -i docker0 -p tcp --dport 8081 -j DNAT --to-destination 172.17.0.2:80"
    nodes[0].inside("iptables", "-t", "nat", "-N", "DOCKER")
    nodes[0].inside("sh", "-c", f"iptables -t nat -A {rule}")
    try:
        said = "port 8081/tcp is published by iptables -t nat, chain DOCKER and bypasses the firewall"
        role = play(PLAYBOOK, limit="node1")
        assert said in message_of(role, "node1")
        assert role.changed == []
        # The role skips this in a second run, but the finding is still reported.
        step = play("playbooks/network.yml", limit="node1")
        (look,) = step.results("Find the roles that have to run").values()
        assert look["needed"]["firewall"] == []
        assert said in " ".join(look["warnings"])
    finally:
        nodes[0].inside("iptables", "-t", "nat", "-F", "DOCKER")
        nodes[0].inside("iptables", "-t", "nat", "-X", "DOCKER")


def test_all_ssh_ports_of_the_node_stay_open(play: Play, nodes: list[Machine], outsider: Machine) -> None:
    """The port of the inventory can be redirected, and sshd can listen on other ports. All these ports stay open."""
    machine = nodes[1]
    bare(machine)
    same_key = f"{FRESH['ansible_ssh_args']} -o HostKeyAlias={machine.address}"
    moved = {"ansible_port": 2222, "ansible_ssh_args": same_key}
    options = ["-D", "-o", "PidFile=none", "-p", "2222", "-p", "2200"]
    machine.inside("systemd-run", "--quiet", "--unit=test-sshd", "/usr/sbin/sshd", *options)
    lead = ["PREROUTING", "-p", "tcp", "--dport", "22", "-j", "REDIRECT", "--to-ports", "2222"]
    machine.inside("iptables", "-t", "nat", "-A", *lead)
    try:
        # The inventory says 22, which is redirected to 2222.
        assert play(PLAYBOOK, limit=machine.name, extravars=FRESH).rc == 0
        assert scan(outsider, machine.address, 22, 2200, 2222).open == [22, 2200, 2222]
        machine.inside("iptables", "-t", "nat", "-D", *lead)
        # The inventory says 2222, and sshd does not use 22.
        machine.inside("sh", "-c", "systemctl stop ssh; mkdir --parents --mode=0755 /run/sshd")
        bare(machine)
        with listeners(machine, [22]):
            assert play(PLAYBOOK, limit=machine.name, extravars=moved).rc == 0
            assert scan(outsider, machine.address, 22, 2200, 2222).open == [2200, 2222]
    finally:
        machine.inside("iptables", "-t", "nat", "-D", *lead, check=False)
        machine.inside("systemctl", "start", "ssh")
        moved_back = play(PLAYBOOK, limit=machine.name, extravars=moved)
        machine.inside("systemctl", "stop", "test-sshd")
    assert moved_back.rc == 0
    assert play(PLAYBOOK, limit=machine.name, extravars=FRESH).rc == 0
    assert "22/tcp" in " ".join(rules(machine))
    assert "2200" not in " ".join(rules(machine))


def test_node_without_ufw_gets_an_nftables_table(play: Play, serving: list[Machine], outsider: Machine) -> None:
    """The nftables rules of the site are kept. Reloading them also restores the rules of Muster."""
    machine = serving[1]
    bare(machine)
    machine.inside("sh", "-c", "DEBIAN_FRONTEND=noninteractive apt-get -q -y purge ufw")
    hook = "type filter hook input priority -5"
    site = f"flush ruleset; table inet site {{ chain in {{ {hook}; tcp dport {DROPPED} drop; }}; }}"
    machine.inside("cp", "/etc/nftables.conf", "/etc/nftables.conf.site")
    machine.inside("sh", "-c", f"echo '{site}' >/etc/nftables.conf")
    machine.inside("systemctl", "enable", "--now", "nftables")
    machine.inside("sh", "-c", SITE)
    before = of_others(machine)
    try:
        result = play(PLAYBOOK, limit=machine.name)
        assert result.rc == 0, result.stdout
        assert result.results(TASK)[machine.name]["backend"] == "nftables"
        assert of_others(machine) == before
        assert scan(outsider, machine.address, DROPPED, *PORTS).open == [22]
        assert scan(serving[0], machine.address, DROPPED, *PORTS).open == sorted(PORTS)
        assert play(PLAYBOOK, limit=machine.name).changed == []
        machine.inside("systemctl", "restart", "nftables")
        until(lambda: "muster" in machine.inside("nft", "list", "tables").stdout, PATIENCE, "the table is back")
        machine.inside("nft", "insert", "rule", "inet", "muster", "input", "tcp", "dport", str(SERVICE), "accept")
        assert scan(outsider, machine.address, *PORTS).open == [22, SERVICE]
        assert play(PLAYBOOK, limit=machine.name).changed == [f"{machine.name}: {TASK}"]
        assert scan(outsider, machine.address, DROPPED, *PORTS).open == [22]
    finally:
        machine.inside("sh", "-c", "systemctl disable --now nftables; mv /etc/nftables.conf.site /etc/nftables.conf")
    # After ufw is installed, it takes over, and Muster's table is removed.
    result = play(PLAYBOOK, limit=machine.name, extravars={"firewall_backend": "ufw"})
    assert result.rc == 0, result.stdout
    assert "muster" not in machine.inside("nft", "list", "tables").stdout
    assert machine.inside("sh", "-c", "ls /etc/muster/firewall.nft", check=False).returncode != 0
    assert play(PLAYBOOK, limit=machine.name).changed == []


@pytest.mark.moment
def test_additional_peers_add_no_tasks_or_round_trips(play: Play, nodes: list[Machine], tmp_path: Path) -> None:
    machine = nodes[0]
    costs = []
    for count in (4, 200):
        names = {f"peer{number}": {"ansible_host": f"198.18.{number // 200}.{number % 200}"} for number in range(count)}
        more = tmp_path / f"{count}.yml"
        more.write_text(yaml.safe_dump({"gpu_nodes": {"hosts": names}}))
        began = machine.inside("date", "+%s.%N").stdout.strip()
        result = play(PLAYBOOK, limit=machine.name, cmdline=f"-i {more} --forks 250")
        assert result.rc == 0, result.stdout
        assert sum("peer" in line for line in rules(machine)) == count + 2, "the sandbox nodes are peers, too"
        # Each task on the node runs one sudo command, which the node logs.
        machine.inside("journalctl", "--sync")
        journal = machine.inside("journalctl", "--quiet", f"--since=@{began}", "--identifier=sudo", "--output=cat")
        commands = [line for line in journal.stdout.splitlines() if "COMMAND=" in line]
        tasks = [event for event in result.events if event["event"] == "playbook_on_task_start"]
        costs.append((len(tasks), len(commands)))
    assert costs[0] == costs[1]
    assert costs[0][1] > 0
    assert play(PLAYBOOK, limit=machine.name).rc == 0


# ---------------------------------------------------------------- no lockout


def trapped(machine: Machine) -> None:
    """Disable ufw and add a rule that blocks SSH as soon as ufw is enabled."""
    bare(machine)
    machine.inside("sed", "-i", f"s/^# End required lines/&\\n{TRAP}/", "/etc/ufw/before.rules")


def trapped_while_on(machine: Machine) -> None:
    """Enable ufw with rules of the site and an open default. At the next complete reload, another rule blocks SSH."""
    bare(machine)
    for rule in FOREIGN:
        machine.inside("ufw", *rule)
    machine.inside("ufw", "default", "allow", "incoming")
    machine.inside("ufw", "--force", "enable")
    machine.inside("sed", "-i", f"s/^# End required lines/&\\n{TRAP}/", "/etc/ufw/before.rules")


def begin(name: str, seconds: int, output: IO[bytes]) -> subprocess.Popen[bytes]:
    argv = [str(BIN / "ansible-playbook"), PLAYBOOK, "-i", str(INVENTORY), "--limit", name]
    argv += ["-e", json.dumps({**FRESH, "firewall_confirm_seconds": seconds})]
    environment = {**os.environ, **ENVIRONMENT}
    return subprocess.Popen(
        argv, cwd=ROOT, env=environment, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
    )


def kill_while_cut_off(machine: Machine, outsider: Machine, seconds: int) -> None:
    """Kill the controller of a run while the node is unreachable. The node reverts the change after `seconds`."""
    with tempfile.TemporaryFile() as output, begin(machine.name, seconds, output) as run:
        try:
            goal = f"{machine.name} is unreachable"
            until(lambda: run.poll() is not None or not answers(outsider, machine), PATIENCE, goal)
            assert run.poll() is None, os.pread(output.fileno(), 100_000, 0).decode()
            assert machine.inside("ls", GUARD, check=False).returncode == 0
        finally:
            os.killpg(run.pid, signal.SIGKILL)


def power_cut(machine: Machine) -> None:
    """Restart the container from outside. A reboot from inside would keep its network and active rules."""
    machine.podman("restart", "--time=0")


def is_as_before(machine: Machine) -> bool:
    return (
        machine.inside("ls", GUARD, check=False).returncode != 0
        and "Status: inactive" in machine.inside("ufw", "status").stdout
        and "muster" not in machine.inside("cat", "/etc/ufw/user.rules").stdout
        and machine.inside("sh", "-c", "ls /etc/systemd/system/muster-firewall-undo*", check=False).returncode != 0
    )


def abandoned(machine: Machine, outsider: Machine) -> None:
    """Kill the controller while the node is unreachable. A restart and the timeout both make the node reachable."""
    kill_while_cut_off(machine, outsider, LONG)
    power_cut(machine)
    until(lambda: answers(outsider, machine), BOOT, f"{machine.name} answers again after a restart")
    until(lambda: is_as_before(machine), PATIENCE, f"{machine.name} is as before")
    kill_while_cut_off(machine, outsider, SECONDS)
    until(lambda: answers(outsider, machine), SECONDS + 5, f"{machine.name} answers again by itself")
    until(lambda: is_as_before(machine), PATIENCE, f"{machine.name} is as before")


@pytest.mark.moment
def test_node_reverts_a_change_that_cuts_ssh(play: Play, nodes: list[Machine], outsider: Machine) -> None:
    live, orphan = nodes
    trapped(orphan)
    trapped_while_on(live)
    before = state(live)
    with ThreadPoolExecutor() as pool:
        left_alone = pool.submit(abandoned, orphan, outsider)
        failing = pool.submit(play, PLAYBOOK, limit=live.name, extravars={"firewall_confirm_seconds": SECONDS})
        until(lambda: failing.done() or not answers(outsider, live), PATIENCE, f"{live.name} is unreachable")
        assert not failing.done(), failing.result().stdout
        result = failing.result()
        left_alone.result()
    assert result.rc != 0
    said = message_of(result, live.name)
    assert "the change of the firewall was undone, because a new connection failed" in said, result.stdout
    assert "The node was restored and is reachable" in said
    assert answers(outsider, live)
    assert state(live) == before
    assert live.inside("ls", GUARD, check=False).returncode != 0
    for machine in nodes:
        bare(machine)
    live.inside("ufw", "default", "deny", "incoming")
    again = play(PLAYBOOK, extravars=FRESH)
    assert again.rc == 0, again.stdout
    assert play(PLAYBOOK, extravars=FRESH).changed == []
    assert all(answers(outsider, machine) for machine in nodes)
    power_cut(orphan)
    until(lambda: answers(outsider, orphan), BOOT, f"{orphan.name} answers again after a restart")
    assert "Status: active" in orphan.inside("ufw", "status").stdout
    assert play(PLAYBOOK, extravars=FRESH).changed == []
