"""Parses a node's status report (muster_node/programs/status.py), which is untrusted input, into a bounded shape."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..gpu_info.processes import HELD_MIB, is_screen, keeps_ready
from ..inspect.facts import next_boot_facts
from ..launch.occupied import SERVES
from ..launch.reservation import GPU, PROCESSORS
from ..launch.unit import LAUNCH_ID
from ..nvidia_driver.next_boot import next_boot
from ..verdict.printable import printable
from ..verdict.words import age, plural
from ..watch.answer import NODE, outdated

MOST = 128  # GPUs, launches, holders
MOST_TEXT = 80
MOST_OF_A_SENTENCE = 300
A_NOTEBOOK = re.compile(r"ipykernel|jupyter", re.IGNORECASE)
UNSEEN = "a process that nvidia-smi does not list"


@dataclass(frozen=True)
class NodeHolder:
    """A launch or process that uses a node's resources. launch_id: "" for a process outside launches, in which case
    `what` is "notebook" or "process"."""

    launch_id: str = ""
    user: str = ""
    own: bool = False
    seconds: float | None = None
    pid: int | None = None
    name: str = ""
    what: str = ""


@dataclass(frozen=True)
class NodeFacts:
    """The current state of a node.

    gpus: numbers of the listed GPUs. holders: the users of each GPU; several if it is shared. why: why no GPU is listed
    although devices exist. unknown: GPUs for which it cannot be determined whether a launch uses them. processors: the
    running launches on a node without GPUs. complete: whether processes of other users are visible. next_boot: why the
    driver would not work after a reboot.
    """

    gpus: tuple[int, ...] = ()
    devices: int = 0
    holders: Mapping[int, tuple[NodeHolder, ...]] = field(default_factory=dict)
    unknown: frozenset[int] = frozenset()
    launches: tuple[NodeHolder, ...] = ()
    processors: tuple[NodeHolder, ...] = ()
    why: str = ""
    complete: bool = True
    root: bool = False
    versions: Mapping[str, str] = field(default_factory=dict)
    torch_why: str = ""
    restart: bool = False
    next_boot: str = ""
    disk: Mapping[str, Any] = field(default_factory=dict)
    clock: float | None = None
    checked: OwnCheck | None = None


@dataclass(frozen=True)
class OwnCheck:
    """The last check that a node made by itself. fault: of the node; note: of a user, or why the result is outdated.
    age: seconds. past: faults of the node in the day before, if the last check found none."""

    age: float
    fault: str = ""
    note: str = ""
    past: str = ""


def needs_root(answer: Mapping[str, Any]) -> bool:
    """Return whether only root can determine which launch has a GPU. This is the case if a launch is running, the
    asking user cannot read its GPU slots, and a GPU without processes might belong to it. Launch users can read the GPU
    slots."""
    seen = read(answer)
    who = answer.get("who")
    own = isinstance(who, Mapping) and who.get("launch_user") is True
    return bool(seen.unknown) and not seen.root and not own


def read(answer: Mapping[str, Any]) -> NodeFacts:
    """Parse an answer. Unusable parts are left out."""
    launches = {key: one for one in _rows(answer, "launches") if (key := _key(one))}
    known = {key: _launch(key, one) for key, one in launches.items()}
    gpus = {number: one for one in _rows(answer, "gpus") if (number := _number(one.get("index"))) is not None}
    held = answer.get("held")
    seats = held if isinstance(held, Mapping) else {}
    of_gpus = {number: _holders(number, one, answer, seats, known) for number, one in gpus.items()}
    holders = {number: found for number, found in of_gpus.items() if found}
    complete = answer.get("sees_all") is True
    blind = not complete or bool(known and answer.get("seats_seen") is not True)
    # Without a running launch, no launch has a GPU.
    unknown = frozenset(number for number in gpus if number not in holders) if blind else frozenset()
    began = {key for key, one in launches.items() if one.get("began") is True}
    taken = {(uid, launch_id) for uid, launch_id in map(_seat, _entries(seats, PROCESSORS))} | began
    who = answer.get("who")
    disk = answer.get("disk")
    return NodeFacts(
        gpus=tuple(sorted(gpus)),
        devices=_number(answer.get("devices")) or 0,
        holders=holders,
        unknown=unknown,
        launches=tuple(known.values()),
        processors=tuple(one for key, one in known.items() if key in taken) if not gpus else (),
        why=text(answer.get("why")),
        complete=complete,
        root=isinstance(who, Mapping) and who.get("root") is True,
        versions=_versions(answer),
        torch_why=text(_torch(answer).get("why")),
        restart=answer.get("restart") is True,
        next_boot=_next_boot(answer.get("next_boot")),
        disk=disk if isinstance(disk, Mapping) else {},
        clock=_float(answer.get("clock")),
        checked=_own_check(answer.get("checked"), _float(answer.get("clock"))),
    )


def _own_check(said: Any, clock: float | None) -> OwnCheck | None:
    when = _float(said.get("when")) if isinstance(said, Mapping) else None
    if when is None or clock is None:
        return None
    late = outdated({"when": when}, _float(said.get("interval")) or 0.0, clock)
    reason = text(said.get("reason"))
    is_fault = said.get("owner") == NODE and not late
    past = "" if is_fault else _past_faults(said.get("day"), clock)
    return OwnCheck(clock - when, reason if is_fault else "", late or ("" if is_fault else reason), past)


def _past_faults(day: Any, clock: float) -> str:
    count = _number(day.get("faults")) if isinstance(day, Mapping) else None
    when = _float(day.get("when")) if count else None
    if not count or when is None:
        return ""
    checks = plural(_number(day.get("checks")) or count, "own check")
    return (
        f"{count} of {checks} in a day found a fault, the last one {age(clock - when)} ago: {text(day.get('reason'))}"
    )


def _holders(
    number: int,
    gpu: Mapping[str, Any],
    answer: Mapping[str, Any],
    seats: Mapping[str, Any],
    known: Mapping[tuple[int | None, str], NodeHolder],
) -> tuple[NodeHolder, ...]:
    """Return the users of a GPU without duplicates: first the launches, by GPU slots and processes, then other
    processes."""
    found: dict[Any, NodeHolder] = {}
    for seat in map(_seat, _entries(seats, GPU.format(number))):
        found[seat] = known.get(seat) or NodeHolder(launch_id=seat[1])
    computing = answer.get("computing")
    serving = False
    for one in _rows(computing if isinstance(computing, Mapping) else {}, GPU.format(number)):
        key = _key(one)
        if key:
            found[key] = known.get(key) or NodeHolder(launch_id=key[1])
            continue
        process = {"unit": text(one.get("unit")), "name": text(one.get("name"))}
        if keeps_ready(process) or process["name"] == SERVES or is_screen(process["name"]):
            serving = True
        else:
            found[_number(one.get("pid")), process["name"]] = _process(one)
    used = _number(gpu.get("used"))
    if not found and not serving and used is not None and used > HELD_MIB:
        found[None] = NodeHolder(what=UNSEEN)
    return tuple(found.values())[:MOST]


def _process(one: Mapping[str, Any]) -> NodeHolder:
    """Describe a process. The command line is used only to recognize a notebook, because the owner of the process
    controls the text."""
    notebook = A_NOTEBOOK.search(str(one.get("command"))[: MOST_TEXT * 4])
    return NodeHolder(
        user=text(one.get("user")),
        seconds=_float(one.get("seconds")),
        pid=_number(one.get("pid")),
        name=text(one.get("name")),
        what="notebook" if notebook else "process",
    )


def _launch(key: tuple[int | None, str], one: Mapping[str, Any]) -> NodeHolder:
    return NodeHolder(key[1], text(one.get("user")), key[0] is not None, _float(one.get("seconds")))


def _key(one: Mapping[str, Any]) -> tuple[int | None, str] | None:
    launch_id, uid = one.get("launch_id"), one.get("manager_of")
    if not isinstance(launch_id, str) or not LAUNCH_ID.match(launch_id):
        return None
    return (uid if isinstance(uid, int) else None, launch_id)


def _seat(entry: Any) -> tuple[int | None, str]:
    """Parse [uid or None, launch ID], which identifies the launch that holds a GPU slot."""
    uid, launch_id = entry if isinstance(entry, list) and len(entry) == 2 else (None, "")
    return (uid if isinstance(uid, int) else None, launch_id if LAUNCH_ID.match(str(launch_id)) else "?")


def _next_boot(look: Any) -> str:
    if not look:
        return ""
    try:
        seen = next_boot_facts(look)
        boot = next_boot(seen, secure_boot=seen["secure_boot"], key_enrolled=seen["key_enrolled"])
    except (AttributeError, KeyError, TypeError, ValueError):
        return "whether the driver works after the next boot is unknown: the node's report is invalid"
    return text(boot.sentence, MOST_OF_A_SENTENCE)


def _versions(answer: Mapping[str, Any]) -> dict[str, str]:
    """Return {driver, cuda, torch, kernel}. Unknown versions are left out."""
    torch = _torch(answer)
    said = {
        "driver": answer.get("driver"),
        "cuda": torch.get("cuda"),
        "torch": torch.get("version"),
        "kernel": answer.get("kernel"),
    }
    return {name: shown for name, value in said.items() if (shown := text(value))}


def _torch(answer: Mapping[str, Any]) -> Mapping[str, Any]:
    torch = answer.get("torch")
    return torch if isinstance(torch, Mapping) else {}


def _rows(answer: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    return [one for one in _entries(answer, name) if isinstance(one, Mapping)]


def _entries(holder: Mapping[str, Any], name: str) -> list[Any]:
    found = holder.get(name)
    return found[:MOST] if isinstance(found, list) else []


def text(value: Any, most: int = MOST_TEXT) -> str:
    """Return a text as one short line of printable characters; "" for a value of any other type."""
    return " ".join(printable(value[: 4 * most]).split())[:most] if isinstance(value, str) else ""


def _number(value: Any) -> int | None:
    if isinstance(value, str) and value.isdecimal() and len(value) < 12:
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 40 else None


def _float(value: Any) -> float | None:
    number = isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e15
    return float(value) if number else None
