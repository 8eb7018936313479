"""The observed firewall state of a node, as reported by muster_node/programs/firewall.py, and the openings that the
node needs.
"""

from __future__ import annotations

import ipaddress
import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..network.listeners import ListeningSocket, parse_ss
from . import ufw
from .model import FirewallError, FirewallRequest, Opening
from .netfilter import Tables, parse_save
from .nft import BaseChain, Ruleset
from .table import TABLE

if TYPE_CHECKING:
    from collections.abc import Mapping

KERNEL_PORT_RANGE = (32768, 60999)


@dataclass(frozen=True)
class Ufw:
    enabled: bool
    at_boot: bool
    masked: bool
    ipv6: bool
    input_policy: str
    forward_policy: str
    manages_builtins: bool
    files: Mapping[str, str]

    def entries(self, name: str) -> tuple[ufw.UfwEntry, ...]:
        """Return the rule tuples in one of ufw's rules files."""
        try:
            return ufw.parse_rules(self.files[name]).entries
        except ValueError:
            return ()


@dataclass(frozen=True)
class FirewallState:
    """The observed state of a node.

    connected: remote addresses by listening TCP port. units: systemd units by PID. forwards: whether the
    kernel forwards packets, by IP version. recorded: whether the state before
    the first change of Muster is recorded on the node. before: the recorded state of ufw, if readable. to_record: the
    text of such a record about the observed state.
    """

    guarded: bool
    interfaces: Mapping[str, str]
    ssh_client: str
    ssh_address: str
    ssh_server_port: int
    ssh_ports: tuple[int, ...]
    listeners: tuple[ListeningSocket, ...]
    ufw: Ufw | None
    tables: Mapping[int, Tables]
    ruleset: Ruleset
    has_nft: bool
    firewalld: bool
    nftables_at_boot: bool
    own_rules: str | None
    own_unit: str | None
    own_at_boot: bool
    own_active: bool
    own_live: str | None
    own_meant: str | None
    port_range: tuple[int, int]
    port_range_file: str | None
    port_range_others: tuple[int, int]
    forwards: Mapping[int, bool]
    warnings: tuple[str, ...] = ()
    connected: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    units: Mapping[int, str] = field(default_factory=dict)
    recorded: bool = False
    before: Ufw | None = None
    to_record: str = ""

    @property
    def is_managed(self) -> bool:
        """Whether rules of Muster are present."""
        entries = [entry for name in ("user.rules", "user6.rules") if self.ufw for entry in self.ufw.entries(name)]
        return self.own_rules is not None or self.own_live is not None or any(entry.own for entry in entries)

    @property
    def ufw_runs(self) -> bool:
        """Return whether the built-in chains jump to ufw's chains, as they do after ufw has started."""
        return self.ufw is not None and all(
            _jumps(self.tables[version], version) for version in ((4, 6) if self.ufw.ipv6 else (4,))
        )


def _jumps(tables: Tables, version: int) -> bool:
    prefix = "ufw6" if version == 6 else "ufw"
    chains = tables.get("filter", {})
    links = {"INPUT": f"{prefix}-before-input", f"{prefix}-before-input": f"{prefix}-user-input"}
    return all(
        name in chains and any(rule.target == target for rule in chains[name].rules) for name, target in links.items()
    )


def _assigned(text: str | None, name: str) -> str:
    """Return the value of the last assignment to a shell variable."""
    found = re.findall(rf"^\s*{name}=\s*[\"']?([^\"'#\s]*)", text or "", re.MULTILINE)
    return found[-1] if found else ""


def read_look(raw: Mapping[str, Any]) -> FirewallState:
    """Parse the output of muster_node/programs/firewall.py."""
    said = raw["said"]
    listeners = tuple(parse_ss(said["listeners"]["out"]))
    server = raw["ssh_server"]
    sockets = [int(place.rpartition(":")[2]) for place in raw["ssh_sockets"] if place.rpartition(":")[2].isdigit()]
    live = [int(number) for number in raw["port_range"]["live"]]
    others = [int(number) for number in raw["port_range"]["others"].split()]
    states = [*said["active"]["out"].split(), "unknown", "unknown"]
    warnings = [
        f"{name}: {said[name]['err'].splitlines()[0]}"
        for name in ("iptables", "ip6tables", "ruleset")
        if said[name]["err"] and said[name]["code"] is not None
    ]
    return FirewallState(
        guarded=raw["guarded"],
        interfaces={
            entry["local"]: link["ifname"]
            for link in json.loads(said["addresses"]["out"] or "[]")
            for entry in link["addr_info"]
            if "local" in entry
        },
        ssh_client=_plain(raw["ssh_client"][0]) if raw["ssh_client"] else "",
        ssh_address=_plain(server[0]) if server else "",
        ssh_server_port=int(server[1]) if server else 0,
        ssh_ports=tuple(sorted({*raw["sshd_ports"], *sockets, *([int(server[1])] if server else [])})),
        listeners=listeners,
        ufw=_read_ufw(raw["ufw"]),
        tables={4: parse_save(said["iptables"]["out"]), 6: parse_save(said["ip6tables"]["out"])},
        ruleset=Ruleset(json.loads(said["ruleset"]["out"] or '{"nftables": []}')["nftables"]),
        has_nft=said["ruleset"]["code"] is not None,
        firewalld=states[0] == "active",
        nftables_at_boot=raw["nftables_at_boot"],
        own_rules=raw["own"]["rules"],
        own_unit=raw["own"]["unit"],
        own_at_boot=raw["own"]["at_boot"],
        own_active=states[1] == "active",
        own_live=said["own_live"]["out"] or None,
        own_meant=said.get("own_file", {}).get("out") or None,
        port_range=(live[0], live[1]) if len(live) == 2 else KERNEL_PORT_RANGE,
        port_range_file=raw["port_range"]["file"],
        port_range_others=(others[0], others[1]) if len(others) == 2 else KERNEL_PORT_RANGE,
        forwards={version: raw["forwards"][name] == "1" for version, name in ((4, "ip"), (6, "ip6"))},
        warnings=tuple(warnings),
        connected={int(port): tuple(addresses) for port, addresses in raw["connected"].items()},
        units={int(pid): unit for pid, unit in raw["units"].items()},
        recorded=raw["record"] is not None,
        before=_read_record(raw["record"]),
        to_record=json.dumps({"ufw": raw["ufw"]}, indent=1) + "\n",
    )


def _read_record(text: str | None) -> Ufw | None:
    try:
        return _read_ufw(json.loads(text or "{}").get("ufw"))
    except (ValueError, LookupError, TypeError, AttributeError):
        return None


def _plain(address: str) -> str:
    """Return the address without its zone. IPv4-mapped IPv6 addresses are returned as IPv4."""
    parsed = ipaddress.ip_address(address.partition("%")[0])
    mapped = parsed.ipv4_mapped if parsed.version == 6 else None
    return str(mapped or parsed)


def _read_ufw(raw: Mapping[str, Any] | None) -> Ufw | None:
    if raw is None:
        return None
    return Ufw(
        enabled=_assigned(raw["conf"], "ENABLED").lower() == "yes",
        at_boot=raw["at_boot"],
        masked=raw["masked"],
        ipv6=_assigned(raw["defaults"], "IPV6").lower() == "yes",
        input_policy=_assigned(raw["defaults"], "DEFAULT_INPUT_POLICY").upper() or "DROP",
        forward_policy=_assigned(raw["defaults"], "DEFAULT_FORWARD_POLICY").upper() or "DROP",
        manages_builtins=_assigned(raw["defaults"], "MANAGE_BUILTINS").lower() == "yes",
        files={name: text or "" for name, text in raw["files"].items()},
    )


def foreign_chains(look: FirewallState) -> list[str]:
    """Return the chains at the input hook that belong neither to Muster nor to ufw, such as the site's own firewall."""
    found = [
        f"{base.family} {base.table} {base.name}"
        for base in look.ruleset.bases
        if base.hook == "input" and base.table != TABLE and not _is_iptables(look, base)
    ]
    for version, tables in look.tables.items():
        chains = tables.get("filter", {})
        base_chain = chains.get("INPUT")
        if base_chain is None:
            continue
        # A stopped or removed ufw leaves empty chains.
        rules = [rule for rule in base_chain.rules if rule.target not in chains or chains[rule.target].rules]
        if rules or base_chain.policy != "ACCEPT":
            found.append(f"{'ip6tables' if version == 6 else 'iptables'} INPUT")
    return found


def _is_iptables(look: FirewallState, base: BaseChain) -> bool:
    """Return whether iptables also lists this chain."""
    version = {"ip": 4, "ip6": 6}.get(base.family)
    return version is not None and base.name in look.tables[version].get(base.table, {})


def training_interface(request: FirewallRequest, look: FirewallState) -> str:
    """Return the interface that receives traffic from the other nodes. Raises FirewallError."""
    found = request.interface or look.interfaces.get(request.address, "")
    if not found:
        raise FirewallError(
            f"no interface has cluster_address {request.address}: correct it, or set cluster_interface to the interface"
            " that receives traffic from peers."
        )
    return found


def ssh_openings(look: FirewallState) -> list[Opening]:
    """Return the openings for SSH. Raises FirewallError."""
    if not look.ssh_ports:
        raise FirewallError("no SSH port was found on the node, so no port is closed.")
    return [Opening(("tcp",), ((port, port),), "", "", "ssh") for port in look.ssh_ports]


def openings(request: FirewallRequest, look: FirewallState) -> list[Opening]:
    """Return all openings to allow, those for SSH first. Raises FirewallError."""
    found = ssh_openings(look)
    interface = training_interface(request, look)
    ports = request.launch_ports if request.tight else ()
    for name, address in request.peers.items():
        found.append(Opening(("tcp",) if ports else (), ports, address, interface, f"peer {name}"))
    for allowed in request.allowed:
        found += [
            Opening(allowed.protos, (allowed.ports,), source, "", allowed.comment)
            for source in allowed.sources or ("",)
        ]
    return found
