"""Which steps put back what drifted, on which nodes: pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ..verdict.words import few
from . import checks

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .model import Difference

# A connection may be cut, a driver replaced or files taken away: not under a launch.
DISTURBING = (
    *(checks.FIREWALL, checks.MTU, checks.DRIVER, checks.STACK, checks.ENVIRONMENT),
    *(checks.UNIT, checks.SOURCES, checks.CONTENT),
)


class Repair(NamedTuple):
    """Steps by their tags, for some nodes."""

    tags: tuple[str, ...]
    nodes: tuple[str, ...]


class Plan(NamedTuple):
    """left: what is not repaired, and why."""

    repairs: list[Repair]
    left: list[str]


def condemned(failed: Sequence[Difference], nodes: Sequence[str]) -> dict[str, list[str]]:
    """By node, the parts of its environment that were changed in a way that the step pytorch does not see.

    It builds anew once what pip wrote down of one of them is gone.
    """
    found: dict[str, list[str]] = {}
    for one in failed:
        if one.node in nodes and one.tag and one.check is checks.CONTENT:
            found.setdefault(one.node, []).extend(each.name for each in one.subjects if each.kind == "part")
    return found


def plan(failed: Sequence[Difference], busy: Mapping[str, Sequence[str]], order: Sequence[str]) -> Plan:
    """failed: what drifted. busy: the launches of each node that runs some. order: of the steps."""
    by_node: dict[str, set[str]] = {}
    left: list[str] = []
    for node in dict.fromkeys(one.node for one in failed):
        own = [one for one in failed if one.node == node and one.tag]
        for tag in (tag for tag in order if any(one.tag == tag for one in own)):
            disturbing = [one for one in own if one.tag == tag and one.check in DISTURBING]
            if busy.get(node) and disturbing:
                what = few([one.what for one in disturbing])
                left.append(f"{node}: {tag} waits for the end of {few(list(busy[node]))}: {what}")
            else:
                by_node.setdefault(node, set()).add(tag)
        rest = [one for one in failed if one.node == node and one not in own]
        left += [f"{node}: no step puts this back: {one.what}" for one in rest]
    together: dict[tuple[str, ...], list[str]] = {}
    for node, tags in by_node.items():
        together.setdefault(tuple(tag for tag in order if tag in tags), []).append(node)
    return Plan([Repair(tags, tuple(nodes)) for tags, nodes in together.items()], left)
