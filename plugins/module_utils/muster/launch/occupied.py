"""Findings about resources that another launch or process holds, with commands to inspect the holder, wait or share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..gpu_info import processes
from ..gpu_info.processes import is_screen, keeps_ready
from ..verdict.check import Check
from ..verdict.commands import on_node, playbook
from ..verdict.masking import masked_command
from ..verdict.words import age, few
from .reservation import GPU, PROCESSORS
from .unit import LAUNCH_UNIT

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from ..verdict.finding import Finding
    from .messages import PortFacts, ProcessFacts
    from .reservation import Holder, Occupied

TAKEN = Check(
    "launch.taken",
    seen="sandbox",
    reads="the locks of the GPU slots (for a launch on CPUs: of the CPU slot), the compute processes that nvidia-smi "
    "lists, and the processes that use the master port",
    fires="another launch, or a process outside of launches, holds a resource that this launch needs (fail; warn with "
    "launch_shared); nvidia-smi does not list compute processes (warn)",
    fix="Wait with launch_wait, share the resource with launch_shared, or stop the other launch or process",
)
WAIT_OR_SHARE = "Wait with -e launch_wait=true, or share with -e launch_shared=true. Inspect the holder with"
BESIDE_A_SCREEN = f"Share the GPU with -e launch_shared=true. {processes.SCREEN_HOW}"
# The kernel's name of the Multi-Process Service, whose clients are listed separately.
SERVES = "nvidia-cuda-mps"


def on_seats(seats: Iterable[str], occupied: Occupied) -> dict[str, list[Holder]]:
    """Return the lock holders and compute processes of each slot.

    Services that only keep GPUs initialised are left out.
    """
    return {
        seat: [
            *occupied["held"].get(seat, []),
            *(one for one in occupied["computing"].get(seat, []) if not (keeps_ready(one) or one["name"] == SERVES)),
        ]
        for seat in seats
    }


def launches_on(port: PortFacts | None) -> dict[str, list[Holder]]:
    """Return the launches that use the port.

    Changing the port does not help, because these launches also hold the GPUs.
    """
    launches = [holder for holder in port["holders"] if holder["launch_id"]] if port and not port["free"] else []
    return {f"port {port['port']}": launches} if port and launches else {}


def taken(
    node: str, held: Mapping[str, Sequence[Holder]], *, shared: bool = False, begun_here: Collection[str] = ()
) -> Iterator[Finding]:
    """Yield a finding for each launch, and for each process outside of launches.

    begun_here: launches started by this controller.
    """
    found: dict[str, tuple[Holder, list[str]]] = {}
    for thing, holders in held.items():
        for holder in holders:
            things = found.setdefault(holder["launch_id"] or str(holder["pid"]), (holder, []))[1]
            things += [thing] if thing not in things else []
    for holder, things in found.values():
        command = look_at(node, holder, begun_here)
        who = f"launch {holder['launch_id']}" if holder["launch_id"] else f"PID {holder['pid']}"
        if shared:
            summary = f"this launch shares {named(things)} with {describe(holder)} (launch_shared)"
            yield TAKEN.warn(node, summary, "Expect both to run slower. Inspect the holder with", command, observed=who)
        else:
            fix = WAIT_OR_SHARE
            if is_screen(holder["name"]) and not holder["launch_id"]:
                fix, command = BESIDE_A_SCREEN, processes.SCREEN_END
            yield TAKEN.fail(node, f"{describe(holder)} holds {named(things)}", fix, command, observed=who)


def unknown(node: str, occupied: Occupied) -> Iterator[Finding]:
    if occupied["why"]:
        text = f"GPU processes outside of launches are unknown: {occupied['why']}"
        yield TAKEN.warn(node, text, "Check with", "nvidia-smi")


def named(things: Sequence[str]) -> str:
    """Return the names of resources as text, such as "GPUs 0, 1 and port 29500"."""
    prefix = GPU.format("")
    numbers = [thing.removeprefix(prefix) for thing in things if thing.startswith(prefix)]
    gpus = [f"GPU{'s' if len(numbers) > 1 else ''} {few(numbers)}"] if numbers else []
    others = ["the CPU slot" if thing == PROCESSORS else thing for thing in things if not thing.startswith(prefix)]
    return " and ".join([*gpus, *others])


def describe(holder: Holder) -> str:
    if holder["pid"] is None:
        if holder["user"]:
            return f"a process of {holder['user']} that only root can inspect"
        return "a process in another container or namespace"
    began = f", started {age(holder['seconds'])} ago" if holder["seconds"] is not None else ""
    user = holder["user"] or "an unknown user"
    if holder["launch_id"]:
        return f"launch {holder['launch_id']} of {user} (PID {holder['pid']}{began})"
    return describe_process(holder, began)


def describe_process(one: ProcessFacts | Holder, began: str = "") -> str:
    unit = f", unit {one['unit']}" if one["unit"] else ""
    command = masked_command(one["command"]) or "no command line"
    return f"PID {one['pid']} of {one['user'] or 'an unknown user'} ({command}{unit}{began})"


def look_at(node: str, holder: Holder, begun_here: Collection[str]) -> str:
    """Return the command that inspects a holder. Only a detached launch can be attached to."""
    if holder["launch_id"] in begun_here and holder["detached"]:
        return playbook("playbooks/launch.yml", launch_attach=holder["launch_id"])
    if holder["launch_id"] and holder["manager_of"] is None:
        return on_node(node, "systemctl status {launch_id}", launch_id=LAUNCH_UNIT.format(holder["launch_id"]))
    if holder["pid"] is None:
        return on_node(node, "ps -ef")
    return on_node(node, "ps -fp {pid}", pid=holder["pid"])
