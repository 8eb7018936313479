"""The nodes disagree on the launch: on how many they are, which one each is, and where they meet."""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING

from ...verdict.commands import OnNode
from ...verdict.majority import vote
from ...verdict.words import few
from ..arguments import SHARED, told
from ..model import Cause, CausePlace, Question, no, not_looked, yes
from ..progress import WITHIN
from ..questions import BY_ID
from ..reaching import CALLED_HEAD, CALLED_PEER, WAITED, before_they_met
from .process import DISK_WAIT, FROZEN, STOPPED
from .program import STILL_THERE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ...verdict.majority import Vote
    from ..case import LaunchCase
    from ..model import CauseAnswer, Places, Symptom


DIFFER = (*CALLED_HEAD, *WAITED, "store.key", "store.in_use", "store.closed", "rendezvous.closed", *CALLED_PEER)
ARGUMENTS = OnNode("ps -eo pid,user,args")


def values(case: LaunchCase, option: str) -> dict[str, str]:
    """By node, what its launcher was told; an address by the name of the node that has it, however it is written."""
    found = {}
    for node, options in told(case).items():
        value = options.get(option)
        if value is not None and option in ("master_addr", "rdzv_endpoint"):
            host, colon, port = value.partition(":")
            value = f"{case.node_at(host) or host}{colon}{port}"
        if value is not None:
            found[node] = value
    return found


def said_of(option: str, votes: Vote) -> str:
    shown = "; ".join(f"{value} on {few(nodes)}" for value, nodes in votes.holders.items())
    return f"{SHARED.get(option, '--node-rank')}: {shown}"


def who_differs(option: str) -> Places:
    """The odd one of three or more, where it shows a symptom itself; else nobody: a difference blames neither end."""

    def places(case: LaunchCase, by: Sequence[Symptom]) -> Iterator[CausePlace]:
        known = values(case, option)
        votes = vote(known)
        what = "" if votes.agree else said_of(option, votes)
        odd = [node for node, _ in votes.odd] if votes.usual is not None and len(known) > 2 else []
        shown = {one.node for one in by}
        named = [node for node in odd if node in shown] if len(odd) == 1 else []
        yield CausePlace(named[0] if named else "", what=what)

    return places


def differs(option: str) -> Question:
    def look(case: LaunchCase, place: CausePlace) -> CauseAnswer:
        known = values(case, option)
        if not vote(known).agree:
            return yes(place.what, "the launchers' arguments")
        unknown = [node for node in case.nodes if node not in told(case)]
        if unknown:
            return not_looked(case.seen["not_looked"].get(unknown[0], f"what {unknown[0]} was given is not known"))
        return no("all were given the same", "the launchers' arguments")

    name = SHARED[option]
    return Question(f"agreement.{option}", f"were the nodes started with different {name}?", look, ARGUMENTS)


def ranks(case: LaunchCase) -> dict[str, list[str]]:
    """The nodes that were told each node rank, which no two may be. With c10d and an id, ranks are given out."""
    found: dict[str, list[str]] = {}
    for node, options in told(case).items():
        if "node_rank" in options and options.get("rdzv_backend", "static") == "static":
            found.setdefault(options["node_rank"], []).append(node)
    return found


def shared_rank(case: LaunchCase, by: Sequence[Symptom]) -> Iterator[CausePlace]:
    del by
    twice = [f"{few(nodes)} are both node rank {rank}" for rank, nodes in ranks(case).items() if len(nodes) > 1]
    yield CausePlace(what="; ".join(twice))


def rank_is_shared(*, head: bool) -> Question:
    def look(case: LaunchCase, place: CausePlace) -> CauseAnswer:
        known = ranks(case)
        if any(len(nodes) > 1 and (rank == "0") is head for rank, nodes in known.items()):
            return yes(place.what, "the launchers' arguments")
        return no() if all_told(case) else not_told(case)

    which = "two nodes the head node" if head else "two nodes of the same rank"
    return Question(f"agreement.{'heads' if head else 'ranks'}", f"are {which}?", look, ARGUMENTS)


def all_told(case: LaunchCase) -> bool:
    return sum(map(len, ranks(case).values())) == len(case.nodes)


def not_told(case: LaunchCase) -> CauseAnswer:
    unknown = next((node for node in case.nodes if "node_rank" not in told(case).get(node, {})), "")
    return not_looked(case.seen["not_looked"].get(unknown, f"what {unknown or 'the nodes'} was given is not known"))


def nobody_is_head(case: LaunchCase, place: CausePlace) -> CauseAnswer:
    del place
    known = ranks(case)
    if "0" in known:
        return no(f"{few(known['0'])} is node rank 0", "the launchers' arguments")
    if all_told(case):
        said = ", ".join(f"{few(nodes)} is {rank}" for rank, nodes in known.items())
        return yes(f"node ranks: {said}", "the launchers' arguments")
    return not_told(case)


def nowhere(case: LaunchCase, by: Sequence[Symptom]) -> Iterator[CausePlace]:
    del case, by
    yield CausePlace()


def disagreement(name: str, option: str, says: str, fix: str) -> Cause:
    return Cause(
        f"agreement.{name}",
        group="agreement",
        scope="config",
        says=f"{says} ({{what}})",
        fix=fix,
        symptoms=DIFFER,
        places=before_they_met(who_differs(option)),
        confirm=(differs(option),),
        instead_of=("head.nobody_listens", "head.filtered"),
    )


CAUSES = (
    disagreement("count", "nnodes", "the nodes do not agree how many they are", "Give all the same --nnodes"),
    disagreement("port", "master_port", "the nodes meet at different ports", "Give all the same --master-port"),
    disagreement("address", "master_addr", "the nodes meet at different machines", "Give all the same --master-addr"),
    disagreement(
        "endpoint", "rdzv_endpoint", "the nodes meet at different places", "Give all the same --rdzv-endpoint"
    ),
    disagreement("id", "rdzv_id", "the nodes belong to different launches", "Give all the same --rdzv-id"),
    disagreement("backend", "rdzv_backend", "the nodes meet in different ways", "Give all the same --rdzv-backend"),
    Cause(
        "agreement.two_heads",
        group="agreement",
        scope="config",
        says="more than one node believes that it is the head node: {what}",
        fix="Give each node a --node-rank of its own, and 0 to the head node alone",
        symptoms=DIFFER,
        places=before_they_met(shared_rank),
        confirm=(rank_is_shared(head=True),),
        instead_of=("head.nobody_listens",),
    ),
    Cause(
        "agreement.rank",
        group="agreement",
        scope="config",
        says="two nodes have the same rank: {what}",
        fix="Give each node a --node-rank of its own",
        symptoms=DIFFER,
        places=before_they_met(shared_rank),
        confirm=(rank_is_shared(head=False),),
    ),
    Cause(
        "agreement.no_head",
        group="agreement",
        scope="config",
        says="no node is the head node: none was started as node rank 0",
        fix="Give the head node --node-rank=0",
        symptoms=DIFFER,
        places=before_they_met(nowhere),
        confirm=(Question("agreement.no_head", "is no node the head node?", nobody_is_head, ARGUMENTS),),
        instead_of=("head.nobody_listens",),
    ),
)


# Of Gloo's keys; those of NCCL's ids ("//cuda//0") end with the number of a group.
KEY_OF_RANK = re.compile(r"^(?!.*//cuda//).*/(?P<rank>\d+)$")
OF_THE_ID, STORE_HAD_NONE = (re.compile(BY_ID[name].pattern) for name in ("nccl.unique_id", "store.key"))
RUNNING = OnNode("ps -eo pid,stat,user,lstart,args")


# ---------------------------------------------------------------- absent

# A node, or a rank, that the others wait for is not there, or comes too late.


def others(case: LaunchCase, by: Sequence[Symptom]) -> Iterator[CausePlace]:
    """Every node but the head node: it is the others that it waits for."""
    del by
    return (CausePlace(node) for node in case.nodes if node != case.head)


def ranks_waited_for(case: LaunchCase, by: Sequence[Symptom]) -> Iterator[CausePlace]:
    """The ranks that a key of the store names, or a monitored barrier."""
    for rank in dict.fromkeys(number for one in by for number in named_in(one)):
        yield CausePlace(case.node_of(rank), rank=rank)


def named_in(symptom: Symptom) -> list[int]:
    key = KEY_OF_RANK.search(symptom.about.get("keys", ""))
    listed = [one for one in symptom.about.get("ranks", "").replace(",", " ").split() if one.isdigit()]
    return [int(one) for one in ([key["rank"]] if key else listed)]


def ranks_with_the_id(case: LaunchCase, by: Sequence[Symptom]) -> Iterator[CausePlace]:
    """The rank that begins a group of NCCL, by whoever waited for its id."""
    for rank in dict.fromkeys(int(one.about["rank"]) for one in by if "rank" in one.about):
        yield CausePlace(case.node_of(rank), rank=rank)


# ---------------------------------------------------------------- what is asked


def id_was_awaited(case: LaunchCase, place: CausePlace) -> CauseAnswer:
    """The store itself answered, and had nothing of that rank."""
    for one in case.all_failures:
        said, why = OF_THE_ID.search(one.traceback or one.summary), one.traceback or one.summary
        if said and int(said["rank"]) == place.rank and (waited := STORE_HAD_NONE.search(why)):
            seconds = int(waited["seconds"]) / 1000
            text = f"rank {one.rank} waited {seconds:g} s for the id that rank {place.rank} gives"
            return yes(text, f"last words of {one.where}", one.when)
    return not_looked("whether the store was there all the time is not known")


def was_not_started(case: LaunchCase, place: CausePlace) -> CauseAnswer:
    if case.launch["live"] and place.node in case.seen["agents"]:
        if not case.seen["agents"][place.node]:
            return yes("no launcher runs there", f"processes on {place.node}")
        return no("its launcher runs", f"processes on {place.node}")
    end = case.node_ends.get(place.node)
    if end is None:
        return not_looked(f"nothing is known of {place.node}")
    if not end["reached"]:
        return yes(end["lost_why"] or "it could not be reached for the launch", f"the start on {place.node}")
    if end["reason"] or end["log"] or has_spoken(case, place.node):
        return no("its launcher was there", f"log of {place.node}")
    return not_looked(f"whether a launcher ran on {place.node} was not looked at")


def has_spoken(case: LaunchCase, node: str) -> bool:
    return any(one["stderr"] or one["error"] or one["gone_at"] for one in case.seen["ranks"] if one["node"] == node)


def came_late(case: LaunchCase, place: CausePlace) -> CauseAnswer:
    at = {node: started(case, node) for node in (case.head, place.node)}
    if not all(at.values()):
        return not_looked(f"when the launcher on {place.node} began is not known")
    behind = (at[place.node] or 0.0) - (at[case.head] or 0.0)
    if 0 < case.launch["timeout"] < behind:
        return yes(f"it began {behind:.0f} s after {case.head}, which waits {case.launch['timeout']:.0f} s", "records")
    return no("it began in time", "records")


def started(case: LaunchCase, node: str) -> float | None:
    agents = case.seen["agents"].get(node)
    if agents:
        return agents[0]["started"]
    record = case.seen["start"].get(node)
    return record["at"] if record else None


def rank_is_gone(case: LaunchCase, place: CausePlace) -> CauseAnswer:
    shots = case.seen["snapshots"].get(place.node)
    if shots is None:
        return not_looked(f"{place.node} was not looked at before the launch was stopped")
    if any(one["rank"] == place.rank for one in shots["ranks"]):
        return no("its process was there", "/proc before the stop")
    if not any(one["ranks"] for one in case.seen["snapshots"].values()) and not any(
        map(partial(has_spoken, case), case.nodes)
    ):
        return not_looked("no rank had begun on any node: their launchers had not met")
    return yes(f"rank {place.rank} had no process", f"/proc on {place.node} before the stop", shots["at"])


def is_elsewhere(case: LaunchCase, place: CausePlace) -> CauseAnswer:
    """A rank that lives, and whose stack is not that of one that meets the others."""
    if place.rank not in case.shots:
        return not_looked(f"rank {place.rank} was not looked at before the launch was stopped")
    shot = case.shots[place.rank][1]
    if not shot["stack"]:
        return not_looked(shot["stack_why"] or "its stack is not known")
    if any(WITHIN.search(frame) for frame in shot["stack"]):
        return no("it was in a call of torch.distributed itself", "its stack before the stop")
    return yes(f"rank {place.rank} was at {shot['stack'][0].strip()}", "its stack before the stop")


NOT_STARTED = Question("absent.started", "was no launcher started on {node}?", was_not_started, RUNNING)
LATE = Question("absent.late", "did the launcher on {node} begin too late?", came_late, RUNNING)
ID_AWAITED = Question("absent.id", "did the store have no id of rank {rank}, until the others gave up?", id_was_awaited)
NO_PROCESS = Question("absent.rank", "was there no process of rank {rank} on {node}?", rank_is_gone, RUNNING)
BUSY = Question("absent.busy", "was rank {rank} doing something else?", is_elsewhere, RUNNING)

OF_ABSENT = (
    Cause(
        "absent.busy",
        group="absent",
        scope="process",
        says="rank {rank} on {node} had not come to meet the others, which waited for it: it was doing something else",
        fix="Look in the script what it does before init_process_group, or let the others wait longer",
        command=RUNNING,
        symptoms=("store.key",),
        places=ranks_waited_for,
        confirm=(BUSY,),
    ),
    Cause(
        "absent.node",
        group="absent",
        scope="node",
        says="no launcher was started on {node}, and the others waited for it",
        fix="Start it there too, or launch without {node}",
        command=RUNNING,
        symptoms=(*WAITED, "store.key", "launch.start"),
        places=before_they_met(others),
        confirm=(NOT_STARTED,),
    ),
    Cause(
        "absent.late",
        group="absent",
        scope="node",
        says="the launcher on {node} began later than the others wait",
        fix="Start all nodes together, or let the rendezvous wait longer",
        symptoms=(*WAITED, "store.key", "store.closed", *CALLED_HEAD),
        places=before_they_met(others),
        confirm=(LATE,),
        instead_of=("head.nobody_listens",),
    ),
    Cause(
        "absent.rank",
        group="absent",
        scope="process",
        says="rank {rank} on {node} is not there, and the others wait for it",
        fix="Read its log: it ended, or was never begun",
        command=RUNNING,
        symptoms=("store.key", "gloo.barrier"),
        places=ranks_waited_for,
        confirm=(NO_PROCESS,),
    ),
    Cause(
        "absent.nccl_id",
        group="absent",
        scope="process",
        says="rank {rank} on {node} did not come to the first collective of a group in time, and others waited for it",
        fix="Look in its log what it did meanwhile: what one rank does for long belongs before init_process_group, or"
        " needs a longer timeout there",
        symptoms=("nccl.unique_id",),
        places=ranks_with_the_id,
        confirm=(),
        support=(ID_AWAITED, STILL_THERE),
        refute=(STOPPED, DISK_WAIT, FROZEN),
    ),
)
