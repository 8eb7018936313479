"""Nodes that leave the cluster: what stands against it, and what is said of it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ..verdict.commands import playbook
from ..verdict.words import few
from .quarantine import ranks_said

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
# Where the playbook's first play, which refuses these, was itself left out by --skip-tags always.
PART = "Run it without --limit and tags: nodes that are left out would go on trusting the one that leaves."
DRIVER = "wipe_driver: it goes with Muster's own things alone: add -e wipe=true, or leave wipe_driver out."
GONE = "only the inventory knew the way to it"

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence


def problems(
    names: Sequence[str],
    nodes: Sequence[str],
    chosen: Collection[str],
    *,
    wipe: bool = False,
    wipe_driver: bool = False,
) -> list[str]:
    """Why these cannot leave, all at once. nodes: those of the inventory. chosen: cluster_launch_nodes.

    One that is not in the inventory may have left it in a run that was cut off.
    """
    found = [] if names else ["No node was named: add -e node=NAME, or several with commas."]
    found += [f"{name!r} is no name of a node." for name in names if not NAME.fullmatch(name)]
    found += [
        f"{name} is in cluster_launch_nodes: take it out of that list first, which would name no node then."
        for name in names
        if name in chosen
    ]
    if names and set(nodes) <= set(names):
        found.append("No node would be left: a cluster of none is ended by deleting its inventory.")
    if wipe_driver and not wipe:
        found.append(DRIVER)
    return found


def in_the_way(running: Mapping[str, str], peers: Sequence[str], silent: Mapping[str, str]) -> list[str]:
    """Why nobody can leave now. running: sentences on launches with those that leave, by id. silent: by node, why."""
    found = [f"{said}. End it with {playbook('playbooks/jobs.yml', jobs_stop=one)}" for one, said in running.items()]
    if peers and all(name in silent for name in peers):
        whys = "; ".join(f"{name}: {silent[name]}" for name in peers[:3])
        found.append(f"Whether a launch runs with it nobody can say, because no other node answers ({whys}).")
    return found


def warnings(
    names: Sequence[str], nodes: Sequence[str], silent: Mapping[str, str], left: Sequence[str], *, wipe: bool = False
) -> list[str]:
    """What is allowed, and nobody should overlook. left: files of theirs that nobody reads any more."""
    unheard = [name for name in silent if name not in names]
    found = [f"{few(unheard)} did not say which launches run: one with {few(names)} would lose it."] if unheard else []
    gone = [name for name in names if name not in nodes]
    if gone:
        found.append(f"{few(gone)}: not in the inventory any more, so that only the other nodes are looked after.")
    if wipe:
        unasked = {name: f"it does not answer ({why.rstrip('. ')})" for name, why in silent.items() if name in names}
        unasked |= dict.fromkeys(gone, GONE)
        found += [f"{name}: nothing was taken off it, because {why}." for name, why in unasked.items()]
    return found + [f"{path} is yours to delete, as no node of that name is left." for path in left]


def unfinished(names: Sequence[str], command: str) -> str:
    """Return what holds for a remaining node on which this run stopped. command: this run, as it can be typed."""
    return f"may still trust {few(names)}, which left the inventory. When all nodes respond, run: {command}"


def outcome(names: Sequence[str], nodes: Sequence[str], taking_part: Sequence[str]) -> str:
    leave = [name for name in names if name in nodes]
    if not leave:
        what = f"{few(names)} {'is' if len(names) == 1 else 'are'} not in the inventory, and no other node knows of it"
    else:
        what = f"{few(leave)} {'has' if len(leave) == 1 else 'have'} left the cluster"
    return f"{what}; {ranks_said(taking_part)}"
