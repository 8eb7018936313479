"""Networks behind a node whose packets the node would no longer forward.

When ufw starts, it sets the policy of the chain FORWARD to DEFAULT_FORWARD_POLICY, which is DROP by default. Docker,
podman, libvirt (with iptables) and Kubernetes add accept rules for their own networks, so their packets still pass.
"""

from __future__ import annotations

import ipaddress
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from ..verdict.commands import shell
from .judge import STRANGER
from .model import CutOff
from .netfilter import Chain, parse_save, walk_tables
from .walk import Packet

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from .look import FirewallState
    from .model import FirewallRequest
    from .netfilter import Tables
    from .plan import FirewallPlan

NAT = "NAT"  # as the name of a network that only a NAT rule shows


def forwarding_cut_off(
    request: FirewallRequest, look: FirewallState, plan: FirewallPlan, known: Mapping[str, Sequence[str]]
) -> list[CutOff]:
    """Return the networks whose packets pass now, or perhaps, but not after the plan. known: patterns of interfaces."""
    if plan.backend != "ufw" or look.ufw_runs or (look.ufw is not None and look.ufw.forward_policy == "ACCEPT"):
        return []
    outer = frozenset(name for name in look.interfaces.values() if not _name_of(name, known))
    found: dict[tuple[str, str], CutOff] = {}
    for interface, address, network in _networks(look, known):
        version = 6 if ":" in address else 4
        packet = Packet("tcp", address, 443, interface, outer)
        now, planned = (
            walk_tables(tables, packet, "iptables").verdict
            for tables in (look.tables[version], _with_ufw(look, plan, version))
        )
        if look.forwards[version] and now in ("accept", "unknown") and planned not in ("accept", now):
            name = _name_of(interface, known) or NAT
            where = f"interface {interface}, {network}" if interface else f"from {network}"
            source = shell("in on {name}", name=interface) if interface else f"from {network}"
            found[name, interface or network] = CutOff(
                f"forwarded packets of {name} ({where})",
                [name],
                "in firewall_cut" if request.cut & {name.lower(), interface.lower()} else "",
                command=f"{'' if look.ufw else 'sudo apt-get install ufw && '}sudo ufw route allow {source}",
            )
    return list(found.values())


def _name_of(interface: str, known: Mapping[str, Sequence[str]]) -> str:
    return next((name for name, patterns in known.items() if any(fnmatchcase(interface, one) for one in patterns)), "")


def _networks(look: FirewallState, known: Mapping[str, Sequence[str]]) -> Iterator[tuple[str, str, str]]:
    """Yield the interface, an address and the text of each network behind the node."""
    there = {one: name for one, name in look.interfaces.items() if not ipaddress.ip_address(one).is_link_local}
    inner = [(name, one, one) for one, name in there.items() if _name_of(name, known)]
    yield from inner
    chains = [chain for tables in look.tables.values() for chain in tables.get("nat", {}).values()]
    rules = [rule for chain in chains for rule in chain.rules if rule.target in ("MASQUERADE", "SNAT")]
    for rule in rules:
        network = ipaddress.ip_network((rule.source[1], rule.source[2].bit_count())) if rule.source else None
        if network and not any(ipaddress.ip_address(address) in network for address in there):
            bridge = rule.out_interface if "out_interface" in rule.negated else ""
            yield bridge, str(network[1]), str(network)
    if (any(rule.source is None for rule in rules) or _has_nft_nat(look)) and not inner:
        yield from (("", address, "any") for address in STRANGER.values())


def _has_nft_nat(look: FirewallState) -> bool:
    """Return whether an nftables table, except those of iptables, translates source addresses."""
    rules = (rule for (_, name, _), found in look.ruleset.rules.items() if name != "nat" for rule in found)
    return any("masquerade" in one or "snat" in one for rule in rules for one in rule["expr"])


def _with_ufw(look: FirewallState, plan: FirewallPlan, version: int) -> Tables:
    """Return the chain FORWARD as it will be when ufw is active with the planned rules."""
    prefix, suffix = ("ufw6", "6") if version == 6 else ("ufw", "")
    chains = look.tables[version].get("filter", {})
    before = parse_save(look.ufw.files[f"before{suffix}.rules"]) if look.ufw else {}
    loaded = {**chains, **before.get("filter", {}), **plan.tables.get(version, {}).get("filter", {})}
    names = ("FORWARD", f"{prefix}-before-forward", f"{prefix}-user-forward")
    rules = [rule for name in names for rule in loaded.get(name, Chain()).rules]
    return {"filter": {**chains, "FORWARD": Chain("DROP", rules)}}
