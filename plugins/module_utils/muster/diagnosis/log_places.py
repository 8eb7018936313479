"""Places the ranks of a launch on nodes, from what its logs contain."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from .case import UNNAMED
from .log_arguments import number
from .log_lines import LineSource
from .log_processes import output_of, shared_out
from .log_sources import of_node_rank

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .evidence import LaunchNode
    from .log_processes import ProcessEnd
    from .log_sources import ForeignLines, Known

JOINED = re.compile(r"(?<!\d)\d{1,6}/(?P<expected>\d{1,6}) clients joined")
MOST_RANKS = 4096
SIZES = ("nproc_per_node", "nnodes", "world_size")
STOPPED = -15  # exit code of a rank that its launcher stopped


class LaunchSize(NamedTuple):
    """The size of a launch, 0 if unknown. joining: clients that the store waited for, which are nodes or ranks."""

    world: int
    per_node: int
    nodes: int
    joining: int


def participants(lines: ForeignLines, known: Sequence[Known], size: LaunchSize) -> list[LaunchNode]:
    """Return the nodes by the names in the logs, or by node rank if the logs contain no name.

    A rank is placed on a node by its lines, its process or torchrun's summary. The number of ranks per node is used
    only if a log contains it. A process whose rank is unknown gets the next free number.
    """
    seen = seen_places(lines)
    addresses = {one.node: one.address for one in known}
    named = named_nodes(lines, list(addresses), size)
    slots = node_slots(lines, named, size, seen)
    ranks: dict[str, list[int]] = {node: [] for node in slots}
    spoken = lines.ranks
    only = named[0] if len(named) == 1 and len(known) < 2 else UNNAMED
    for rank in range(size.world):
        usual = slots[rank // size.per_node] if size.per_node and rank // size.per_node < len(slots) else ""
        node = seen.get(rank) or usual or (only if rank in spoken else "")
        if node:
            ranks.setdefault(node, []).append(rank)
    ranks.update({node: [] for node in named if node not in ranks and (node in lines.nodes or not slots)})
    number_the_others(lines, ranks)
    order = {node: at for at, node in enumerate(named)}
    if not slots:  # the node of rank 0 first
        ranks = dict(sorted(ranks.items(), key=lambda one: (one[0] == UNNAMED, 0 not in one[1], order.get(one[0], 0))))
    return [
        {"node": node, "address": addresses.get(node, ""), "interface": "", "node_rank": at, "ranks": there}
        for at, (node, there) in enumerate(ranks.items())
    ]


def size_of(lines: ForeignLines) -> LaunchSize:
    said = {name: [number(one.get(name, "")) for one in lines.told.values()] for name in SIZES}
    locals_: dict[str, set[int]] = {}
    for node, _, local in (source for source in lines.lines if source.kind == "local"):
        locals_.setdefault(node, set()).add(local)
    complete = (len(them) for them in locals_.values() if them == {*range(len(them))})
    per_node = max(said["nproc_per_node"], default=0) or max(complete, default=0)
    nodes = min(max(said["nnodes"], default=0), MOST_RANKS)
    ended = (end.rank for ends in lines.ends.values() for end in ends if end.rank is not None)
    seen = max((*lines.ranks, *lines.places, *ended), default=-1) + 1
    world = min(max(*said["world_size"], nodes * per_node, len(locals_) * per_node, seen, 0), MOST_RANKS)
    all_lines = (line for said in lines.lines.values() for line in said if "clients" in line)
    joining = (int(one["expected"]) for line in all_lines if (one := JOINED.search(line)))
    return LaunchSize(world, per_node, max(nodes, -(-world // per_node) if per_node else 0), max(joining, default=0))


def seen_places(lines: ForeignLines) -> dict[int, str]:
    """Return the nodes of ranks by their lines and by torchrun's summary. A local rank places the ranks before it on
    the same node."""
    found = dict(lines.places)
    for node, ends in lines.ends.items():
        for end in ends:
            if node and end.rank is not None and end.local <= end.rank < MOST_RANKS:
                found.update(dict.fromkeys(range(end.rank - end.local, end.rank + 1), node))
    return found


def named_nodes(lines: ForeignLines, inventory: Sequence[str], size: LaunchSize) -> list[str]:
    """Return the nodes that the logs name, in the order of the inventory. If the launch has as many nodes as the
    inventory, all of them take part."""
    there = lines.nodes
    everyone = len(inventory) in (size.nodes, size.joining)
    return [*(one for one in inventory if everyone or one in there), *(one for one in there if one not in inventory)]


def node_slots(lines: ForeignLines, named: Sequence[str], size: LaunchSize, seen: dict[int, str]) -> list[str]:
    """Return the nodes by node rank; none if the number of nodes is unknown."""
    claimed = [(number(one["node_rank"]), node) for node, one in lines.told.items() if node and "node_rank" in one]
    for rank, node in seen.items() if size.per_node else ():  # a rank of the node shows that it has another node rank
        claimed = [one for one in claimed if one[1] != node or one[0] == rank // size.per_node]
    numbers = [rank for rank, _ in claimed]
    at = {rank: node for rank, node in claimed if numbers.count(rank) == 1}
    at.update({rank: of_node_rank(rank) for rank in range(size.nodes) if of_node_rank(rank) in named})
    placed = {*at.values(), *(seen.values() if size.per_node else ())}
    left = [node for node in named if node not in placed]
    found = []
    for slot in range(size.nodes):
        there = range(slot * size.per_node, min(size.world, (slot + 1) * size.per_node))
        node = at.get(slot) or next((seen[rank] for rank in there if rank in seen), "")
        found.append(node or (left.pop(0) if left else of_node_rank(slot)))
    return list(dict.fromkeys(found))


def number_the_others(found: ForeignLines, ranks: dict[str, list[int]]) -> None:
    """Give a rank to each process that ended or failed, and whose rank is unknown. Lines that a process of a node wrote
    are added to its rank."""
    lines = found.lines
    if len(ranks) < 2:  # also the lines without a node are from this one
        node = next(iter(ranks), UNNAMED)
        ranks.setdefault(node, [])
        for source in [source for source in lines if not source.node and source.kind != "rank"]:
            found.add(source._replace(node=node), lines.pop(source))
        found.ends.setdefault(node, []).extend(found.ends.pop("", ()))
    else:
        there = [rank for them in ranks.values() for rank in them]
        hand_over(found, "", there, [end for ends in found.ends.values() for end in ends if end.rank is not None])
        if output_of(lines.get(LineSource(""), ())).has_failed:
            found.add(LineSource(UNNAMED), lines.pop(LineSource("")))
            ranks.setdefault(UNNAMED, [])
    for node, there in ranks.items():
        processes = [source for source in lines if source[:2] == (node, "pid")]
        failed = [source for source in processes if output_of(lines[source]).has_failed]
        of_locals = [source for source in lines if source.node == node and source.kind in ("local", "device")]
        if not there:
            ended = (*(end.local for end in found.ends.get(node, ())), *(source.number for source in of_locals))
            unknown = output_of(lines.get(LineSource(node), ())).has_failed
            own = max(max(ended, default=-1) + 1, len(failed), int(unknown))
            first = max((rank + 1 for them in ranks.values() for rank in them), default=0)
            there.extend(range(first, min(first + own, MOST_RANKS)))
        spoken = found.ranks
        silent = [rank for rank in there if rank not in spoken]
        given = {source: LineSource("", "rank", rank) for rank, source in zip(silent, failed, strict=False)}
        locals_ = {source: there[0] + source.number for source in of_locals if there}
        given.update({source: LineSource("", "rank", rank) for source, rank in locals_.items() if rank in there})
        for source in (*processes, *of_locals):
            found.add(given.get(source, LineSource(node)), lines.pop(source))
        hand_over(found, node, there, found.ends.get(node, []))


def hand_over(found: ForeignLines, node: str, ranks: Sequence[int], ends: Sequence[ProcessEnd]) -> None:
    """Move lines of a node's log to the ranks that wrote them: the ranks that failed, by time; else, if there is a
    failure, the only rank of the node or one without lines of its own."""
    log = found.lines.get(LineSource(node), [])
    codes = sorted((end for end in ends if end.code not in (0, STOPPED)), key=lambda one: one.at)
    owners = list(dict.fromkeys(rank for end in codes if (rank := rank_of(end, ranks)) in ranks))
    if not owners and node and output_of(log).has_failed:
        owners = [*(sorted({*ranks} - found.ranks)), *ranks][:1]
    left, given = shared_out(log, owners)
    if given:
        found.lines[LineSource(node)] = left
    for rank, said in given.items():
        found.add(LineSource("", "rank", rank), said)


def rank_of(end: ProcessEnd, ranks: Sequence[int]) -> int:
    if end.rank is not None:
        return end.rank
    return ranks[end.local] if end.local < len(ranks) else -1
