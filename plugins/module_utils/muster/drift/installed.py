"""Compare the present state of a node with the record of its last installation. Pure functions."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from . import judge
from .model import DriftDifference, Subject

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    Json = Mapping[str, Any]

NONE = "none"
INFO = re.compile(r"-[^-]+\.(?:dist-info|egg-info|data)$")
REBOOTS = ("reboot", "shutdown", "poweroff", "halt", "kexec", "init 6")
MOST_PARTS = 40


def differences(node: str, now: Json, record: Json, links: Mapping[str, str]) -> Iterator[DriftDifference]:
    """Return how a node differs from its record, which muster_node/drift/record.py wrote.

    A part that is missing in the record or in the present state was not inspected and is ignored. links: paths of the
    environments by name; the default environment has the name "".
    """
    kernel, ran = str(now.get("kernel", "")), str(record.get("kernel", ""))
    if kernel and ran and kernel != ran:
        about = (Subject("package", f"linux-image-{kernel}"), Subject("boot", ""))
        yield DriftDifference(node, judge.KERNEL, f"kernel {kernel} replaced {ran}", kernel, ran, "", about)
    elif now.get("boot_id") and record.get("boot_id") and now["boot_id"] != record["boot_id"]:
        words = tuple(Subject("word", word) for word in REBOOTS)
        yield DriftDifference(node, judge.REBOOT, "the node was rebooted", "", "", "", (Subject("boot", ""), *words))
    yield from _driver(node, now, record)
    yield from _gpus(node, now, record)
    yield from _versions(node, judge.FIRMWARE, "{}", now.get("firmware"), record.get("firmware"))
    yield from _versions(node, judge.VERSION, "the package {}", now.get("packages"), record.get("packages"), "package")
    yield from _environment(node, now.get("environment"), record.get("environment"), links[""])
    named, were = now.get("named") or {}, record.get("named") or {}
    for name in sorted(links.keys() & named.keys() & were.keys()):  # environments that only the node names are ignored
        yield from _environment(node, named[name], were[name], links[name], name)


def joined(own: Collection[DriftDifference], planned: Collection[DriftDifference]) -> list[DriftDifference]:
    """Merge both lists.

    A difference in both lists is kept once: the entry for the inventory, with the subjects of the other entry added.
    """
    said: dict[tuple[str, str], DriftDifference] = {}
    for one in planned:
        for each in one.subjects:
            if each.kind in ("package", "part"):
                said.setdefault((one.node, f"{each.kind} {normal(each.name)}"), one)
    more: dict[int, tuple[Subject, ...]] = {}
    rest = []
    for one in own:
        keys = [(one.node, f"{each.kind} {normal(distribution(each.name))}") for each in one.subjects]
        first = next((said[key] for key in keys if key in said), None)
        if first is None:
            rest.append(one)
        else:
            more[id(first)] = (*more.get(id(first), ()), *one.subjects)
    return [*(replace(one, subjects=(*one.subjects, *more.get(id(one), ()))) for one in planned), *rest]


def _driver(node: str, now: Json, record: Json) -> Iterator[DriftDifference]:
    loaded, was = now.get("driver", ""), record.get("driver", "")
    if "driver" in record and loaded != was:
        about = tuple(Subject("word", word) for word in ("nvidia", "modprobe", "rmmod"))
        what = f"driver {loaded or NONE} is loaded instead of {was or NONE}"
        yield DriftDifference(node, judge.LOADED, what, loaded or NONE, was or NONE, "", (*about, Subject("boot", "")))


def _gpus(node: str, now: Json, record: Json) -> Iterator[DriftDifference]:
    seen, had = now.get("gpus"), record.get("gpus")
    if seen and had:
        for uuid in sorted(had.keys() - seen.keys()):
            yield DriftDifference(node, judge.GPU, f"GPU {uuid} ({had[uuid]}) is missing", NONE, had[uuid])
        for uuid in sorted(seen.keys() - had.keys()):
            yield DriftDifference(node, judge.GPU, f"GPU {uuid} ({seen[uuid]}) was added", seen[uuid], NONE)
        for uuid in sorted(seen.keys() & had.keys()):
            if seen[uuid] != had[uuid]:
                yield DriftDifference(node, judge.FIRMWARE, f"GPU {uuid} has different firmware", seen[uuid], had[uuid])
        return
    there, were = now.get("bus"), record.get("bus")
    if there is None or were is None:
        return
    for slot in sorted(set(were) - set(there)):
        yield DriftDifference(node, judge.GPU, f"the GPU at {slot.split()[0]} is missing on the PCI bus", NONE, slot)
    for slot in sorted(set(there) - set(were)):
        yield DriftDifference(node, judge.GPU, f"the GPU at {slot.split()[0]} was added to the PCI bus", slot, NONE)


def _versions(node: str, check: Any, called: str, now: Any, record: Any, kind: str = "") -> Iterator[DriftDifference]:
    if now is None or record is None:
        return
    for name in sorted(now.keys() | record.keys()):
        there, was = now.get(name, NONE), record.get(name, NONE)
        if there == was:
            continue
        subject = called.format(name)
        if there == NONE:
            what = f"{subject} is missing"
        elif was == NONE:
            what = f"{subject} was added"
        else:
            what = f"{subject} has a different version"
        about = (Subject(kind, name),) if kind else ()
        yield DriftDifference(node, check, what, there, was, "", about, there if kind else "")


def _environment(node: str, now: Any, record: Any, link: str, called: str = "") -> Iterator[DriftDifference]:
    """Yield the differences of an environment. called: its name; "" for the default environment."""
    if not now or not record or not record.get("parts"):
        return
    if now["name"] != record["name"]:
        switched = (Subject("file", link), Subject("word", "pytorch"))
        what = f"a different build of {called or 'the default environment'} is in use"
        yield DriftDifference(node, judge.CONTENT, what, now["name"] or NONE, record["name"], "", switched)
        return
    there, was = now["parts"], record["parts"]
    changed = [name for name in sorted(there.keys() | was.keys()) if there.get(name) != was.get(name)]
    by_distribution: dict[str, list[str]] = {}
    for name in changed:
        by_distribution.setdefault(normal(distribution(name)), []).append(name)
    for names in list(by_distribution.values())[:MOST_PARTS]:
        first = distribution(names[0])
        new, gone = all(name not in was for name in names), all(name not in there for name in names)
        how = "was added to" if new else "was removed from" if gone else "was changed in"
        parts = (Subject("part", f"{called}/{name}" if called else name) for name in names)
        about = (*parts, Subject("word", "pip"), Subject("word", first))
        what = " ".join(filter(None, (f"{first} {how} the environment", called)))
        yield DriftDifference(node, judge.CONTENT, what, ", ".join(names), "as built", "pytorch", about)


def distribution(part: str) -> str:
    """Return the package that an entry in site-packages belongs to: "six" for six, six.py and six-1.16.0.dist-info."""
    return INFO.sub("", part).removesuffix(".py").removesuffix(".pth")


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
