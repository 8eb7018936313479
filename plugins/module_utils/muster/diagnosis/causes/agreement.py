"""Causes in launch arguments that differ between nodes, and in nodes and ranks that are absent or late."""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING

from ...launch.agent_log import agent_closes
from ...launch.launchers import TORCHRUN
from ...verdict.commands import OnNode
from ...verdict.majority import vote
from ...verdict.words import few, plural
from ..arguments import SHARED, told
from ..case import UNNAMED, once
from ..model import Cause, CausePlace, Question, no, not_looked, yes
from ..progress import WITHIN, furthest, progress
from ..questions import BY_ID
from ..reaching import CALLED_HEAD, CALLED_PEER, WAITED, before_they_met
from .process import DISK_WAIT, FROZEN, STOPPED
from .program import STILL_THERE, WAITING, others_waited, own_end

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ...verdict.majority import Vote
    from ..case import LaunchCase
    from ..evidence import RankEnd
    from ..model import CauseAnswer, Places, Symptom


DIFFER = (*CALLED_HEAD, *WAITED, "store.key", "store.in_use", "store.closed", "rendezvous.closed", *CALLED_PEER)
ARGUMENTS = OnNode("ps -eo pid,user,args")


def values(case: LaunchCase, option: str) -> dict[str, str]:
    """Return the value of an option by node. If the value is an address, the name of the node with that address
    replaces it."""
    found = {}
    for node, options in told(case).items():
        value = options.get(option)
        if value is not None and option in ("master_addr", "rdzv_endpoint"):
            host, colon, port = value.partition(":")
            value = f"{case.node_at(host) or host}{colon}{port}"
        if value is not None:
            found[node] = value
    return found


def shown_values(option: str, votes: Vote) -> str:
    shown = "; ".join(f"{value} on {few(nodes)}" for value, nodes in votes.holders.items())
    return f"{SHARED.get(option, '--node-rank')}: {shown}"


def differing_node(option: str) -> Places:
    """Yield the one node whose value differs, if there are three or more nodes and the node shows a symptom; otherwise
    a place without a node."""

    def places(case: LaunchCase, by: Sequence[Symptom]) -> Iterator[CausePlace]:
        known = values(case, option)
        if option == "world_size" and not known:  # torchrun computes it
            return
        votes = vote(known)
        what = "" if votes.agree else shown_values(option, votes)
        odd = [node for node, _ in votes.odd] if votes.usual is not None and len(known) > 2 else []
        shown = {one.node for one in by}
        named = [node for node in odd if node in shown] if len(odd) == 1 else []
        yield CausePlace(named[0] if named else "", what=what)

    return places


def differs(option: str) -> Question:
    def look(case: LaunchCase, place: CausePlace) -> CauseAnswer:
        known = values(case, option)
        if not vote(known).agree:
            return yes(place.what, "launcher arguments")
        gaps = [node for node in case.nodes if node not in told(case) or (known and node not in known)]
        if not known and "told" in case.seen:  # a log does not contain all arguments
            gaps = case.nodes
        if gaps:
            return not_looked(case.seen["not_looked"].get(gaps[0], f"the launcher arguments of {gaps[0]} are unknown"))
        return no(f"{name} is the same on all nodes", "launcher arguments")

    name = SHARED[option]
    return Question(f"agreement.{option}", f"does {name} differ between the nodes?", look, ARGUMENTS)


def ranks(case: LaunchCase) -> dict[str, list[str]]:
    """Return the nodes by their --node-rank. This is only valid for the static rendezvous, because c10d assigns node
    ranks itself."""
    found: dict[str, list[str]] = {}
    for node, options in told(case).items():
        if "node_rank" in options and options.get("rdzv_backend", "static") == "static":
            found.setdefault(options["node_rank"], []).append(node)
    return found


def shared_rank(case: LaunchCase, by: Sequence[Symptom]) -> Iterator[CausePlace]:
    del by
    twice = [f"{few(nodes)} have node rank {rank}" for rank, nodes in ranks(case).items() if len(nodes) > 1]
    yield CausePlace(what="; ".join(twice))


def rank_is_shared(*, head: bool) -> Question:
    def look(case: LaunchCase, place: CausePlace) -> CauseAnswer:
        known = ranks(case)
        if any(len(nodes) > 1 and (rank == "0") is head for rank, nodes in known.items()):
            return yes(place.what, "launcher arguments")
        return no("the node ranks differ", "launcher arguments") if all_known(case) else unknown_arguments(case)

    which = "node rank 0" if head else "the same node rank"
    return Question(f"agreement.{'heads' if head else 'ranks'}", f"do two nodes have {which}?", look, ARGUMENTS)


def all_known(case: LaunchCase) -> bool:
    return sum(map(len, ranks(case).values())) == len(case.nodes)


def unknown_arguments(case: LaunchCase) -> CauseAnswer:
    gap = next((node for node in case.nodes if "node_rank" not in told(case).get(node, {})), "")
    return not_looked(case.seen["not_looked"].get(gap, f"the launcher arguments of {gap or 'a node'} are unknown"))


def has_no_head(case: LaunchCase, place: CausePlace) -> CauseAnswer:
    del place
    known = ranks(case)
    if "0" in known:
        return no(f"{few(known['0'])} has node rank 0", "launcher arguments")
    if all_known(case):
        said = ", ".join(f"{few(nodes)} has {rank}" for rank, nodes in known.items())
        return yes(f"node ranks: {said}", "launcher arguments")
    return unknown_arguments(case)


def nowhere(case: LaunchCase, by: Sequence[Symptom]) -> Iterator[CausePlace]:
    del case, by
    yield CausePlace()


def disagreement(name: str, option: str, what: str) -> Cause:
    return Cause(
        f"agreement.{name}",
        scope="config",
        says=f"the launchers use different {what} ({{what}})",
        fix=f"Use the same {SHARED[option]} on all nodes",
        symptoms=DIFFER,
        places=before_they_met(differing_node(option)),
        confirm=(differs(option),),
        instead_of=("head.nobody_listens", "head.filtered"),
    )


CAUSES = (
    disagreement("count", "nnodes", "numbers of nodes"),
    disagreement("port", "master_port", "head node ports"),
    disagreement("address", "master_addr", "head node addresses"),
    disagreement("endpoint", "rdzv_endpoint", "rendezvous endpoints"),
    disagreement("id", "rdzv_id", "rendezvous IDs"),
    disagreement("backend", "rdzv_backend", "rendezvous backends"),
    disagreement("world", "world_size", "world sizes"),
    Cause(
        "agreement.two_heads",
        scope="config",
        says="several nodes were started as the head node ({what})",
        fix="Set a different --node-rank on each node; use 0 only on the head node",
        symptoms=DIFFER,
        places=before_they_met(shared_rank),
        confirm=(rank_is_shared(head=True),),
        instead_of=("head.nobody_listens",),
    ),
    Cause(
        "agreement.rank",
        scope="config",
        says="several nodes have the same node rank ({what})",
        fix="Set a different --node-rank on each node",
        symptoms=DIFFER,
        places=before_they_met(shared_rank),
        confirm=(rank_is_shared(head=False),),
    ),
    Cause(
        "agreement.no_head",
        scope="config",
        says="no launcher was started as the head node (node rank 0)",
        fix="Start the launcher of the head node with --node-rank=0",
        symptoms=DIFFER,
        places=before_they_met(nowhere),
        confirm=(Question("agreement.no_head", "is node rank 0 missing?", has_no_head, ARGUMENTS),),
        instead_of=("head.nobody_listens",),
    ),
)


# Keys of Gloo end with a rank. Keys of NCCL IDs ("//cuda//0") end with the number of a group.
KEY_OF_RANK = re.compile(r"^(?!.*//cuda//).*/(?P<rank>\d+)$")
OF_THE_ID, STORE_HAD_NONE = (re.compile(BY_ID[name].pattern) for name in ("nccl.unique_id", "store.key"))
LINGERS = 10.0  # seconds that a launcher needs at most to stop the other ranks after a failure
RUNNING = OnNode("ps -eo pid,stat,user,lstart,args")


# ---------------------------------------------------------------- absent

# A node or rank that the others wait for is absent or late.


def others(case: LaunchCase, by: Sequence[Symptom]) -> Iterator[CausePlace]:
    """Yield every node except the head node, which waits for all other nodes. If a log names only one node, yield a
    place without a node."""
    found = [CausePlace(node) for node in case.nodes if node not in (case.head, UNNAMED, *waiting(by))]
    return iter(found or ([CausePlace()] if case.is_only_a_log and len(case.nodes) < 2 else []))


def waiting(by: Sequence[Symptom]) -> set[str]:
    """Return the nodes that printed that they wait for others."""
    return {one.node for one in by if one.id in ("store.clients", "store.timeout", "store.members", "ray.waiting")}


def ranks_waited_for(case: LaunchCase, by: Sequence[Symptom]) -> Iterator[CausePlace]:
    """Yield the ranks that a store key or a monitored barrier names as missing."""
    for rank in dict.fromkeys(number for one in by for number in named_in(one)):
        yield CausePlace(case.node_of(rank), rank=rank)


def named_in(symptom: Symptom) -> list[int]:
    key = KEY_OF_RANK.search(symptom.about.get("keys", ""))
    listed = [one for one in symptom.about.get("ranks", "").replace(",", " ").split() if one.isdigit()]
    return [int(one) for one in ([key["rank"]] if key else listed)]


def ranks_with_the_id(case: LaunchCase, by: Sequence[Symptom]) -> Iterator[CausePlace]:
    """Yield the rank that should have created the NCCL ID, according to the ranks that waited for the ID. nccl2 names
    no rank: in the default group, it is rank 0."""
    for rank in dict.fromkeys(int(one.about.get("rank", 0)) for one in by):
        yield CausePlace(case.node_of(rank), rank=rank)


# ---------------------------------------------------------------- checks


def id_was_awaited(case: LaunchCase, place: CausePlace) -> CauseAnswer:
    """Check whether the store responded but the rank had not stored an NCCL ID in it."""
    for one in case.all_failures:
        said, why = OF_THE_ID.search(one.traceback or one.summary), one.traceback or one.summary
        if said and int(said["rank"] or 0) == place.rank and (waited := STORE_HAD_NONE.search(why)):
            seconds = int(waited["seconds"]) / 1000
            text = f"rank {one.rank} waited {seconds:g} s for the NCCL ID from rank {place.rank}"
            return yes(text, f"last output of {one.where}", one.when)
    return not_looked("it is unknown whether the store responded during the whole wait")


def was_not_started(case: LaunchCase, place: CausePlace) -> CauseAnswer:
    if case.launch["live"] and place.node in case.seen["agents"]:
        if not case.seen["agents"][place.node]:
            return yes(f"no launcher runs on {place.node}", f"processes on {place.node}")
        return no(f"a launcher runs on {place.node}", f"processes on {place.node}")
    end = case.node_ends.get(place.node)
    if end is None:
        return not_looked(f"the state of {place.node} is unknown")
    if not end["reached"]:
        return yes(end["lost_why"] or f"{place.node} was unreachable at the launch start", f"launch on {place.node}")
    if end["reason"] or end["log"] or has_spoken(case, place.node):
        return no("the launcher was started", f"log of {place.node}")
    return not_looked(f"the launchers on {place.node} were not checked")


def has_spoken(case: LaunchCase, node: str) -> bool:
    return any(one["stderr"] or one["error"] or one["gone_at"] for one in case.seen["ranks"] if one["node"] == node)


def came_late(case: LaunchCase, place: CausePlace) -> CauseAnswer:
    at = {node: started(case, node) for node in (case.head, place.node)}
    if not all(at.values()):
        return not_looked(f"the start time of the launcher on {place.node} is unknown")
    behind = (at[place.node] or 0.0) - (at[case.head] or 0.0)
    if 0 < case.launch["timeout"] < behind:
        return yes(
            f"started {behind:.0f} s after {case.head} (timeout: {case.launch['timeout']:.0f} s)", "start records"
        )
    return no("the launcher started in time", "start records")


def started(case: LaunchCase, node: str) -> float | None:
    agents = case.seen["agents"].get(node)
    if agents:
        return agents[0]["started"]
    record = case.seen["start"].get(node)
    return record["at"] if record else None


def rank_is_gone(case: LaunchCase, place: CausePlace) -> CauseAnswer:
    shots = case.seen["snapshots"].get(place.node)
    if shots is None:
        return not_looked(f"{place.node} was not inspected before the launch was stopped")
    if any(one["rank"] == place.rank for one in shots["ranks"]):
        return no("the process existed", "/proc snapshot")
    if not any(one["ranks"] for one in case.seen["snapshots"].values()) and not any(
        map(partial(has_spoken, case), case.nodes)
    ):
        return not_looked("no rank had started on any node, so the rendezvous was not complete")
    return yes(f"rank {place.rank} had no process", f"/proc snapshot of {place.node}", shots["at"])


def is_elsewhere(case: LaunchCase, place: CausePlace) -> CauseAnswer:
    """Check whether the rank was running outside torch.distributed, according to its stack."""
    if place.rank not in case.shots:
        return not_looked(f"rank {place.rank} was not inspected before the launch was stopped")
    shot = case.shots[place.rank][1]
    if not shot["stack"]:
        return not_looked(shot["stack_why"] or "the stack is unknown")
    if any(WITHIN.search(frame) for frame in shot["stack"]):
        return no("the rank was in a torch.distributed call", "stack snapshot")
    return yes(f"rank {place.rank} was at {shot['stack'][0].strip()}", "stack snapshot")


@once
def ranks_that_finished(case: LaunchCase) -> list[int]:
    """Return the ranks that exited with code 0, as the launcher reported or as its other ranks show."""
    codes = {name: end["code"] for name, end in case.node_ends.items() if end["reason"] == "exit"}
    failed = {one.rank for one in case.all_failures}
    return [
        one["rank"]
        for one in case.seen["ranks"]
        if 0 in (one["code"], codes.get(one["node"]))
        or (one["code"] is None and one["rank"] not in failed and was_outlived(case, one))
    ]


def was_outlived(case: LaunchCase, end: RankEnd) -> bool:
    """Return whether other ranks on the node ran on after the end of a rank. torchrun stops them at once if a rank
    fails, but not if it finishes."""
    running = {rank for rank, (node, _) in case.shots.items() if node == end["node"]}
    if case.launch["launcher"] != TORCHRUN.name or end["rank"] in running:
        return False
    if end["gone_at"] is None:
        left = case.launch["live"] and end["rank"] in case.flights
        return left and bool(running) and not agent_closes(case.node_ends[end["node"]]["log"])
    shot, later = case.seen["snapshots"].get(end["node"]), end["gone_at"] + LINGERS
    others = [one for one in case.seen["ranks"] if one["node"] == end["node"] and one is not end]
    ends = [one["gone_at"] for one in others if one["gone_at"] and one["rank"] not in running]
    return max(ends, default=0.0) > later or (bool(running) and shot is not None and shot["at"] > later)


def finished(case: LaunchCase, by: Sequence[Symptom]) -> Iterator[CausePlace]:
    del by
    done = ranks_that_finished(case)
    return (CausePlace(case.node_of(rank), rank=rank) for rank in done if len(done) < case.launch["world_size"])


def left_early(case: LaunchCase, place: CausePlace) -> CauseAnswer:
    if own := own_end(case):
        return no(f"{own} had failed first")
    end = case.rank_ends[-1 if place.rank is None else place.rank]
    left = end["gone_at"] or case.node_ends[place.node]["ended_at"]
    one = next((one for one in progress(case) if one.rank == place.rank), None)
    first = furthest(case)
    ahead = first.enqueued - one.enqueued if one and first else 0
    said = "exit code 0" + (f", {plural(ahead, 'collective')} before rank {first.rank}" if first and ahead > 0 else "")
    later = [one for one in case.all_failures if one.cascade and one.when >= left]
    waiting = [rank for rank in case.shots if rank != place.rank]
    if later:
        return yes(f"{said}; then {later[0].where} failed: {later[0].summary}", "rank exit codes", left)
    if waiting and others_waited(case):
        return yes(f"{said}, while rank {waiting[0]} was still running", "rank exit codes", left)
    return no("no other rank waited afterwards")


NOT_STARTED = Question("absent.started", "was no launcher started on {node}?", was_not_started, RUNNING)
LATE = Question("absent.late", "did the launcher on {node} start too late?", came_late, RUNNING)
ID_AWAITED = Question("absent.id", "did rank {rank} fail to provide the NCCL ID in time?", id_was_awaited)
NO_PROCESS = Question("absent.rank", "was the process of rank {rank} missing on {node}?", rank_is_gone, RUNNING)
BUSY = Question("absent.busy", "was rank {rank} executing code outside torch.distributed?", is_elsewhere, RUNNING)
LEFT = Question("rank.left", "did rank {rank} finish while other ranks waited for it?", left_early)

OF_ABSENT = (
    Cause(
        "program.uneven_steps",
        scope="process",
        says="rank {rank} on {node} finished (exit code 0) before the other ranks, which waited for it",
        fix="Give all ranks the same number of batches (DistributedSampler, drop_last), or use DDP's join()",
        symptoms=WAITING,
        places=finished,
        confirm=(LEFT,),
    ),
    Cause(
        "absent.busy",
        scope="process",
        says="rank {rank} on {node} did not join the process group in time, because it was executing other code",
        fix="Check what the script does before init_process_group, or increase the timeout. List the node's processes",
        command=RUNNING,
        symptoms=("store.key",),
        places=ranks_waited_for,
        confirm=(BUSY,),
    ),
    Cause(
        "absent.node",
        scope="node",
        says="the other nodes waited for {node}, where no launcher was started",
        fix="Start the launcher on {node}, or launch without {node}. List the node's processes",
        command=RUNNING,
        symptoms=(*WAITED, "store.key", "launch.start", "ray.waiting"),
        places=before_they_met(others),
        confirm=(NOT_STARTED,),
    ),
    Cause(
        "absent.late",
        scope="node",
        says="the launcher on {node} started after the other nodes had timed out",
        fix="Start all nodes together, or increase the rendezvous timeout",
        symptoms=(*WAITED, "store.key", "store.closed", "ray.waiting", *CALLED_HEAD),
        places=before_they_met(others),
        confirm=(LATE,),
        instead_of=("head.nobody_listens",),
    ),
    Cause(
        "absent.rank",
        scope="process",
        says="the other ranks wait for rank {rank} on {node}, which has no process",
        fix="Check the log of rank {rank} to see whether the rank exited or never started. List the node's processes",
        command=RUNNING,
        symptoms=("store.key", "gloo.barrier"),
        places=ranks_waited_for,
        confirm=(NO_PROCESS,),
    ),
    Cause(
        "absent.nccl_id",
        scope="process",
        says="rank {rank} on {node} did not set up NCCL before other ranks timed out (since torch 2.15 in"
        " init_process_group, before in the first collective)",
        fix="Check the log of rank {rank} to see what delayed the rank. If the rank does long work alone, increase the"
        " timeout of init_process_group",
        symptoms=("nccl.unique_id",),
        places=ranks_with_the_id,
        confirm=(),
        support=(ID_AWAITED, STILL_THERE),
        refute=(STOPPED, DISK_WAIT, FROZEN),
    ),
)
