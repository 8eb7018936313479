"""What a node's firewall means for a launch, for ssh and for strangers: packets walked through all of its rules.

The same questions are asked of what is in force now and of what a plan would make of it.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..verdict.check import Check
from ..verdict.commands import playbook, shell
from ..verdict.finding import evidence
from . import table as firewall_table
from .look import openings, training_interface
from .netfilter import Chain, Rule, Tables, parse_save, walk_tables
from .published import PUBLISHED, published
from .walk import Packet, PacketOutcome

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..network.listeners import ListeningSocket
    from ..verdict.finding import Finding
    from .look import FirewallState, Ufw
    from .model import FirewallRequest, Opening
    from .plan import FirewallPlan

MANAGE = playbook("playbooks/network.yml", firewall_mode="manage")

LAUNCH_BLOCKED = Check(
    "firewall.launch.blocked",
    seen="recording",
    reads="the rules in force, for the packets of a launch from every peer",
    fires="a peer cannot reach a port of a launch (fail), or whether it can depends on what cannot be read (unknown)",
    fix="Change that rule, or let the role firewall write its own",
)
LAUNCH_OPEN = Check(
    "firewall.launch.open",
    seen="recording",
    reads="the rules in force, for packets from a stranger",
    fires="everybody reaches a port of a launch (fail)",
    fix="Remove the rule that is named",
)
SSH_BLOCKED = Check(
    "firewall.ssh.blocked",
    seen="recording",
    reads="the rules in force, for the way that Ansible came in",
    fires="ssh is not let in (fail), or that cannot be known (unknown)",
    fix="Change the rule that is named",
)
SERVICE_OPEN = Check(
    "firewall.service.open",
    seen="recording",
    reads="the rules in force, and what listens",
    fires="everybody reaches a service that firewall_allow does not list (fail)",
    fix="List it there, or remove the rule",
)
SERVICE_CUT_OFF = Check(
    "firewall.service.cut_off",
    seen="recording",
    reads="what listens, and the rules that are about to be written",
    fires="a service that strangers reach is about to be cut off (warn)",
    fix="Add the entry that is named to firewall_allow",
)
BOOT = Check(
    "firewall.boot",
    seen="recording",
    reads="the units and the files of the firewall",
    fires="what is in force is not so after a restart, or a change waits for its confirmation (fail)",
    fix=f"Run {playbook('playbooks/network.yml')} again",
)
UNREADABLE = Check(
    "firewall.unknown",
    seen="stand-in",
    reads="the rules in force",
    fires="not all of them could be read (unknown)",
    fix="Read what is said of them",
)

# Addresses for documentation: nobody's, so no rule is about them.
STRANGER = {4: "203.0.113.77", 6: "2001:db8::77"}
MOST_NAMED = 4


@dataclass(frozen=True)
class Scene:
    """The rules of a node, as they are or as a plan would make them."""

    look: FirewallState
    tables: dict[int, Tables]
    # What our own table of nftables lets in, where it is not among the rules that were seen.
    table: tuple[Opening, ...] | None = None
    own_table_seen: bool = True

    def outcome(self, packet: Packet) -> PacketOutcome:
        """What becomes of the packet: the first thing that stops it, else the first doubt."""
        version = packet.version
        tables = self.tables[version]
        origin = "ip6tables" if version == 6 else "iptables"
        without = {("ip6" if version == 6 else "ip", name) for name in tables}
        if not self.own_table_seen:
            without.add(("inet", firewall_table.TABLE))
        outcomes = [walk_tables(tables, packet, origin), self.look.ruleset.outcome(packet, without)]
        if self.table is not None and not any(_lets_in(opening, packet) for opening in self.table):
            outcomes.append(PacketOutcome("drop", f"nft inet {firewall_table.TABLE}, chain input", "policy drop"))
        for verdicts in (("drop", "reject", "redirect"), ("unknown",)):
            for outcome in outcomes:
                if outcome.verdict in verdicts:
                    return outcome
        said = [outcome for outcome in outcomes if outcome.rule != "no rule"]
        return said[0] if said else outcomes[0]


def scene_now(look: FirewallState) -> Scene:
    return Scene(look, dict(look.tables))


def scene_planned(request: FirewallRequest, look: FirewallState, plan: FirewallPlan) -> Scene:
    if request.leaves and not look.ufw_runs:
        return Scene(look, dict(look.tables), own_table_seen=False)
    # Of a ufw that is not installed yet, nothing is known of its files.
    if plan.backend == "nftables" or look.ufw is None:
        return Scene(look, dict(look.tables), tuple(openings(request, look)), own_table_seen=False)
    tables = {version: _with_ufw(look, look.ufw, plan, version) for version in (4, 6)}
    return Scene(look, tables, own_table_seen=False)


def _with_ufw(look: FirewallState, ufw: Ufw, plan: FirewallPlan, version: int) -> Tables:
    """The tables with ufw in force and the planned rules in it."""
    tables = {name: dict(chains) for name, chains in look.tables[version].items()}
    if version == 6 and not ufw.ipv6:
        return tables
    prefix, suffix = ("ufw6", "6") if version == 6 else ("ufw", "")
    chains = tables.setdefault("filter", {})
    if not look.ufw_runs:
        for name in (f"before{suffix}.rules", f"after{suffix}.rules"):
            for chain, content in parse_save(ufw.files[name]).get("filter", {}).items():
                chains[chain] = content
        base = chains.get("INPUT", Chain())
        links = [f"{prefix}-before-input", f"{prefix}-after-input"]
        foreign = [rule for rule in base.rules if not rule.target.startswith(f"{prefix}-")]
        chains["INPUT"] = Chain("-", foreign + [Rule(text=f"-A INPUT -j {link}", target=link) for link in links])
        before = chains[links[0]]
        user = Rule(text=f"-A {links[0]} -j {prefix}-user-input", target=f"{prefix}-user-input")
        chains[links[0]] = Chain(before.policy, [*before.rules, user])
    chains["INPUT"] = Chain("DROP", chains["INPUT"].rules)
    chains.update(plan.tables[version].get("filter", {}))
    return tables


def _lets_in(opening: Opening, packet: Packet) -> bool:
    if opening.source:
        network = ipaddress.ip_network(opening.source)
        if network.version != packet.version or ipaddress.ip_address(packet.source) not in network:
            return False
    if opening.interface and opening.interface != packet.interface:
        return False
    if opening.protos and packet.proto not in opening.protos:
        return False
    return not opening.ports or any(low <= packet.port <= high for low, high in opening.ports)


# ---------------------------------------------------------------- the questions


def judge(request: FirewallRequest, look: FirewallState, scene: Scene) -> list[Finding]:
    """Everything that is to be said of one scene."""
    return [
        *judge_launch(request, look, scene),
        *judge_ssh(request, look, scene),
        *judge_exposure(request, look, scene),
        *judge_published(request, look),
        *[UNREADABLE.unknown(request.node, f"not all rules could be read: {said}", "") for said in look.warnings],
    ]


def launch_ports(request: FirewallRequest, look: FirewallState) -> list[int]:
    """The port of the rendezvous, and three of those that Gloo and NCCL get from Linux."""
    low, high = request.ephemeral if request.tight else look.port_range
    return [request.master_port, low, (low + high) // 2, high]


def judge_launch(request: FirewallRequest, look: FirewallState, scene: Scene) -> list[Finding]:
    """Whether every peer reaches the ports of a launch."""
    interface = training_interface(request, look)
    stopped: dict[PacketOutcome, tuple[list[str], set[int]]] = {}
    for name, address in request.peers.items():
        for port in launch_ports(request, look):
            outcome = scene.outcome(Packet("tcp", address, port, interface))
            if not outcome.lets_in:
                names, ports = stopped.setdefault(outcome, ([], set()))
                names.append(name)
                ports.add(port)
    findings = []
    for outcome, (names, ports) in stopped.items():
        who = _named(list(dict.fromkeys(names)))
        said = f"{who} cannot reach port {_numbers(ports)} here: {_stopper(look, outcome)}"
        if outcome.verdict == "unknown":
            said = f"whether {who} can reach port {_numbers(ports)} here depends on {_stopper(look, outcome)}"
        elif outcome.verdict == "redirect":
            said = f"what {who} sends to port {_numbers(ports)} here is led elsewhere: {_stopper(look, outcome)}"
        peers = sorted({request.peers[name] for name in names})
        findings.append(
            (LAUNCH_BLOCKED.unknown if outcome.verdict == "unknown" else LAUNCH_BLOCKED.fail)(
                request.node,
                said,
                *_fix(look, outcome, f"iifname {interface} {_family(peers[0])} saddr {{ {', '.join(peers[:8])} }}"),
                expected="every peer reaches every port of a launch",
                evidence=evidence(outcome.place, outcome.rule),
            )
        )
    return findings or [LAUNCH_BLOCKED.passed(request.node, "every peer reaches the ports of a launch")]


def judge_ssh(request: FirewallRequest, look: FirewallState, scene: Scene) -> list[Finding]:
    """Whether the way on which this run came in stays open."""
    version = 6 if ":" in look.ssh_address else 4
    source = look.ssh_client or STRANGER[version]
    interface = look.interfaces.get(look.ssh_address) or training_interface(request, look)
    findings = []
    for port in look.ssh_ports[:1] if not look.ssh_server_port else (look.ssh_server_port,):
        outcome = scene.outcome(Packet("tcp", source, port, interface))
        if outcome.lets_in:
            findings.append(SSH_BLOCKED.passed(request.node, f"ssh reaches port {port}"))
            continue
        where = f"port {port} here from {source}"
        if outcome.verdict == "unknown":
            make, said = SSH_BLOCKED.unknown, f"whether ssh can reach {where} depends on {_stopper(look, outcome)}"
        else:
            make, said = SSH_BLOCKED.fail, f"ssh cannot reach {where}: {_stopper(look, outcome)}"
        proof = evidence(outcome.place, outcome.rule)
        findings.append(make(request.node, said, *_fix(look, outcome, f"tcp dport {port}"), evidence=proof))
    return findings


def judge_exposure(request: FirewallRequest, look: FirewallState, scene: Scene) -> list[Finding]:
    """What strangers reach that nobody allowed."""
    wanted = openings(request, look)
    findings = []
    family = 6 if ":" in request.address else 4
    interface = training_interface(request, look)
    packets = [Packet("tcp", STRANGER[family], port, interface) for port in launch_ports(request, look)]
    open_by = {
        scene.outcome(packet): packet
        for packet in packets
        if scene.outcome(packet).lets_in and not any(_lets_in(opening, packet) for opening in wanted)
    }
    for outcome, packet in open_by.items():
        findings.append(
            LAUNCH_OPEN.fail(
                request.node,
                f"everybody reaches port {packet.port} of a launch: {_opener(look, outcome)}",
                *_close(look, outcome),
                expected="only peers reach the ports of a launch",
                evidence=evidence(outcome.place, outcome.rule),
            )
        )
    for listener, outcome in reachable(look, scene):
        packet = packet_to(look, listener)
        if any(_lets_in(opening, packet) for opening in wanted):
            continue
        findings.append(
            SERVICE_OPEN.fail(
                request.node,
                f"everybody reaches {_service(listener)}: {_opener(look, outcome)}",
                f"If that is meant, add {_entry(listener)} to firewall_allow; otherwise remove the rule",
                evidence=evidence(outcome.place, outcome.rule),
            )
        )
    return findings or [LAUNCH_OPEN.passed(request.node, "strangers reach ssh and what is allowed, and nothing else")]


def judge_boot(request: FirewallRequest, look: FirewallState) -> list[Finding]:
    """Whether what is in force now is so after a restart."""
    if look.guarded:
        return [BOOT.fail(request.node, "a change of the firewall waits for its confirmation, or was interrupted")]
    if look.ufw is not None and look.ufw_runs and not (look.ufw.enabled and look.ufw.at_boot and not look.ufw.masked):
        summary, command = (
            "ufw is active, but not after a restart",
            "systemctl unmask ufw && systemctl enable ufw && ufw enable",
        )
    elif look.own_live is not None and not look.own_at_boot:
        summary = "the table inet muster is in force, but not after a restart"
        command = shell("systemctl enable {unit_name}", unit_name=firewall_table.UNIT_NAME)
    else:
        return []
    return [BOOT.fail(request.node, summary, "Type on the node", command)]


def judge_cut_off(request: FirewallRequest, look: FirewallState, planned: Scene) -> list[Finding]:
    """Services that strangers reach now, and would not any more."""
    now = scene_now(look)
    stays = {listener for listener, _ in reachable(look, planned)}
    return [
        SERVICE_CUT_OFF.warn(
            request.node,
            f"{_service(listener)} is no longer reached from outside the cluster",
            f"To keep it open, add {_entry(listener)} to firewall_allow",
        )
        for listener, _ in reachable(look, now)
        if listener not in stays
    ]


def judge_published(request: FirewallRequest, look: FirewallState) -> list[Finding]:
    """Ports that a container engine leads past the firewall, and that nobody allowed."""
    findings = []
    for proto, (low, high), place in published(look.tables, look.listeners):
        packet = Packet(proto, STRANGER[4], low, training_interface(request, look))
        if any(_lets_in(opening, packet) for opening in openings(request, look)):
            continue
        span = str(low) if low == high else f"{low}-{high}"
        findings.append(
            PUBLISHED.warn(
                request.node,
                f"port {span}/{proto} is published past the firewall by {place}: everybody reaches it",
                f"Publish it on one address only (such as -p 127.0.0.1:{low}:...), or close it with",
                f"iptables -I DOCKER-USER -p {proto} -m conntrack --ctorigdstport {low} --ctdir ORIGINAL -j DROP",
            )
        )
    return findings


# ---------------------------------------------------------------- services


def reachable(look: FirewallState, scene: Scene) -> list[tuple[ListeningSocket, PacketOutcome]]:
    """The listening services that strangers certainly reach, each port once."""
    found: dict[tuple[str, int], tuple[ListeningSocket, PacketOutcome]] = {}
    for listener in look.listeners:
        address = ipaddress.ip_address(listener.address) if listener.address != "*" else None
        if listener.local_only or (address is not None and address.is_link_local) or listener.process == "docker-proxy":
            continue
        if listener.proto == "udp" and listener.port >= look.port_range[0]:
            continue  # a client's own socket, which only waits for answers
        outcome = scene.outcome(packet_to(look, listener))
        if outcome.lets_in and (listener.proto, listener.port) not in found:
            found[listener.proto, listener.port] = (listener, outcome)
    return list(found.values())


def packet_to(look: FirewallState, listener: ListeningSocket) -> Packet:
    version = 6 if ":" in listener.address and listener.address != "::" else 4
    interface = listener.interface or look.interfaces.get(listener.address) or look.interfaces.get(look.ssh_address)
    outer = [name for address, name in look.interfaces.items() if not ipaddress.ip_address(address).is_loopback]
    return Packet(listener.proto, STRANGER[version], listener.port, interface or (outer or ["eth0"])[0])


def _service(listener: ListeningSocket) -> str:
    return f"port {listener.port}/{listener.proto} ({listener.process or 'of a process that cannot be seen'})"


def _entry(listener: ListeningSocket) -> str:
    proto = "" if listener.proto == "tcp" else f", proto: {listener.proto}"
    comment = re.sub(r"[^\w ./-]", "", listener.process) or "service"
    return f"{{port: {listener.port}{proto}, comment: {comment}}}"


# ---------------------------------------------------------------- words


def _named(names: Sequence[str]) -> str:
    if len(names) <= MOST_NAMED:
        return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
    return f"{', '.join(names[:MOST_NAMED])} and {len(names) - MOST_NAMED} more"


def _numbers(ports: set[int]) -> str:
    return ", ".join(str(port) for port in sorted(ports))


def _family(address: str) -> str:
    return "ip6" if ":" in address else "ip"


def _stopper(look: FirewallState, outcome: PacketOutcome) -> str:
    number = ufw_number(look, outcome)
    return f"ufw's rule [{number}], {_ufw_in_words(look, number)}" if number else f"{outcome.rule} ({outcome.place})"


def _opener(look: FirewallState, outcome: PacketOutcome) -> str:
    if outcome.rule in ("no rule", "policy ACCEPT", "policy accept"):
        return "no firewall keeps them out"
    return f"by {_stopper(look, outcome)}"


def _close(look: FirewallState, outcome: PacketOutcome) -> tuple[str, str]:
    """What keeps strangers out again, and the command."""
    number = ufw_number(look, outcome)
    if number:
        return "Remove that rule", f"ufw delete {number}"
    return f"Run {MANAGE}, or correct that rule", ""


def _fix(look: FirewallState, outcome: PacketOutcome, match: str) -> tuple[str, str]:
    """What lets the packet in again, and the command: where the rule is decides what to type."""
    number = ufw_number(look, outcome)
    if number:
        return "It stands before the rules that let peers in. Remove it on the node", f"ufw delete {number}"
    words = outcome.place.split(", ")
    chain = words[1].removeprefix("chain ") if len(words) > 1 else ""
    if chain.startswith("ufw"):
        files = "/etc/ufw/before.rules, before6.rules, after.rules"
        return f"It is in one of {files}. Correct it and type", "ufw reload"
    if outcome.place.startswith("nft "):
        _, family, table = words[0].split()
        return (
            "Let it in before that, and in the file that holds the site's rules (often /etc/nftables.conf)",
            f"nft insert rule {family} {table} {chain} {match} accept",
        )
    if len(words) > 2:
        return "Remove that rule on the node", f"{words[0]} -D {chain} {words[2].removeprefix('rule ')}"
    return f"Run {MANAGE}, or let it in in the site's own rules", ""


def ufw_number(look: FirewallState, outcome: PacketOutcome) -> int:
    """The number by which `ufw status numbered` shows the rule of the user that decided; 0 where it is none."""
    match = re.search(r"chain (ufw6?)-user-input, rule (\d+)$", outcome.place)
    if match is None or look.ufw is None:
        return 0
    number = 0
    apps: set[str] = set()
    for version, name in ((4, "user.rules"), (6, "user6.rules")):
        position = 0
        for entry in look.ufw.entries(name):
            # One application with several ports is shown once.
            app = re.sub(r"^(\S+) \S+ \S+", r"\1", entry.words) + str(version) if len(entry.words.split()) > 7 else ""
            number += 0 if app in apps else 1
            apps |= {app} if app else set()
            position += sum("-user-input " in line for line in entry.rules)
            if match[1] == ("ufw6" if version == 6 else "ufw") and position >= int(match[2]):
                return number
    return 0


def _ufw_in_words(look: FirewallState, number: int) -> str:
    if look.ufw is None:
        return ""
    entries = [*look.ufw.entries("user.rules"), *look.ufw.entries("user6.rules")]
    return entries[number - 1].in_words if number <= len(entries) else ""
