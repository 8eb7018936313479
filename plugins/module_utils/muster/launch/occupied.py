"""Who has what a launch needs, in findings: which node, who, since when, and how to look, wait or share."""

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
    reads="the locks of the GPUs (of the processors, for a launch on CPUs), the processes that nvidia-smi lists as "
    "computing, and who has the master port",
    fires="another launch, or a process outside of launches, has what this one needs on a node (fail; warn with "
    "launch_shared); nvidia-smi does not say who computes (warn)",
    fix="Wait for it with launch_wait, share with it with launch_shared, or stop it",
)
WAIT_OR_SHARE = "Wait for it with -e launch_wait=true, or share with it with -e launch_shared=true. Look at it with"
BESIDE_A_SCREEN = f"Compute beside it with -e launch_shared=true, or do without it. {processes.SCREEN_HOW}"
# By the name that the kernel keeps: the Multi-Process Service, whose clients are listed by themselves.
SERVES = "nvidia-cuda-mps"


def on_seats(seats: Iterable[str], occupied: Occupied) -> dict[str, list[Holder]]:
    """By seat: who has its lock, and who computes on it; without what keeps GPUs ready for others."""
    return {
        seat: [
            *occupied["held"].get(seat, []),
            *(one for one in occupied["computing"].get(seat, []) if not (keeps_ready(one) or one["name"] == SERVES)),
        ]
        for seat in seats
    }


def launches_on(port: PortFacts | None) -> dict[str, list[Holder]]:
    """The port, if launches hold it: to take another one would lead into the same GPUs."""
    launches = [holder for holder in port["holders"] if holder["launch_id"]] if port and not port["free"] else []
    return {f"port {port['port']}": launches} if port and launches else {}


def taken(
    node: str, held: Mapping[str, Sequence[Holder]], *, shared: bool = False, begun_here: Collection[str] = ()
) -> Iterator[Finding]:
    """One finding for each launch, and each process outside of launches. begun_here: launches that are known here."""
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
            yield TAKEN.warn(node, summary, "Expect both to be slower. Look at it with", command, observed=who)
        else:
            fix = WAIT_OR_SHARE
            if is_screen(holder["name"]) and not holder["launch_id"]:
                fix, command = BESIDE_A_SCREEN, processes.SCREEN_END
            yield TAKEN.fail(node, f"{describe(holder)} has {named(things)}", fix, command, observed=who)


def unknown(node: str, occupied: Occupied) -> Iterator[Finding]:
    if occupied["why"]:
        text = f"who computes on its GPUs outside of launches is not known: {occupied['why']}"
        yield TAKEN.warn(node, text, "Look with", "nvidia-smi")


def named(things: Sequence[str]) -> str:
    """GPUs together: "GPUs 0, 1 and port 29500"."""
    prefix = GPU.format("")
    numbers = [thing.removeprefix(prefix) for thing in things if thing.startswith(prefix)]
    gpus = [f"GPU{'s' if len(numbers) > 1 else ''} {few(numbers)}"] if numbers else []
    others = ["its processors" if thing == PROCESSORS else thing for thing in things if not thing.startswith(prefix)]
    return " and ".join([*gpus, *others])


def describe(holder: Holder) -> str:
    if holder["pid"] is None:
        if holder["user"]:
            return f"a process of {holder['user']} that only root sees"
        return "a process in another container or namespace"
    began = f", began {age(holder['seconds'])} ago" if holder["seconds"] is not None else ""
    user = holder["user"] or "an unknown user"
    if holder["launch_id"]:
        return f"launch {holder['launch_id']} of {user} (PID {holder['pid']}{began})"
    return describe_process(holder, began)


def describe_process(one: ProcessFacts | Holder, began: str = "") -> str:
    unit = f", unit {one['unit']}" if one["unit"] else ""
    command = masked_command(one["command"]) or "no command line"
    return f"PID {one['pid']} of {one['user'] or 'an unknown user'} ({command}{unit}{began})"


def look_at(node: str, holder: Holder, begun_here: Collection[str]) -> str:
    """What to type to see it. A launch that still has its supervisor is not attached to a second time."""
    if holder["launch_id"] in begun_here and holder["detached"]:
        return playbook("playbooks/launch.yml", launch_attach=holder["launch_id"])
    if holder["launch_id"] and holder["manager_of"] is None:
        return on_node(node, "systemctl status {launch_id}", launch_id=LAUNCH_UNIT.format(holder["launch_id"]))
    if holder["pid"] is None:
        return on_node(node, "ps -ef")
    return on_node(node, "ps -fp {pid}", pid=holder["pid"])
