"""The nodes disagree on the launch: on how many they are, which one each is, and where they meet."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...verdict.commands import OnNode
from ...verdict.majority import vote
from ...verdict.words import few
from ..arguments import SHARED, told
from ..model import Cause, CausePlace, Question, no, not_looked, yes
from ..reaching import CALLED_HEAD, CALLED_PEER, WAITED, before_they_met

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
