"""Check what a node's firewall allows for launches, SSH and outside hosts, by tracing packets through all rules.

The same checks apply to the rules in force and to the planned rules.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..verdict.check import Check
from ..verdict.commands import playbook, shell
from ..verdict.finding import evidence
from ..verdict.words import few
from . import table as firewall_table
from .look import openings, training_interface
from .netfilter import Chain, Rule, Tables, parse_save, walk_tables
from .published import PUBLISHED, published
from .walk import Packet, PacketOutcome

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..network.listeners import ListeningSocket
    from ..verdict.finding import Finding
    from .look import FirewallState, Ufw
    from .model import FirewallRequest, Opening
    from .plan import FirewallPlan

MANAGE = playbook("playbooks/network.yml", firewall_mode="manage")

LAUNCH_BLOCKED = Check(
    "firewall.launch.blocked",
    seen="recording",
    reads="the rules in force, applied to launch packets from every peer",
    fires="a peer cannot reach a launch port (fail), or a rule that decides this cannot be evaluated (unknown)",
    fix="Change the rule shown, or let the role firewall manage the rules",
)
LAUNCH_OPEN = Check(
    "firewall.launch.open",
    seen="recording",
    reads="the rules in force, applied to packets from outside the cluster",
    fires="any host can reach a launch port (fail)",
    fix="Remove the rule shown",
)
SSH_BLOCKED = Check(
    "firewall.ssh.blocked",
    seen="recording",
    reads="the rules in force, applied to Ansible's SSH connection",
    fires="SSH is blocked (fail), or a rule that decides this cannot be evaluated (unknown)",
    fix="Change the rule shown",
)
SERVICE_OPEN = Check(
    "firewall.service.open",
    seen="recording",
    reads="the rules in force and the listening sockets",
    fires="any host can reach a service that is not in firewall_allow (fail)",
    fix="Add the service to firewall_allow, or remove the rule",
)
BOOT = Check(
    "firewall.boot",
    seen="recording",
    reads="the units and files of the firewall",
    fires="the rules in force would not be loaded at boot, or a change is not confirmed (fail)",
    fix=f"Run {playbook('playbooks/network.yml')} again",
)
UNREADABLE = Check(
    "firewall.unknown",
    seen="stand-in",
    reads="the rules in force",
    fires="some rules could not be read (unknown)",
    fix="Fix the error shown",
)

# Documentation addresses (RFC 5737, RFC 3849): no host has them, so no rule names them.
STRANGER = {4: "203.0.113.77", 6: "2001:db8::77"}


@dataclass(frozen=True)
class Scene:
    """A set of firewall rules on a node: those in force or those planned."""

    look: FirewallState
    tables: dict[int, Tables]
    # What Muster's nftables table allows, if the table is not part of the observed rules.
    table: tuple[Opening, ...] | None = None
    own_table_seen: bool = True

    def outcome(self, packet: Packet) -> PacketOutcome:
        """Return the outcome of the packet, decided by the first rule that stops it or else by the first rule with an
        uncertain effect.
        """
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
        decided = [outcome for outcome in outcomes if outcome.rule != "no rule"]
        return decided[0] if decided else outcomes[0]


def scene_now(look: FirewallState) -> Scene:
    return Scene(look, dict(look.tables))


def scene_planned(request: FirewallRequest, look: FirewallState, plan: FirewallPlan) -> Scene:
    if request.leaves and (plan.disables or not look.ufw_runs):
        return Scene(look, {version: _without_ufw(look, version) for version in (4, 6)}, own_table_seen=False)
    # The files of ufw are unknown until ufw is installed.
    if plan.backend == "nftables" or look.ufw is None:
        return Scene(look, dict(look.tables), tuple(openings(request, look)), own_table_seen=False)
    tables = {version: _with_ufw(look, look.ufw, plan, version) for version in (4, 6)}
    return Scene(look, tables, own_table_seen=False)


def _with_ufw(look: FirewallState, ufw: Ufw, plan: FirewallPlan, version: int) -> Tables:
    """Return the tables as they will be when ufw is active with the planned rules."""
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


def _without_ufw(look: FirewallState, version: int) -> Tables:
    """Return the tables as they will be when ufw is inactive."""
    tables = {name: dict(chains) for name, chains in look.tables[version].items()}
    base = tables.get("filter", {}).get("INPUT")
    if look.ufw_runs and base is not None:
        rules = [rule for rule in base.rules if not rule.target.startswith("ufw")]
        tables["filter"]["INPUT"] = Chain("ACCEPT", rules)
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


# ---------------------------------------------------------------- checks


def judge(request: FirewallRequest, look: FirewallState, scene: Scene) -> list[Finding]:
    """Return all findings about one set of rules."""
    return [
        *judge_launch(request, look, scene),
        *judge_ssh(request, look, scene),
        *judge_exposure(request, look, scene),
        *judge_published(request, look),
        *[UNREADABLE.unknown(request.node, f"some rules could not be read: {error}", "") for error in look.warnings],
    ]


def launch_ports(request: FirewallRequest, look: FirewallState) -> list[int]:
    """Return the rendezvous port and three ephemeral ports as samples, because Gloo and NCCL use ephemeral ports."""
    low, high = request.ephemeral if request.tight else look.port_range
    return [request.master_port, low, (low + high) // 2, high]


def judge_launch(request: FirewallRequest, look: FirewallState, scene: Scene) -> list[Finding]:
    """Check that every other node can reach the launch ports."""
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
        who = few(list(dict.fromkeys(names)))
        said = f"{who} cannot reach port {_numbers(ports)} on this node: {_stopper(look, outcome)}"
        if outcome.verdict == "unknown":
            rule = f"it depends on {_stopper(look, outcome)}"
            said = f"unknown whether {who} can reach port {_numbers(ports)} on this node: {rule}"
        elif outcome.verdict == "redirect":
            said = f"packets from {who} to port {_numbers(ports)} are redirected: {_stopper(look, outcome)}"
        peers = sorted({request.peers[name] for name in names})
        findings.append(
            (LAUNCH_BLOCKED.unknown if outcome.verdict == "unknown" else LAUNCH_BLOCKED.fail)(
                request.node,
                said,
                *_fix(look, outcome, f"iifname {interface} {_family(peers[0])} saddr {{ {', '.join(peers[:8])} }}"),
                expected="every peer can reach every launch port",
                evidence=evidence(outcome.place, outcome.rule),
            )
        )
    return findings or [LAUNCH_BLOCKED.passed(request.node, "every peer can reach the launch ports")]


def judge_ssh(request: FirewallRequest, look: FirewallState, scene: Scene) -> list[Finding]:
    """Check that the SSH connection used by this run stays allowed."""
    version = 6 if ":" in look.ssh_address else 4
    source = look.ssh_client or STRANGER[version]
    interface = look.interfaces.get(look.ssh_address) or training_interface(request, look)
    findings = []
    for port in look.ssh_ports[:1] if not look.ssh_server_port else (look.ssh_server_port,):
        outcome = scene.outcome(Packet("tcp", source, port, interface))
        if outcome.lets_in:
            findings.append(SSH_BLOCKED.passed(request.node, f"SSH connections can reach port {port}"))
            continue
        where = f"port {port} on this node from {source}"
        if outcome.verdict == "unknown":
            make, said = SSH_BLOCKED.unknown, f"unknown whether SSH can reach {where}: {_stopper(look, outcome)}"
        else:
            make, said = SSH_BLOCKED.fail, f"SSH cannot reach {where}: {_stopper(look, outcome)}"
        proof = evidence(outcome.place, outcome.rule)
        findings.append(make(request.node, said, *_fix(look, outcome, f"tcp dport {port}"), evidence=proof))
    return findings


def judge_exposure(request: FirewallRequest, look: FirewallState, scene: Scene) -> list[Finding]:
    """Find ports that outside hosts can reach but that are not allowed."""
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
                f"any host can reach launch port {packet.port}: {_opener(look, outcome)}",
                *_close(look, outcome),
                expected="only peers can reach the launch ports",
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
                f"any host can reach {_service(listener)}: {_opener(look, outcome)}",
                f"If this is intended, add {entry(listener)} to firewall_allow; otherwise remove the rule",
                evidence=evidence(outcome.place, outcome.rule),
            )
        )
    return findings or [LAUNCH_OPEN.passed(request.node, "outside hosts can reach only SSH and allowed ports")]


def judge_boot(request: FirewallRequest, look: FirewallState) -> list[Finding]:
    """Check that the rules in force are loaded at boot."""
    if look.guarded:
        return [BOOT.fail(request.node, "a firewall change is waiting for confirmation or was interrupted")]
    if look.ufw is not None and look.ufw_runs and not (look.ufw.enabled and look.ufw.at_boot and not look.ufw.masked):
        summary, command = (
            "ufw is active, but not enabled at boot",
            "systemctl unmask ufw && systemctl enable ufw && ufw enable",
        )
    elif look.own_live is not None and not look.own_at_boot:
        summary = "the nftables table inet muster is loaded, but not enabled at boot"
        command = shell("systemctl enable {unit_name}", unit_name=firewall_table.UNIT_NAME)
    else:
        return []
    return [BOOT.fail(request.node, summary, "Run on the node", command)]


def judge_published(request: FirewallRequest, look: FirewallState) -> list[Finding]:
    """Report published container ports that bypass the firewall and are not allowed by the inventory."""
    findings = []
    for proto, (low, high), place in published(look.tables, look.listeners):
        packet = Packet(proto, STRANGER[4], low, training_interface(request, look))
        if any(_lets_in(opening, packet) for opening in openings(request, look)):
            continue
        span = str(low) if low == high else f"{low}-{high}"
        findings.append(
            PUBLISHED.warn(
                request.node,
                f"port {span}/{proto} is published by {place} and bypasses the firewall: any host can reach it",
                f"Publish it on one address only (such as -p 127.0.0.1:{low}:...), or block it with",
                f"iptables -I DOCKER-USER -p {proto} -m conntrack --ctorigdstport {low} --ctdir ORIGINAL -j DROP",
            )
        )
    return findings


# ---------------------------------------------------------------- services


def reachable(look: FirewallState, scene: Scene) -> list[tuple[ListeningSocket, PacketOutcome]]:
    """Return the listening services that outside hosts can certainly reach, one for each port."""
    found: dict[tuple[str, int], tuple[ListeningSocket, PacketOutcome]] = {}
    for listener in outside_sockets(look):
        outcome = scene.outcome(packet_to(look, listener))
        if outcome.lets_in and not receives_replies(look, listener):
            found.setdefault((listener.proto, listener.port), (listener, outcome))
    return list(found.values())


def outside_sockets(look: FirewallState) -> Iterator[ListeningSocket]:
    """Yield the sockets that rules can open to other hosts. Container engines publish ports past these rules."""
    for listener in look.listeners:
        address = ipaddress.ip_address(listener.address) if listener.address != "*" else None
        link_local = address is not None and address.is_link_local
        if not listener.local_only and not link_local and listener.process != "docker-proxy":
            yield listener


def receives_replies(look: FirewallState, listener: ListeningSocket) -> bool:
    """Return whether this is probably the socket of a client."""
    return listener.proto == "udp" and listener.port >= look.port_range[0]


def packet_to(look: FirewallState, listener: ListeningSocket) -> Packet:
    version = 6 if ":" in listener.address and listener.address != "::" else 4
    interface = listener.interface or look.interfaces.get(listener.address) or look.interfaces.get(look.ssh_address)
    outer = [name for address, name in look.interfaces.items() if not ipaddress.ip_address(address).is_loopback]
    return Packet(listener.proto, STRANGER[version], listener.port, interface or (outer or ["eth0"])[0])


def _service(listener: ListeningSocket) -> str:
    return f"port {listener.port}/{listener.proto} ({listener.process or 'unknown process'})"


def entry(listener: ListeningSocket, name: str = "service") -> str:
    """Return the entry of firewall_allow that opens the port."""
    proto = "" if listener.proto == "tcp" else f", proto: {listener.proto}"
    comment = re.sub(r"[^\w ./-]", "", listener.process.partition(",")[0]) or name
    return f"{{port: {listener.port}{proto}, comment: {comment}}}"


# ---------------------------------------------------------------- formatting


def _numbers(ports: set[int]) -> str:
    return ", ".join(str(port) for port in sorted(ports))


def _family(address: str) -> str:
    return "ip6" if ":" in address else "ip"


def _stopper(look: FirewallState, outcome: PacketOutcome) -> str:
    number = ufw_number(look, outcome)
    return f"ufw rule [{number}], {_ufw_in_words(look, number)}" if number else f"{outcome.rule} ({outcome.place})"


def _opener(look: FirewallState, outcome: PacketOutcome) -> str:
    if outcome.rule in ("no rule", "policy ACCEPT", "policy accept"):
        return "no firewall rule blocks it"
    return f"allowed by {_stopper(look, outcome)}"


def _close(look: FirewallState, outcome: PacketOutcome) -> tuple[str, str]:
    """Return the fix that blocks outside hosts, and its command."""
    number = ufw_number(look, outcome)
    if number:
        return "Remove this rule on the node", f"ufw delete {number}"
    return f"Run {MANAGE}, or correct the rule", ""


def _fix(look: FirewallState, outcome: PacketOutcome, match: str) -> tuple[str, str]:
    """Return the fix that allows the packet, and its command. The fix depends on where the blocking rule is defined."""
    number = ufw_number(look, outcome)
    if number:
        return "This rule precedes the rules that allow peers. Remove it on the node", f"ufw delete {number}"
    words = outcome.place.split(", ")
    chain = words[1].removeprefix("chain ") if len(words) > 1 else ""
    if chain.startswith("ufw"):
        files = "/etc/ufw/before.rules, before6.rules, after.rules"
        return f"The rule is in one of {files}. Correct it, then run", "ufw reload"
    if outcome.place.startswith("nft "):
        _, family, table = words[0].split()
        return (
            "Insert an accept rule before this rule, also in the site's rules file (often /etc/nftables.conf)",
            f"nft insert rule {family} {table} {chain} {match} accept",
        )
    if len(words) > 2:
        return "Remove this rule on the node", f"{words[0]} -D {chain} {words[2].removeprefix('rule ')}"
    return f"Run {MANAGE}, or allow the packet in the site's own rules", ""


def ufw_number(look: FirewallState, outcome: PacketOutcome) -> int:
    """Return the number of the deciding user rule in `ufw status numbered`; 0 if another kind of rule decided."""
    match = re.search(r"chain (ufw6?)-user-input, rule (\d+)$", outcome.place)
    if match is None or look.ufw is None:
        return 0
    number = 0
    apps: set[str] = set()
    for version, name in ((4, "user.rules"), (6, "user6.rules")):
        position = 0
        for entry in look.ufw.entries(name):
            # ufw lists an application profile with several ports once.
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
