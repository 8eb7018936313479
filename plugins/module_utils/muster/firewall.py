"""What shall come in on a node, and the steps that make it so.

The wish comes from the inventory, the look from the node (roles/firewall/files/firewall_node.py). Everything here is
decided from these two; nothing is read or changed.
"""

from __future__ import annotations

import ipaddress
import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from muster import firewall_table, ufw
from muster.firewall_table import RULES_FILE, TABLE, UNIT, WANTED
from muster.listeners import Listener, parse_ss
from muster.netfilter import Tables, parse_save
from muster.nft import Base, Ruleset

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SYSCTL_FILE = "/etc/sysctl.d/60-muster-firewall.conf"
KERNEL_PORT_RANGE = (32768, 60999)
LEAST_EPHEMERAL = 1024
# A new connection may take its time, and is tried again.
LEAST_CONFIRM_SECONDS = 30


class WishError(Exception):
    """The wish cannot be fulfilled; the message is a sentence for the user."""


@dataclass(frozen=True)
class Allowed:
    """One entry of firewall_allow."""

    ports: tuple[int, int]
    protos: tuple[str, ...]
    sources: tuple[str, ...]
    comment: str


@dataclass(frozen=True)
class Wish:
    """What the inventory asks of one node's firewall."""

    node: str
    address: str
    peers: Mapping[str, str]
    interface: str = ""
    backend: str = "auto"
    allowed: tuple[Allowed, ...] = ()
    tight: bool = False
    ephemeral: tuple[int, int] = (32768, 40959)
    launch: tuple[int, int] = (29400, 29599)
    master_port: int = 29500

    @property
    def launch_ports(self) -> tuple[tuple[int, int], ...]:
        """What peers reach in tight mode, in order and without overlaps."""
        inside = self.launch[0] <= self.master_port <= self.launch[1]
        return tuple(sorted([self.launch, self.ephemeral] + ([] if inside else [(self.master_port,) * 2])))


@dataclass(frozen=True)
class Opening:
    """One thing that may come in. ports: none means all; source and interface: empty means any."""

    protos: tuple[str, ...]
    ports: tuple[tuple[int, int], ...]
    source: str
    interface: str
    comment: str


@dataclass(frozen=True)
class Ufw:
    enabled: bool
    at_boot: bool
    masked: bool
    ipv6: bool
    input_policy: str
    manages_builtins: bool
    files: Mapping[str, str]

    def entries(self, name: str) -> tuple[ufw.Entry, ...]:
        """The tuples of one of its files."""
        try:
            return ufw.parse_rules(self.files[name]).entries
        except ValueError:
            return ()


@dataclass(frozen=True)
class Look:
    """What was seen on the node."""

    guarded: bool
    interfaces: Mapping[str, str]
    ssh_client: str
    ssh_address: str
    ssh_server_port: int
    ssh_ports: tuple[int, ...]
    listeners: tuple[Listener, ...]
    ufw: Ufw | None
    tables: Mapping[int, Tables]
    has_iptables: bool
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
    warnings: tuple[str, ...] = ()

    @property
    def ufw_runs(self) -> bool:
        """Whether ufw's chains are in force as it hooks them in."""
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
    """Return the value of a shell assignment, as the last one counts."""
    found = re.findall(rf"^\s*{name}=\s*[\"']?([^\"'#\s]*)", text or "", re.MULTILINE)
    return found[-1] if found else ""


def read_look(raw: Mapping[str, Any]) -> Look:
    """Read what the node program printed."""
    said = raw["said"]
    listeners = tuple(parse_ss(said["listeners"]["out"]))
    server = raw["ssh_server"]
    sshd = [entry.port for entry in listeners if entry.proto == "tcp" and re.search(r"\bsshd?\b", entry.process)]
    sockets = [int(place.rpartition(":")[2]) for place in raw["ssh_sockets"] if place.rpartition(":")[2].isdigit()]
    live = [int(number) for number in raw["port_range"]["live"]]
    others = [int(number) for number in raw["port_range"]["others"].split()]
    states = [*said["active"]["out"].split(), "unknown", "unknown"]
    warnings = [
        f"{name}: {said[name]['err'].splitlines()[0]}"
        for name in ("iptables", "ip6tables", "ruleset")
        if said[name]["err"] and said[name]["code"] is not None
    ]
    return Look(
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
        ssh_ports=tuple(sorted({*sshd, *sockets, *([int(server[1])] if server else [])})),
        listeners=listeners,
        ufw=_read_ufw(raw["ufw"]),
        tables={4: parse_save(said["iptables"]["out"]), 6: parse_save(said["ip6tables"]["out"])},
        has_iptables=said["iptables"]["code"] is not None,
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
        warnings=tuple(warnings),
    )


def _plain(address: str) -> str:
    """Return an address without the zone; an IPv4 one that came in through an IPv6 socket as what it is."""
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
        manages_builtins=_assigned(raw["defaults"], "MANAGE_BUILTINS").lower() == "yes",
        files={name: text or "" for name, text in raw["files"].items()},
    )


# ---------------------------------------------------------------- the wish


def make_wish(node: str, own: Mapping[str, Any], addresses: Mapping[str, str], options: Mapping[str, Any]) -> Wish:
    """own: the node's cluster_* variables; addresses: cluster_address of every node. Raises WishError."""
    if options["confirm_seconds"] < LEAST_CONFIRM_SECONDS:
        raise WishError(f"firewall_confirm_seconds is below {LEAST_CONFIRM_SECONDS}, too short for a new connection.")
    ephemeral = port_pair("firewall_ephemeral_range", options["ephemeral_range"])
    launch = port_pair("firewall_launch_ports", options["launch_ports"])
    if options["tight"]:
        if ephemeral[0] < LEAST_EPHEMERAL:
            raise WishError(f"firewall_ephemeral_range begins below {LEAST_EPHEMERAL}, among the ports of services.")
        master = own["cluster_master_port"]
        for name, (low, high) in (("firewall_launch_ports", launch), ("cluster_master_port", (master, master))):
            if low <= ephemeral[1] and high >= ephemeral[0]:
                raise WishError(
                    f"{name} overlaps with firewall_ephemeral_range, from which any program may take a launch's port."
                )
    return Wish(
        node=node,
        address=str(ipaddress.ip_address(own["cluster_address"])),
        interface=own["cluster_interface"],
        peers={name: str(ipaddress.ip_address(address)) for name, address in addresses.items() if name != node},
        backend=options["backend"],
        allowed=tuple(_allowed(number, entry) for number, entry in enumerate(options["allow"], 1)),
        tight=options["tight"],
        ephemeral=ephemeral,
        launch=launch,
        master_port=own["cluster_master_port"],
    )


def port_pair(name: str, text: object) -> tuple[int, int]:
    """Read 9100 or "9100-9110". Raises WishError."""
    match = re.fullmatch(r"\s*(\d+)\s*(?:[-:]\s*(\d+)\s*)?", str(text))
    if match is not None:
        low, high = int(match[1]), int(match[2] or match[1])
        if 1 <= low <= high <= 65535:
            return low, high
    raise WishError(f'{name} is {text!r}; it is a port or a range of ports such as "29400-29599".')


def _allowed(number: int, entry: Mapping[str, Any]) -> Allowed:
    where = f"firewall_allow, entry {number}"
    unknown = sorted(set(entry) - {"port", "proto", "from", "comment"})
    if unknown:
        raise WishError(f"{where} has {', '.join(unknown)}; known are port, proto, from and comment.")
    if "port" not in entry:
        raise WishError(f"{where} names no port.")
    proto = str(entry.get("proto", "tcp")).lower()
    if proto not in ("tcp", "udp", "any"):
        raise WishError(f"{where}: proto is {proto!r}, not one of tcp, udp, any.")
    sources = entry.get("from") or []
    networks = []
    for source in [sources] if isinstance(sources, str) else sources:
        try:
            networks.append(_network(str(source)))
        except ValueError as exc:
            raise WishError(f"{where}: from has {source!r}, which is no address or network.") from exc
    return Allowed(
        ports=port_pair(f"{where}: port", entry["port"]),
        protos=("tcp", "udp") if proto == "any" else (proto,),
        sources=tuple(networks),
        comment=" ".join(str(entry.get("comment") or "allowed").split()),
    )


def _network(text: str) -> str:
    """Return a source as ufw writes it: a single address without its mask, everybody as ""."""
    if text == "any":
        return ""
    parsed = ipaddress.ip_network(text, strict=False)
    if parsed.prefixlen == 0:
        return "0.0.0.0/0" if parsed.version == 4 else "::/0"
    return str(parsed.network_address) if parsed.num_addresses == 1 else str(parsed)


def training_interface(wish: Wish, look: Look) -> str:
    """The interface on which the peers come in. Raises WishError."""
    found = wish.interface or look.interfaces.get(wish.address, "")
    if not found:
        raise WishError(
            f"cluster_address {wish.address} is on none of the node's interfaces: correct it, or name the interface on"
            " which the peers come in (cluster_interface)."
        )
    return found


def openings(wish: Wish, look: Look) -> list[Opening]:
    """Everything that may come in, ssh first. Raises WishError."""
    if not look.ssh_ports:
        raise WishError("no port of ssh was found on the node, and nothing is closed before one is known.")
    interface = training_interface(wish, look)
    ports = wish.launch_ports if wish.tight else ()
    found = [Opening(("tcp",), ((port, port),), "", "", "ssh") for port in look.ssh_ports]
    for name, address in wish.peers.items():
        found.append(Opening(("tcp",) if ports else (), ports, address, interface, f"peer {name}"))
    for allowed in wish.allowed:
        found += [
            Opening(allowed.protos, (allowed.ports,), source, "", allowed.comment)
            for source in allowed.sources or ("",)
        ]
    return found


def ufw_entries(found: Sequence[Opening], version: int) -> list[ufw.Entry]:
    """The openings of one family as ufw's entries."""
    entries = []
    for opening in found:
        if opening.source and (":" in opening.source) != (version == 6):
            continue
        spans = [str(low) if low == high else f"{low}:{high}" for low, high in opening.ports]
        port = ",".join(spans) or "any"
        # ufw takes ranges and lists for one protocol only.
        both = opening.protos == ("tcp", "udp") and ":" not in port and "," not in port
        entries += [
            ufw.allow(version, proto, port, opening.source or "any", opening.interface, opening.comment)
            for proto in (("any",) if both or not opening.protos else opening.protos)
        ]
    return entries


# ---------------------------------------------------------------- the plan


@dataclass
class Plan:
    """The steps for the node, and what the guard needs to undo them. before and after tell both states to people."""

    backend: str
    packages: list[str] = field(default_factory=list)
    steps: list[dict[str, Any]] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    texts: dict[str, str] = field(default_factory=dict)
    undo: list[dict[str, Any]] = field(default_factory=list)
    before: list[str] = field(default_factory=list)
    after: list[str] = field(default_factory=list)
    tables: dict[int, Tables] = field(default_factory=dict)

    def write(self, path: str, text: str, mode: int = 0o644) -> None:
        self.files.append(path)
        self.steps.append({"write": path, "text": text, "mode": mode})

    def remove(self, path: str) -> None:
        self.files.append(path)
        self.steps.append({"remove": path})

    def run(self, *argv: str, text: str = "") -> None:
        self.steps.append({"run": list(argv), "text": text})

    def undo_by(self, *argv: str, text: str = "") -> None:
        self.undo.append({"argv": list(argv), "text": text})


def choose_backend(wish: Wish, look: Look) -> str:
    """Raises WishError where another firewall is in charge."""
    if look.firewalld:
        raise WishError(
            "firewalld is active and in charge of the node's firewall. Open the ports there (docs/ports.md) and set"
            ' firewall_mode to "off" or verify, or disable it: systemctl disable --now firewalld'
        )
    if wish.backend == "nftables" and look.ufw is not None and (look.ufw.enabled or look.ufw_runs):
        raise WishError("firewall_backend is nftables, and ufw is active: set it to auto, or type: ufw disable")
    if wish.backend != "auto":
        return wish.backend
    if look.ufw is not None:
        return "ufw"
    return "nftables" if look.nftables_at_boot or look.own_rules or foreign_chains(look) else "ufw"


def foreign_chains(look: Look) -> list[str]:
    """Chains of others that judge what comes in: a firewall of the site's own."""
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
        # ufw leaves its chains behind, empty, when it is stopped or removed.
        rules = [rule for rule in base_chain.rules if rule.target not in chains or chains[rule.target].rules]
        if rules or base_chain.policy != "ACCEPT":
            found.append(f"{'ip6tables' if version == 6 else 'iptables'} INPUT")
    return found


def _is_iptables(look: Look, base: Base) -> bool:
    """Whether iptables shows this chain, too."""
    version = {"ip": 4, "ip6": 6}.get(base.family)
    return version is not None and base.name in look.tables[version].get(base.table, {})


def make_plan(wish: Wish, look: Look) -> Plan:
    """Raises WishError."""
    plan = Plan(choose_backend(wish, look))
    if plan.backend == "ufw":
        plan_ufw(plan, wish, look)
        plan_no_table(plan, look)
    else:
        plan_table(plan, wish, look)
    plan_port_range(plan, wish, look)
    return plan


def plan_table(plan: Plan, wish: Wish, look: Look) -> None:
    """Our own table in nftables, beside whatever the site has there."""
    text = firewall_table.rules(openings(wish, look))
    plan.after += ["nftables: table inet muster in force", *text.splitlines()]
    if not look.has_nft:
        plan.packages.append("nftables")
        plan.before.append("nftables: not installed")
        return
    loaded = look.own_live is not None and look.own_live == look.own_meant and look.own_active
    in_force = loaded and look.own_at_boot
    plan.before.append(f"nftables: table inet muster {'in force' if in_force else 'not in force'}")
    plan.before += (look.own_rules or "").splitlines()
    if look.own_rules != text:
        plan.write(RULES_FILE, text)
    if look.own_unit != firewall_table.UNIT_TEXT:
        plan.write(UNIT, firewall_table.UNIT_TEXT)
        plan.run("systemctl", "daemon-reload")
        plan.undo_by("systemctl", "daemon-reload")
    if look.own_rules != text or not loaded:
        # One transaction of nft: the table is another at once, and those of others are not touched. By the unit,
        # because only one that is active is restarted together with the site's own rules.
        plan.run("systemctl", "restart", firewall_table.UNIT_NAME)
        if not look.own_active:
            plan.undo_by("systemctl", "stop", firewall_table.UNIT_NAME)
        plan.texts["table"] = firewall_table.restoring(look.own_live)
        plan.undo_by("nft", "-f", "-", text="table")
    if not look.own_at_boot:
        plan.run("systemctl", "--quiet", "enable", firewall_table.UNIT_NAME)
        plan.undo_by("rm", "-f", WANTED)


def plan_no_table(plan: Plan, look: Look) -> None:
    """Take away our own table where ufw holds the rules now."""
    if look.own_at_boot:
        plan.run("systemctl", "--quiet", "disable", firewall_table.UNIT_NAME)
        plan.undo_by("ln", "-sfn", UNIT, WANTED)
    for path, text in ((UNIT, look.own_unit), (RULES_FILE, look.own_rules)):
        if text is not None:
            plan.remove(path)
    if look.own_live is not None:
        plan.before.append("nftables: table inet muster in force")
        plan.run("nft", "delete", "table", "inet", TABLE)
        plan.texts["table"] = firewall_table.restoring(look.own_live)
        plan.undo_by("nft", "-f", "-", text="table")


def plan_port_range(plan: Plan, wish: Wish, look: Look) -> None:
    """Pin the range in tight mode; take back what an earlier tight mode pinned."""
    low, high = wish.ephemeral
    text = f"# Written by Muster (firewall_tight): docs/ports.md\nnet.ipv4.ip_local_port_range = {low} {high}\n"
    wanted = wish.ephemeral if wish.tight else look.port_range_others
    if look.port_range_file is not None or wish.tight:
        plan.before.append(f"ports of outgoing connections: {look.port_range[0]}-{look.port_range[1]}")
        plan.after.append(f"ports of outgoing connections: {wanted[0]}-{wanted[1]}")
    if wish.tight and look.port_range_file != text:
        plan.write(SYSCTL_FILE, text)
    if not wish.tight and look.port_range_file is not None:
        plan.remove(SYSCTL_FILE)
    if look.port_range != wanted and (wish.tight or look.port_range_file is not None):
        set_range = ["sysctl", "--quiet", "--write"]
        key = "net.ipv4.ip_local_port_range"
        plan.run(*set_range, f"{key}={wanted[0]} {wanted[1]}")
        plan.undo_by(*set_range, f"{key}={look.port_range[0]} {look.port_range[1]}")


def plan_ufw(plan: Plan, wish: Wish, look: Look) -> None:
    found = openings(wish, look)
    if look.ufw is None:
        plan.packages.append("ufw")
        plan.before.append("ufw: not installed")
        plan.after.append("ufw: active")
        for version in (4, 6):
            plan.after += [entry.told for entry in ufw_entries(found, version)]
        return
    if look.ufw.masked:
        raise WishError("ufw.service is masked, so that ufw would be off after a restart. Type: systemctl unmask ufw")
    if look.ufw.manages_builtins and not look.ufw_runs:
        raise WishError(
            "MANAGE_BUILTINS=yes in /etc/default/ufw makes ufw flush the rules of others when it starts. Set it to no."
        )
    if not look.ufw.ipv6 and any(":" in address for address in (wish.address, *wish.peers.values())):
        raise WishError("IPV6=no in /etc/default/ufw closes IPv6, and the cluster's addresses are IPv6. Set it to yes.")
    plan.before.append(f"ufw: {_ufw_state(look)}")
    plan.after.append("ufw: active, deny (incoming)")
    versions = (4, 6) if look.ufw.ipv6 else (4,)
    reloads = [version for version in versions if _plan_rules(plan, found, look, version)]
    _plan_ufw_state(plan, look, reloads)


def _ufw_state(look: Look) -> str:
    if look.ufw is None or not look.ufw_runs:
        return "inactive"
    state = "active" if look.ufw.enabled and look.ufw.at_boot else "active, but not after a restart"
    words = {"DROP": "deny", "REJECT": "deny", "ACCEPT": "allow"}
    return f"{state}, {words.get(look.ufw.input_policy, look.ufw.input_policy)} (incoming)"


def _plan_rules(plan: Plan, found: Sequence[Opening], look: Look, version: int) -> bool:
    """Plan one of ufw's files of rules; say whether it is to be loaded."""
    if look.ufw is None:
        return False
    name = "user6.rules" if version == 6 else "user.rules"
    path = f"/etc/ufw/{name}"
    try:
        there = ufw.parse_rules(look.ufw.files[name])
    except ValueError as exc:
        raise WishError(f"{path} cannot be read: {exc}.") from exc
    merged = ufw.merge(there.entries, ufw_entries(found, version))
    wanted = ufw.with_entries(there, merged)
    plan.before += [entry.told for entry in there.entries]
    plan.after += [entry.told for entry in merged]
    plan.tables[version] = parse_save(ufw.render_rules(wanted))
    if merged != there.entries:
        plan.write(path, ufw.render_rules(wanted), 0o640)
    if not look.ufw_runs:
        return False
    chain = look.tables[version]["filter"][f"{'ufw6' if version == 6 else 'ufw'}-user-input"]
    loaded = ufw.is_loaded(wanted, chain.rules, version)
    if not loaded:
        plan.texts[f"rules{version}"] = look.ufw.files[name]
    return not loaded


def _plan_ufw_state(plan: Plan, look: Look, reloads: Sequence[int]) -> None:
    if look.ufw is None:
        return
    if look.ufw.input_policy == "ACCEPT":
        plan.files += ["/etc/default/ufw", "/etc/ufw/after.rules", "/etc/ufw/after6.rules"]
        plan.run("ufw", "default", "deny", "incoming")
    if not look.ufw.enabled or not look.ufw_runs:
        # ufw itself starts it: it loads its rules first and closes last, and leaves chains of others as they are.
        plan.files += ["/etc/ufw/ufw.conf", "/etc/ufw/user.rules", "/etc/ufw/user6.rules"]
        plan.run(*(("ufw", "--force", "enable") if not look.ufw.enabled else ("ufw", "reload")))
    for version in reloads:
        restore = "ip6tables-restore" if version == 6 else "iptables-restore"
        name = "user6.rules" if version == 6 else "user.rules"
        # Without flushing others' chains; ufw's own are replaced in one step, so that nothing is ever open or cut off.
        plan.run(restore, "--noflush", f"/etc/ufw/{name}")
        plan.undo_by(restore, "--noflush", text=f"rules{version}")
    if not look.ufw_runs:
        plan.undo_by("/lib/ufw/ufw-init", "force-stop")
        for version, command in ((4, "iptables"), (6, "ip6tables")):
            for chain in ("INPUT", "FORWARD", "OUTPUT"):
                there = look.tables[version].get("filter", {}).get(chain)
                if there is not None and there.policy != "ACCEPT":
                    plan.undo_by(command, "--policy", chain, there.policy)
    elif look.ufw.input_policy == "ACCEPT":
        plan.undo_by("ufw", "reload")
    if not look.ufw.at_boot:
        plan.run("systemctl", "--quiet", "enable", "ufw.service")
        plan.undo_by("systemctl", "--quiet", "disable", "ufw.service")
