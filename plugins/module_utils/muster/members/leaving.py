"""Removal of nodes from the cluster: what prevents the removal, and the messages about it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ..verdict.commands import playbook
from ..verdict.words import few
from .quarantine import ranks_said

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
# Why a run with --limit or tags is rejected.
TRUST = "nodes that are left out would still trust the removed node"
KEEP = "nodes that are left out would keep Muster"
DRIVER = "wipe_driver requires wipe: add -e wipe=true, or remove wipe_driver."
GONE = "its connection settings are no longer in the inventory"

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
    """Return all reasons why these nodes cannot be removed. nodes: nodes of the inventory. chosen:
    cluster_launch_nodes.

    A node that is not in the inventory may have been deleted from it by an interrupted run.
    """
    found = [] if names else ["No node was given: add -e node=NAME, or -e node=NAME1,NAME2."]
    found += [f"{name!r} is not a valid node name." for name in names if not NAME.fullmatch(name)]
    found += [
        f"{name} is in cluster_launch_nodes. Remove it from cluster_launch_nodes first."
        for name in names
        if name in chosen
    ]
    if names and nodes and set(nodes) <= set(names) and not wipe:
        found.append("The cluster would have no nodes left. To remove Muster from the last nodes, add -e wipe=true.")
    if wipe_driver and not wipe:
        found.append(DRIVER)
    return found


def in_the_way(running: Mapping[str, str], peers: Sequence[str], silent: Mapping[str, str]) -> list[str]:
    """Return why no node can be removed now.

    running: sentences about launches that use the nodes, by launch ID. silent: why a node does not respond, by node.
    """
    found = [f"{said}. Stop it with {playbook('playbooks/jobs.yml', jobs_stop=one)}" for one, said in running.items()]
    if peers and all(name in silent for name in peers):
        found.append(f"Running launches cannot be listed, because no other node responds ({_whys(silent, peers)}).")
    if silent and not peers:
        found.append(f"The last nodes stay in the inventory until Muster is removed from them ({_whys(silent)}).")
    return found


def silence(nodes: Sequence[str], silent: Mapping[str, str]) -> list[str]:
    """Return why Muster cannot be removed from any node."""
    return [f"No node responds ({_whys(silent, nodes)})."] if set(nodes) <= set(silent) else []


def running_launches(running: Mapping[str, str], command: str) -> list[str]:
    """Return why Muster is not removed from nodes with running launches. command: the command that repeats this run."""
    stop = f"Wait until they end, or stop them and remove Muster: {command} -e remove_running=true"
    return [*(f"{said}." for said in running.values()), stop] if running else []


def to_finish(command: str) -> str:
    """Return the note for a node that failed. command: the command that repeats this run."""
    return f"might still have Muster files. To complete the removal, run: {command}"


def not_removed(nodes: Sequence[str], silent: Mapping[str, str], command: str) -> str:
    """Return the result for a cluster with nodes that do not respond."""
    done = [name for name in nodes if name not in silent]
    missed = f"Nothing was removed from {few(list(silent))} ({_whys(silent)})"
    return f"Muster is removed from {few(done)}. {missed}. When all nodes respond, run: {command}"


def removed(nodes: Sequence[str], folder: str) -> str:
    """Return the result for a cluster. folder: that of the inventory."""
    again = "The inventory is unchanged: set the cluster up again with site.yml, or delete"
    return f"Muster is removed from {few(nodes)}. {again} {folder}"


def _whys(silent: Mapping[str, str], names: Sequence[str] = ()) -> str:
    """Return why nodes do not respond. names: the nodes, if not all of them."""
    return "; ".join(f"{name}: {silent[name]}" for name in [*(names or silent)][:3])


def warnings(
    names: Sequence[str], nodes: Sequence[str], silent: Mapping[str, str], left: Sequence[str], *, wipe: bool = False
) -> list[str]:
    """Return warnings about accepted risks. left: local files for these nodes that are no longer used."""
    unheard = [name for name in silent if name not in names]
    risk = f"running launches with {few(names)}, which would fail, cannot be ruled out"
    found = [f"{few(unheard)} did not respond: {risk}."] if unheard else []
    gone = [name for name in names if name not in nodes]
    if gone:
        found.append(f"{few(gone)}: no longer in the inventory, so only the other nodes are updated.")
    if wipe:
        unasked = {name: f"it does not respond ({why.rstrip('. ')})" for name, why in silent.items() if name in names}
        unasked |= dict.fromkeys(gone, GONE)
        found += [f"{name}: no files were removed from the node, because {why}." for name, why in unasked.items()]
    return found + [f"{path} is no longer used and can be deleted, because no node has this name." for path in left]


def unfinished(names: Sequence[str], command: str) -> str:
    """Return the note for a remaining node that this run could not update.

    command: the command that repeats this run.
    """
    return f"might still trust {few(names)}. When all nodes respond, run: {command}"


def outcome(names: Sequence[str], nodes: Sequence[str], taking_part: Sequence[str]) -> str:
    leave = [name for name in names if name in nodes]
    if not leave:
        what = f"{few(names)} {'is' if len(names) == 1 else 'are'} not in the inventory or in other nodes' files"
    else:
        what = f"{few(leave)} {'has' if len(leave) == 1 else 'have'} left the cluster"
    return f"{what}; {ranks_said(taking_part)}"
