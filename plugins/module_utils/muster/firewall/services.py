"""Services that the planned firewall would block, and whether a run may block them."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from ..verdict.check import Check
from ..verdict.words import few
from .judge import entry, outside_sockets, packet_to, receives_replies, scene_now
from .model import CutOff

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
    reads="the listening sockets, the networks behind the node and the planned rules",
    fires="the planned rules would block a service that other hosts can reach now, or packets that the node forwards"
    " now for virtual machines, containers, a VPN or NAT (warn; site.yml and playbooks/network.yml stop before any"
    " change)",
    fix="Add the entry shown to firewall_allow or run the command shown, or add the name to firewall_cut",
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


def read_known(raw: Mapping[str, Any]) -> tuple[KnownService, ...]:
    """Return the services of roles/firewall/files/services.yml. Those of a lab take precedence."""
    neighbours = [KnownService(**one) for one in raw["neighbours"]]
    return (*neighbours, *(KnownService(**one, default=True) for one in raw["defaults"]))


def services_cut_off(
    request: FirewallRequest, look: FirewallState, planned: Scene, known: Sequence[KnownService]
) -> list[CutOff]:
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
        if socket.proto == "tcp" and socket.port in look.ssh_ports:
            continue  # always allowed; if other rules block it, the plan is rejected or the node reverts the change
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
) -> CutOff:
    ours = {*request.peers.values(), *look.interfaces}
    addresses = [address for one in group if one.proto == "tcp" for address in look.connected.get(one.port, ())]
    name = known.name if known else _first(group[0])
    waived = all(
        request.cut & {name.lower(), _port(one), str(one.port), *one.process.lower().split(", ")} for one in group
    )
    sockets = list({_port(one): one for one in group}.values())
    ports = [_port(socket) for socket in sockets]
    owners = ", ".join(dict.fromkeys(_owner(look, one) for one in group))
    who = owners if owners.startswith(name) else f"{name} ({owners})"
    others = [address for address in dict.fromkeys(addresses) if address not in ours]
    connected = f" (connected now: {few(others)})" if others else ""
    return CutOff(
        f"{who}, port{'s' if len(ports) > 1 else ''} {', '.join(ports)}{connected}",
        [name] if known else ports,
        "in firewall_cut" if waived else "default installation" if known and known.default else "",
        [entry(socket, name) for socket in sockets],
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


def findings_of(node: str, blocked: Sequence[CutOff]) -> list[Finding]:
    """Return a warning for each service that must be allowed or waived, and one finding for all others."""
    may, asked = [one for one in blocked if one.why], [one for one in blocked if not one.why]
    service = "a service for other hosts: "
    found = [
        SERVICE_CUT_OFF.warn(
            node,
            f"the firewall (default deny) would block {service if one.entries else ''}{one.in_words}",
            f"To block it, add {', '.join(one.cut)} to firewall_cut; to keep it reachable, "
            + (f"add {', '.join(one.entries)} to firewall_allow" if one.entries else "run on the node"),
            one.command,
        )
        for one in asked
    ]
    if may:
        listed = "; ".join(f"{one.in_words} [{one.why}]" for one in may)
        found.append(SERVICE_CUT_OFF.passed(node, f"the firewall (default deny) may block {listed}"))
    return found


def refusal(blocked: Mapping[str, Sequence[CutOff]]) -> str:
    """Return why a run must stop before any change; "" if it can continue. blocked: by node."""
    asked = [(node, one) for node, found in blocked.items() for one in found if not one.why]
    nodes: dict[str, list[str]] = {}
    for node, one in asked:
        nodes.setdefault(one.in_words, []).append(node)
    entries = dict.fromkeys(entry for _, one in asked for entry in one.entries)
    commands = dict.fromkeys(one.command for _, one in asked if one.command)
    cut = dict.fromkeys(name for _, one in asked for name in one.cut)
    if not nodes:
        return ""
    what = ["services that other hosts can reach now"] * bool(entries) + ["forwarded packets"] * bool(commands)
    lines = [f"The firewall (default deny) would block {' and '.join(what)}. Nothing was changed."]
    lines += [f"- {', '.join(names)}: {text}" for text, names in nodes.items()]
    if entries:
        lines.append("To keep services reachable, add them to firewall_allow in the inventory (group_vars/all.yml):")
        lines.append(f"firewall_allow: [{', '.join(entries)}]")
    if commands:
        lines += ["To keep forwarded packets, run on the nodes shown:", *commands]
    lines.append(f"To block {'services' if entries else 'forwarded packets'}, add them to firewall_cut:")
    return "\n".join([*lines, f"firewall_cut: [{', '.join(cut)}]"])
