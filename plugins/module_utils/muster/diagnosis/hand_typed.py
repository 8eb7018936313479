"""A case out of a launch that Muster has not begun, and that runs now: from the launchers that were found on nodes.

What somebody typed may differ from node to node: a head node, numbers and ports are what most of them were told, and
the differences stay in `agents`, where causes look for them.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from ..launch.launchers import TORCHRUN
from ..launch.messages import ACCOUNT
from ..launch.planned import LaunchPlan, PlannedNode
from ..launch.unit import launch_of
from ..verdict.commands import playbook
from ..verdict.words import few
from .arguments import arguments, is_host
from .launched import SCHEMA

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from ..launch.plan import NodeSpec
    from .evidence import Agent, CaseShape, LaunchFacts, LaunchNode, NodeEnd, RankEnd
    from .launched import Gathered

PORT = 29500  # torchrun's own
LATEST = 60.0  # seconds between the start of the first launcher and that of the last one of the same launch


class Typed(NamedTuple):
    """One node's launcher, with what it was told."""

    node: str
    agent: Agent
    told: dict[str, str]

    @property
    def head(self) -> tuple[str, int]:
        """Address and port of the head node; as far as it was told."""
        address, _, port = self.told.get("rdzv_endpoint", "").rpartition(":")
        address = self.told.get("master_addr") or address
        address = address.strip("[]")
        return address if is_host(address) else "", number(self.told.get("master_port") or port) or PORT

    @property
    def place(self) -> int:
        known = number(self.told.get("node_rank", ""))
        first = min((shot["rank"] for shot in self.agent["ranks"]), default=0)
        return first if known is None else known

    @property
    def nproc(self) -> int:
        return number(self.told.get("nproc_per_node", "")) or len(self.agent["ranks"]) or 1


class Choice(NamedTuple):
    """Which of what runs is diagnosed where no launch is named. launch: of Muster's, its id. user: the account whose
    hand-typed launch it is. ask: why there is no choice, with the commands that make one. remark: what else runs."""

    launch: str = ""
    user: str = ""
    ask: str = ""
    remark: str = ""


def choose(
    agents: Mapping[str, Sequence[Agent]], here: Collection[str], known: Collection[str], wanted: str, *, has_last: bool
) -> Choice:
    """Muster's own launches first, then what an account of the cluster has typed. Anybody with a login can name a
    process torchrun, so that of another account is taken only where nothing else could be meant, or where it is asked
    for. here: launches that were begun from this controller. known: accounts of the cluster. wanted: the account that
    is asked for. has_last: whether the last launch is diagnosed where nothing is chosen."""
    launches, accounts = of_muster(agents), typed_by(agents)
    if wanted:
        return Choice(user=wanted) if wanted in accounts else Choice(ask=f"No torchrun of {wanted} runs on any node.")
    mine = [one for one in launches if one in here] or list(launches)
    theirs = [one for one in accounts if one in known] or ([] if has_last else list(accounts))
    if len(mine) == 1:
        return Choice(launch=mine[0], remark=also(launches, accounts, mine[0]))
    if not mine and len(theirs) == 1:
        return Choice(user=theirs[0], remark=also(launches, accounts, theirs[0]))
    if mine or theirs:
        return Choice(ask=f"Several launches run. {also(launches, accounts)}")
    return Choice(remark=also(launches, accounts))


def of_muster(agents: Mapping[str, Sequence[Agent]]) -> dict[str, list[str]]:
    """The nodes of each of Muster's own launches among them, by its id."""
    found: dict[str, list[str]] = {}
    for node, all_of in agents.items():
        for launch in dict.fromkeys(launch_of(agent["unit"]) for agent in all_of):
            if launch:
                found.setdefault(launch, []).append(node)
    return found


def typed_by(agents: Mapping[str, Sequence[Agent]]) -> dict[str, list[str]]:
    """The nodes of each account that has begun a launcher by hand; those with the most nodes first."""
    found: dict[str, list[str]] = {}
    for node, all_of in agents.items():
        for user in dict.fromkeys(agent["user"] for agent in all_of if not launch_of(agent["unit"])):
            found.setdefault(user, []).append(node)
    return dict(sorted(found.items(), key=lambda one: -len(one[1])))


def also(launches: Mapping[str, list[str]], accounts: Mapping[str, list[str]], chosen: str = "") -> str:
    """What runs beside the one that is chosen, and how it is diagnosed; "" for nothing."""
    said = [
        f"launch {one} on {few(nodes)}: {playbook('playbooks/diagnose.yml', launch=one)}"
        for one, nodes in launches.items()
        if one != chosen
    ]
    for one, nodes in accounts.items():
        name = one if ACCOUNT.fullmatch(one) else "an account with an unusual name"
        how = f": {playbook('playbooks/diagnose.yml', account=one)}" if ACCOUNT.fullmatch(one) else ""
        said += [f"torchrun of {name} on {few(nodes)}{how}"] if one != chosen else []
    return f"Running{' as well' if chosen else ''}: {few(said, '; ')}" if said else ""


def one_launch(agents: Mapping[str, Sequence[Agent]], user: str) -> list[Typed]:
    """The launchers of the launch that this account has typed, by node rank."""
    theirs = [
        Typed(node, agent, arguments(agent["argv"]))
        for node, all_of in agents.items()
        for agent in all_of
        if agent["user"] == user and not launch_of(agent["unit"])
    ]
    if not theirs:
        return []
    theirs.sort(key=lambda one: -one.agent["started"])
    # The newest of each node, of those that began together: an older one is another launch.
    newest = {one.node: one for one in reversed(theirs) if one.agent["started"] > theirs[0].agent["started"] - LATEST}
    return sorted(newest.values(), key=lambda one: one.place)


def case_shape(typed: Sequence[Typed], nodes: Mapping[str, NodeSpec], gathered: Gathered) -> CaseShape:
    address, port = most(one.head for one in typed)
    planned = [planned_as(one, nodes[one.node]) for one in typed]
    expected = [number(one.told.get("nnodes", "").rpartition(":")[2]) or len(typed) for one in typed]
    return {
        "schema": SCHEMA,
        "launch": {
            "launch_id": "",
            "how": "foreign",
            "own": False,
            "live": True,
            "backend": "",
            "launcher": TORCHRUN.name,
            "world_size": max(expected) * typed[0].nproc,
            "master_addr": address or planned[0]["address"],
            "master_port": port,
            "timeout": 0.0,
            "nodes": planned,
            "ending": "",
            "ending_text": "it runs, and was not begun by Muster",
            "ending_node": "",
            "starting": False,
            "began": min(one.agent["started"] for one in typed),
            "stop_began": 0.0,
        },
        "ranks": [one for each in planned for one in silent_ranks(each)],
        "nodes": [running(one.node) for one in typed],
        "start": gathered.start,
        "end": gathered.end,
        "snapshots": gathered.snapshots,
        "agents": {one.node: [one.agent] for one in typed},
        "findings": gathered.findings,
        "ran": gathered.ran,
        "not_looked": gathered.not_looked,
        "key": gathered.key,
    }


def planned_as(one: Typed, spec: NodeSpec) -> LaunchNode:
    known = sorted(shot["rank"] for shot in one.agent["ranks"])
    return {
        "node": one.node,
        "address": spec.address,
        "interface": spec.interface,
        "node_rank": one.place,
        "ranks": known or list(range(one.place * one.nproc, (one.place + 1) * one.nproc)),
    }


def plan_of(launch: LaunchFacts, user: str) -> LaunchPlan:
    """Return the plan of a launch that was typed by hand, as far as its nodes can be asked by it."""
    nodes = [PlannedNode(nproc=len(one["ranks"]), **one) for one in launch["nodes"]]
    place = (launch["backend"], launch["master_addr"], launch["master_port"], launch["world_size"])
    return LaunchPlan(launch["launch_id"], "", user, *place, nodes, launcher=launch["launcher"])


def silent_ranks(planned: LaunchNode) -> Iterable[RankEnd]:
    for local, rank in enumerate(planned["ranks"]):
        yield {
            "rank": rank,
            "node": planned["node"],
            "local_rank": local,
            "code": None,
            "gone_at": None,
            "stderr": "",
            "error": "",
        }


def running(node: str) -> NodeEnd:
    return {
        "node": node,
        "reached": True,
        "lost": False,
        "lost_why": "",
        "last_answer": 0.0,
        "reason": "",
        "code": None,
        "error": "",
        "result": "",
        "ended_at": 0.0,
        "log": "",
    }


def most(heads: Iterable[tuple[str, int]]) -> tuple[str, int]:
    return Counter(heads).most_common(1)[0][0]


def number(text: str) -> int | None:
    return int(text) if text.isdecimal() and len(text) < 7 else None  # no port or count is longer
