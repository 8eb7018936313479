"""Services that the planned firewall would block, and whether a run may block them."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from ..verdict.check import Check
from ..verdict.words import few
from .forwarding import FORWARD_CUT_OFF, ForwardingCutOff
from .judge import entry, outside_sockets, packet_to, receives_replies, scene_now

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from ..network.listeners import ListeningSocket
    from ..verdict.finding import Finding
    from .judge import Scene
    from .look import FirewallState
    from .model import FirewallRequest

SERVICE_CUT_OFF = Check(
    "firewall.service.cut_off",
    seen="recording",
    reads="the listening sockets and the planned rules",
    fires="the planned rules would block a service that other hosts can reach now (warn; site.yml and"
    " playbooks/network.yml stop before any change)",
    fix="Add the entry shown to firewall_allow, or the name of the service to firewall_cut",
)
KERNEL = "kernel"  # as the name of sockets without a process


@dataclass(frozen=True)
class KnownService:
    """An entry of roles/firewall/files/services.yml, which describes the fields. default: a run may block it."""

    name: str
    processes: Sequence[str] = ()
    units: Sequence[str] = ()
    ports: Sequence[str] = ()
    also: Sequence[str] = ()
    default: bool = False

    def matches(self, socket: ListeningSocket, unit: str) -> bool:
        if self.default:
            return _port(socket) in self.ports and _is_one_of(socket, self.processes)
        if not socket.process:
            return _port(socket) in self.ports
        return unit in self.units or _is_one_of(socket, self.processes)


@dataclass(frozen=True)
class ServiceCutOff:
    """A service that the planned rules would block. known: whether its name is from services.yml. connected: hosts
    outside the cluster that use it now. why: why the run may block it; "" if it must be allowed or waived first.
    """

    name: str
    known: bool
    owners: Sequence[str]
    sockets: Sequence[ListeningSocket]
    connected: Sequence[str]
    why: str

    @property
    def in_words(self) -> str:
        ports = [_port(socket) for socket in self.sockets]
        owners = ", ".join(self.owners)
        who = owners if owners.startswith(self.name) else f"{self.name} ({owners})"
        connected = f" (connected now: {few(self.connected)})" if self.connected else ""
        return f"{who}, port{'s' if len(ports) > 1 else ''} {', '.join(ports)}{connected}"

    @property
    def entries(self) -> list[str]:
        """The entries of firewall_allow that keep it reachable."""
        return [entry(socket, self.name) for socket in self.sockets]

    @property
    def cut(self) -> list[str]:
        """The entries of firewall_cut that waive it."""
        return [self.name] if self.known else [_port(socket) for socket in self.sockets]


CutOff = ServiceCutOff | ForwardingCutOff


def read_known(raw: Mapping[str, Any]) -> tuple[KnownService, ...]:
    """Return the services of roles/firewall/files/services.yml. Those of a lab take precedence."""
    neighbours = [KnownService(**one) for one in raw["neighbours"]]
    return (*neighbours, *(KnownService(**one, default=True) for one in raw["defaults"]))


def services_cut_off(
    request: FirewallRequest, look: FirewallState, planned: Scene, known: Sequence[KnownService]
) -> list[ServiceCutOff]:
    """Return the services that other hosts can reach now, or perhaps, but not with the planned rules."""
    sockets = sorted(_sockets_cut_off(request, look, planned, known), key=lambda one: (one.port, one.proto))
    present = [one for one in known if any(one.matches(socket, _unit(look, socket)) for socket in sockets)]
    names = {one.name: one for one in present}
    groups: dict[tuple[str, str], list[ListeningSocket]] = {}
    for socket in sockets:
        found = [one for one in present if one.matches(socket, _unit(look, socket))]
        if all(one.default for one in found):
            found = [*(one for one in present if _is_one_of(socket, one.also)), *found]
        groups.setdefault((found[0].name, "") if found else ("", _owner(look, socket)), []).append(socket)
    return [_service(request, look, names.get(name), group) for (name, _), group in groups.items()]


def _sockets_cut_off(
    request: FirewallRequest, look: FirewallState, planned: Scene, known: Sequence[KnownService]
) -> Iterator[ListeningSocket]:
    now = scene_now(look)
    udp = {port for one in known for port in one.ports}
    for socket in outside_sockets(look):
        if receives_replies(look, socket) and socket.process and _port(socket) not in udp:
            continue
        if any(socket.proto in one.protos and one.ports[0] <= socket.port <= one.ports[1] for one in request.allowed):
            continue  # perhaps for some sources only, as the inventory says
        packet = packet_to(look, socket)
        before = now.outcome(packet).verdict
        if before in ("accept", "unknown") and planned.outcome(packet).verdict not in ("accept", before):
            yield socket


def _service(
    request: FirewallRequest, look: FirewallState, known: KnownService | None, group: Sequence[ListeningSocket]
) -> ServiceCutOff:
    ours = {*request.peers.values(), *look.interfaces}
    connected = [address for one in group if one.proto == "tcp" for address in look.connected.get(one.port, ())]
    name = known.name if known else _first(group[0])
    waived = all(
        request.cut & {name.lower(), _port(one), str(one.port), *one.process.lower().split(", ")} for one in group
    )
    return ServiceCutOff(
        name=name,
        known=known is not None,
        owners=list(dict.fromkeys(_owner(look, one) for one in group)),
        sockets=list({_port(one): one for one in group}.values()),
        connected=[address for address in dict.fromkeys(connected) if address not in ours],
        why="in firewall_cut" if waived else "default installation" if known and known.default else "",
    )


def _is_one_of(socket: ListeningSocket, patterns: Iterable[str]) -> bool:
    names = socket.process.split(", ")
    return any(fnmatchcase(name, pattern) for name in names for pattern in patterns)


def _port(socket: ListeningSocket) -> str:
    return f"{socket.port}/{socket.proto}"


def _first(socket: ListeningSocket) -> str:
    return socket.process.partition(",")[0] or KERNEL


def _unit(look: FirewallState, socket: ListeningSocket) -> str:
    return look.units.get(socket.pid or 0, "")


def _owner(look: FirewallState, socket: ListeningSocket) -> str:
    """Return the process with its unit, which is the same on all nodes, or else with its PID."""
    unit = _unit(look, socket)
    if socket.pid is None:
        return KERNEL
    return f"{_first(socket)} {f'in {unit}' if unit.endswith('.service') else f'with PID {socket.pid}'}"


# ---------------------------------------------------------------- results


def findings_of(node: str, services: Sequence[CutOff]) -> list[Finding]:
    """Return a warning for each service that must be allowed or waived, and one finding for all others."""
    may, asked = [one for one in services if one.why], [one for one in services if not one.why]
    found = [
        FORWARD_CUT_OFF.warn(
            node,
            f"the firewall (default deny) would block {one.in_words}",
            f"To block them, add {one.name} to firewall_cut; to keep them, run on the node",
            one.command,
        )
        if isinstance(one, ForwardingCutOff)
        else SERVICE_CUT_OFF.warn(
            node,
            f"the firewall (default deny) would block a service for other hosts: {one.in_words}",
            f"To keep it reachable, add {', '.join(one.entries)} to firewall_allow;"
            f" to block it, add {', '.join(one.cut)} to firewall_cut",
        )
        for one in asked
    ]
    if may:
        listed = "; ".join(f"{one.in_words} [{one.why}]" for one in may)
        found.append(SERVICE_CUT_OFF.passed(node, f"the firewall (default deny) may block {listed}"))
    return found


def refusal(services: Mapping[str, Sequence[CutOff]]) -> str:
    """Return why a run must stop before any change; "" if it can continue. services: by node."""
    asked = [(node, one) for node, found in services.items() for one in found if not one.why]
    nodes: dict[str, list[str]] = {}
    for node, one in asked:
        nodes.setdefault(one.in_words, []).append(node)
    entries = dict.fromkeys(entry for _, one in asked if isinstance(one, ServiceCutOff) for entry in one.entries)
    commands = dict.fromkeys(one.command for _, one in asked if isinstance(one, ForwardingCutOff))
    cut = dict.fromkeys(name for _, one in asked for name in one.cut)
    if not nodes:
        return ""
    blocked = ["services that other hosts can reach now"] * bool(entries) + ["forwarded packets"] * bool(commands)
    lines = [f"The firewall (default deny) would block {' and '.join(blocked)}. Nothing was changed."]
    lines += [f"- {', '.join(names)}: {service}" for service, names in nodes.items()]
    if entries:
        lines.append("To keep services reachable, add them to firewall_allow in the inventory (group_vars/all.yml):")
        lines.append(f"firewall_allow: [{', '.join(entries)}]")
    if commands:
        lines += ["To keep forwarded packets, run on the nodes shown:", *commands]
    what = " or ".join(["services"] * bool(entries) + ["forwarded packets"] * bool(commands))
    return "\n".join([*lines, f"To block {what}, add them to firewall_cut:", f"firewall_cut: [{', '.join(cut)}]"])
