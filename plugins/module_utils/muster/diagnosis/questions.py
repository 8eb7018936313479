"""Questions that several causes share, and functions that build questions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..verdict.commands import OnNode, playbook
from .case import once
from .model import Question, no, not_looked, yes
from .symptoms import read
from .texts import TEXTS

if TYPE_CHECKING:
    from .case import LaunchCase
    from .evidence import RankShot
    from .model import CauseAnswer, CausePlace


MADE_BY = {"net": "net_probe", "launch": "the launch", "site": "site rules"}
MOST_SHOWN = 400  # characters of a proof


def probe(check: str, asks: str, *, whole_cluster: bool = False) -> Question:
    """Return a question that is answered "yes" if a later check found a problem at the place. whole_cluster: a problem
    on any node counts."""

    def look(case: LaunchCase, place: CausePlace) -> CauseAnswer:
        ends = ("", "") if whole_cluster else (place.node, place.peer)
        found = next(case.findings(check, *ends), None)
        if found:
            return yes(found["summary"][:MOST_SHOWN], f"{check} on {found['node']}")
        nodes = [one for one in ends if one] or case.nodes
        unseen = [one for one in nodes if not case.looked_for(check, one)]
        if unseen:
            return not_looked(case.seen["not_looked"].get(unseen[0], f"{check} was not checked on {unseen[0]}"))
        return no(f"{check} was checked", MADE_BY.get(check.partition(".")[0], "nccl_health"))

    return Question(f"probe.{check}", asks, look, playbook("playbooks/health.yml"))


def state_of(states: str, asks: str, name: str) -> Question:
    """Return a question about the process state of a rank, or of any rank of a node, before the launch was stopped."""

    def look(case: LaunchCase, place: CausePlace) -> CauseAnswer:
        shots = shots_at(case, place)
        if not shots:
            return not_looked("the ranks were not inspected before the launch was stopped")
        for shot in shots:
            if shot["state"] in states:
                where = f", in {shot['wchan']}" if shot["wchan"] not in ("", "0") else ""
                return yes(f"rank {shot['rank']} was in state {shot['state']}{where}", "/proc before the stop")
        return no("states " + ", ".join(sorted({shot["state"] for shot in shots})), "/proc before the stop")

    return Question(name, asks, look, OnNode("ps -eo pid,stat,wchan:20,user,args"))


def shots_at(case: LaunchCase, place: CausePlace) -> list[RankShot]:
    """Return the snapshots of the ranks of a place, taken before the launch was stopped."""
    known = case.shots
    if place.rank is not None:
        return [known[place.rank][1]] if place.rank in known else []
    return [shot for node, shot in known.values() if node == place.node]


BY_ID = {text.id: text for text in TEXTS}


@once
def printed(case: LaunchCase) -> dict[str, set[str]]:
    """Return the ids of the known lines that each node printed, at any time."""
    found: dict[str, set[str]] = {}
    for one in read(case):
        found.setdefault(one.node, set()).add(one.id)
    return found
