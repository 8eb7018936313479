"""Networks behind a node whose packets the node would no longer forward.

When ufw starts, it sets the policy of the chain FORWARD to DEFAULT_FORWARD_POLICY, which is DROP by default. Docker,
podman, libvirt (with iptables) and Kubernetes add accept rules for their own networks, so their packets still pass.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from ..verdict.check import Check
from ..verdict.commands import shell
from .judge import STRANGER
from .netfilter import PATH_THROUGH, Chain, parse_save, walk_tables
from .walk import Packet

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from .look import FirewallState
    from .model import FirewallRequest
    from .netfilter import Rule, Tables
    from .plan import FirewallPlan

FORWARD_CUT_OFF = Check(
    "firewall.forward.cut_off",
    seen="recording",
    reads="the kernel's forwarding settings, the interfaces, the rules in force and the settings of ufw",
    fires="ufw would drop packets that the node forwards now for virtual machines, containers, a VPN or NAT (warn;"
    " site.yml and playbooks/network.yml stop before any change)",
    fix="Run the command shown on the node, or add the name to firewall_cut",
)
NAT = "NAT"  # as the name of a network that only a NAT rule shows


@dataclass(frozen=True)
class ForwardingCutOff:
    """A network whose packets ufw would drop. interface: "" if only a NAT rule shows it. why: as for services."""

    name: str
    interface: str
    network: str
    why: str
    needs_ufw: bool

    @property
    def in_words(self) -> str:
        where = f"interface {self.interface}, {self.network}" if self.interface else f"from {self.network}"
        return f"forwarded packets of {self.name} ({where})"

    @property
    def cut(self) -> list[str]:
        return [self.name]

    @property
    def command(self) -> str:
        """The command for the node that keeps its packets."""
        install = "sudo apt-get install --yes ufw && " if self.needs_ufw else ""
        if self.interface:
            return shell(install + "sudo ufw route allow in on {name}", name=self.interface)
        return shell(install + "sudo ufw route allow from {network}", network=self.network)


def forwarding_cut_off(
    request: FirewallRequest, look: FirewallState, plan: FirewallPlan, known: Mapping[str, Sequence[str]]
) -> list[ForwardingCutOff]:
    """Return the networks whose packets pass now, or perhaps, but not after the plan. known: patterns of interfaces."""
    if plan.backend != "ufw" or look.ufw_runs or (look.ufw is not None and look.ufw.forward_policy == "ACCEPT"):
        return []
    inner = {name for name in look.interfaces.values() if _name_of(name, known)}
    outer = frozenset(look.interfaces.values()) - inner
    found: dict[tuple[str, str], ForwardingCutOff] = {}
    for name, interface, address, network in _networks(look, known):
        version = 6 if ":" in address else 4
        packet = Packet("tcp", address, 443, interface, outer)
        now, planned = (
            walk_tables(tables, packet, "", PATH_THROUGH).verdict
            for tables in (look.tables[version], _tables_with_ufw(look, plan, version))
        )
        if look.forwards[version] and now in ("accept", "unknown") and planned not in ("accept", now):
            waived = request.cut & {name.lower(), interface.lower()}
            one = ForwardingCutOff(name, interface, network, "in firewall_cut" if waived else "", look.ufw is None)
            found.setdefault((name, interface or network), one)
    return list(found.values())


def _name_of(interface: str, known: Mapping[str, Sequence[str]]) -> str:
    return next((name for name, patterns in known.items() if any(fnmatchcase(interface, one) for one in patterns)), "")


def _networks(look: FirewallState, known: Mapping[str, Sequence[str]]) -> Iterator[tuple[str, str, str, str]]:
    """Yield the name, interface, an address and the text of each network behind the node."""
    there = [(address, name) for address, name in look.interfaces.items() if not _is_local(address)]
    inner = [(name, interface, address) for address, interface in there if (name := _name_of(interface, known))]
    yield from ((*one, one[2]) for one in inner)
    rules = [rule for tables in look.tables.values() for rule in _nat_rules(tables)]
    for rule in rules:
        network = ipaddress.ip_network((rule.source[1], rule.source[2].bit_count())) if rule.source else None
        if network and not any(ipaddress.ip_address(address) in network for address, _ in there):
            bridge = rule.out_interface if "out_interface" in rule.negated else ""
            yield _name_of(bridge, known) or NAT, bridge, str(network[1]), str(network)
    if (any(rule.source is None for rule in rules) or _has_nft_nat(look)) and not inner:
        yield from ((NAT, "", address, "any") for address in STRANGER.values())


def _nat_rules(tables: Tables) -> Iterator[Rule]:
    for chain in tables.get("nat", {}).values():
        yield from (rule for rule in chain.rules if rule.target in ("MASQUERADE", "SNAT"))


def _has_nft_nat(look: FirewallState) -> bool:
    """Return whether an nftables table, except those of iptables, translates source addresses."""
    rules = (rule for (_, name, _), found in look.ruleset.rules.items() if name != "nat" for rule in found)
    return any("masquerade" in one or "snat" in one for rule in rules for one in rule["expr"])


def _is_local(address: str) -> bool:
    parsed = ipaddress.ip_address(address)
    return parsed.is_loopback or parsed.is_link_local


def _tables_with_ufw(look: FirewallState, plan: FirewallPlan, version: int) -> Tables:
    """Return the chain FORWARD as it will be when ufw is active with the planned rules."""
    prefix, suffix = ("ufw6", "6") if version == 6 else ("ufw", "")
    chains = dict(look.tables[version].get("filter", {}))
    before = parse_save(look.ufw.files[f"before{suffix}.rules"]) if look.ufw else {}
    loaded = {**before.get("filter", {}), **plan.tables.get(version, {}).get("filter", {})}
    rules = [*chains.get("FORWARD", Chain()).rules]
    for name in (f"{prefix}-before-forward", f"{prefix}-user-forward"):
        rules += loaded.get(name, Chain()).rules
    return {"filter": {**chains, "FORWARD": Chain("DROP", rules)}}
