"""Choose which steps to run on which nodes to repair drift. Pure functions."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from ..verdict.commands import on_node
from ..verdict.words import few
from . import installed, judge

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .model import DriftDifference

# These repairs may cut connections, replace a driver or remove files, so they wait for running launches.
DISTURBING = (
    *(judge.FIREWALL, judge.MTU, judge.DRIVER, judge.STACK, judge.ENVIRONMENT),
    *(judge.UNIT, judge.SOURCES, judge.CONTENT),
)


# A package name or version.
PACKAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+:~_-]*")


class Repair(NamedTuple):
    """Tags of the steps to run on a set of nodes."""

    tags: tuple[str, ...]
    nodes: tuple[str, ...]


class RepairPlan(NamedTuple):
    """left: differences that are not repaired, with reasons."""

    repairs: list[Repair]
    left: list[str]


def condemned(failed: Sequence[DriftDifference], nodes: Sequence[str]) -> dict[str, list[str]]:
    """Return, by node, the changed parts of its environment that the step pytorch does not detect on its own.

    The step rebuilds the environment if pip's record of one of these parts is missing.
    """
    found: dict[str, list[str]] = {}
    for one in failed:
        if one.node in nodes and one.tag and one.check is judge.CONTENT:
            found.setdefault(one.node, []).extend(each.name for each in one.subjects if each.kind == "part")
    return found


def by_hand(one: DriftDifference) -> str:
    """Return the command that restores the version of a package that no step manages; "" if there is none.

    Kernels are excluded, because the newest kernel has the security fixes.
    """
    name = next((each.name for each in one.subjects if each.kind == "package"), "")
    if one.check is not judge.VERSION or name.startswith("linux-image-") or not PACKAGE.fullmatch(name):
        return ""
    if one.expected == installed.NONE:
        return on_node(one.node, "apt-get remove --yes {name}", name=name, become=True)
    if not PACKAGE.fullmatch(one.expected):
        return ""
    return on_node(
        one.node,
        "apt-get install --yes --allow-downgrades {name}={expected}",
        name=name,
        expected=one.expected,
        become=True,
    )


def plan(
    failed: Sequence[DriftDifference], busy: Mapping[str, Sequence[str]], order: Sequence[str], reached: Sequence[str]
) -> RepairPlan:
    """Plan the repair. failed: the differences to repair. busy: running launches by node. order: the order of the
    steps. reached: the nodes that responded.

    Keys and logins between nodes are restored on all nodes that responded, because the nodes exchange this data.
    """
    left: list[str] = []
    by_tag: dict[str, list[str]] = {}
    for node in dict.fromkeys(one.node for one in failed):
        own = [one for one in failed if one.node == node and one.tag]
        for tag in (tag for tag in order if any(one.tag == tag for one in own)):
            disturbing = [one for one in own if one.tag == tag and one.check in DISTURBING]
            if busy.get(node) and disturbing:
                what = few([one.what for one in disturbing])
                left.append(f"{node}: {tag} waits until {few(list(busy[node]))} has finished: {what}")
            else:
                by_tag.setdefault(tag, []).append(node)
        left += [f"{node}: no step restores this: {one.what}" for one in failed if one.node == node and not one.tag]
    for tag in {one.tag for one in failed if one.check is judge.SSH and one.node in by_tag.get(one.tag, ())}:
        waits = {one.node for one in failed if one.tag == tag and one.check in DISTURBING and busy.get(one.node)}
        by_tag[tag] = [node for node in reached if node not in waits]
    repairs: list[Repair] = []
    for tag in (tag for tag in order if tag in by_tag):
        nodes = tuple(node for node in reached if node in by_tag[tag])
        if repairs and repairs[-1].nodes == nodes:
            repairs[-1] = Repair((*repairs[-1].tags, tag), nodes)
        else:
            repairs.append(Repair((tag,), nodes))
    return RepairPlan(repairs, left)
