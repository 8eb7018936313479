"""A case from a running launch that Muster did not start, built from the torchrun processes on the nodes.

The arguments can differ between nodes. The case uses the most frequent head node and port. `agents` keeps the arguments
of each node, so that the cause checks can compare them.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from ..launch.launchers import TORCHRUN
from ..launch.messages import ACCOUNT
from ..launch.planned import LaunchPlan, PlannedNode
from ..launch.unit import launch_of
from ..verdict.commands import playbook
from ..verdict.words import few
from .arguments import arguments
from .launched import shape_of
from .log_arguments import endpoint, number

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from ..launch.plan import NodeSpec
    from .evidence import Agent, CaseShape, LaunchFacts, LaunchNode, NodeEnd, RankEnd
    from .launched import Gathered

PORT = 29500  # default of torchrun
LATEST = 60.0  # seconds between the first and the last launcher start of a launch


class Typed(NamedTuple):
    """A launcher on a node, with its arguments."""

    node: str
    agent: Agent
    told: dict[str, str]

    @property
    def head(self) -> tuple[str, int]:
        """Return the address and the port of the head node according to the arguments."""
        address, port = endpoint([self.told])
        return address, port or PORT

    @property
    def place(self) -> int:
        first = min((shot["rank"] for shot in self.agent["ranks"]), default=0)
        return number(self.told["node_rank"]) if "node_rank" in self.told else first

    @property
    def nproc(self) -> int:
        return number(self.told.get("nproc_per_node", "")) or len(self.agent["ranks"]) or 1


class Choice(NamedTuple):
    """The running launch to diagnose if the user did not name one. launch: ID of a Muster launch. user: account of a
    manual launch. ask: why no launch was selected, with commands that select one. remark: a sentence about other
    running launches."""

    launch: str = ""
    user: str = ""
    ask: str = ""
    remark: str = ""


def choose(
    agents: Mapping[str, Sequence[Agent]], here: Collection[str], known: Collection[str], wanted: str, *, has_last: bool
) -> Choice:
    """Choose the running launch to diagnose: Muster launches first, then manual launches of cluster accounts. Any user
    can name a process torchrun, so another account is selected only if it is requested or if there is no alternative.
    here: launches started from this controller. known: cluster accounts. wanted: the requested account. has_last:
    whether the last launch is diagnosed if no launch is selected."""
    launches, accounts = of_muster(agents), typed_by(agents)
    if wanted:
        return Choice(user=wanted) if wanted in accounts else Choice(ask=f"{wanted} runs no torchrun on any node.")
    mine = [one for one in launches if one in here] or list(launches)
    theirs = [one for one in accounts if one in known] or ([] if has_last else list(accounts))
    if len(mine) == 1:
        return Choice(launch=mine[0], remark=also(launches, accounts, mine[0]))
    if not mine and len(theirs) == 1:
        return Choice(user=theirs[0], remark=also(launches, accounts, theirs[0]))
    if mine or theirs:
        return Choice(ask=f"Several launches are running. {also(launches, accounts)}")
    return Choice(remark=also(launches, accounts))


def of_muster(agents: Mapping[str, Sequence[Agent]]) -> dict[str, list[str]]:
    """Return the nodes of each Muster launch by its ID."""
    found: dict[str, list[str]] = {}
    for node, all_of in agents.items():
        for launch in dict.fromkeys(launch_of(agent["unit"]) for agent in all_of):
            if launch:
                found.setdefault(launch, []).append(node)
    return found


def typed_by(agents: Mapping[str, Sequence[Agent]]) -> dict[str, list[str]]:
    """Return the nodes of each account that has a manual launch, starting with the account that uses the most nodes."""
    found: dict[str, list[str]] = {}
    for node, all_of in agents.items():
        for user in dict.fromkeys(agent["user"] for agent in all_of if not launch_of(agent["unit"])):
            found.setdefault(user, []).append(node)
    return dict(sorted(found.items(), key=lambda one: -len(one[1])))


def also(launches: Mapping[str, list[str]], accounts: Mapping[str, list[str]], chosen: str = "") -> str:
    """Return a list of other running launches with the commands to diagnose them; "" for none."""
    said = [
        f"launch {one} on {few(nodes)}: {playbook('playbooks/diagnose.yml', launch=one)}"
        for one, nodes in launches.items()
        if one != chosen
    ]
    for one, nodes in accounts.items():
        name = one if ACCOUNT.fullmatch(one) else "an account with unusual characters in its name"
        how = f": {playbook('playbooks/diagnose.yml', account=one)}" if ACCOUNT.fullmatch(one) else ""
        said += [f"torchrun of {name} on {few(nodes)}{how}"] if one != chosen else []
    return f"{'Also running' if chosen else 'Running'}: {few(said, '; ')}" if said else ""


def one_launch(agents: Mapping[str, Sequence[Agent]], user: str) -> list[Typed]:
    """Return the launchers of the account's manual launch, ordered by node rank."""
    theirs = [
        Typed(node, agent, arguments(agent["argv"]))
        for node, all_of in agents.items()
        for agent in all_of
        if agent["user"] == user and not launch_of(agent["unit"])
    ]
    if not theirs:
        return []
    theirs.sort(key=lambda one: -one.agent["started"])
    # The newest launcher of each node, if started together. Older launchers belong to another launch.
    newest = {one.node: one for one in reversed(theirs) if one.agent["started"] > theirs[0].agent["started"] - LATEST}
    return sorted(newest.values(), key=lambda one: one.place)


def case_shape(typed: Sequence[Typed], nodes: Mapping[str, NodeSpec], gathered: Gathered) -> CaseShape:
    address, port = most(one.head for one in typed)
    planned = [planned_as(one, nodes[one.node]) for one in typed]
    expected = [number(one.told.get("nnodes", "")) or len(typed) for one in typed]
    launch: LaunchFacts = {
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
        "ending_text": "the launch is running and was not started by Muster",
        "ending_node": "",
        "starting": False,
        "began": min(one.agent["started"] for one in typed),
        "stop_began": 0.0,
    }
    ranks = [one for each in planned for one in silent_ranks(each)]
    agents = {one.node: [one.agent] for one in typed}
    return shape_of(launch, ranks, [running(one.node) for one in typed], replace(gathered, agents=agents))


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
    """Return a plan of a manual launch with the parts that the probes of its nodes need."""
    nodes = [PlannedNode(nproc=len(one["ranks"]), **one) for one in launch["nodes"]]
    place = (launch["backend"], launch["master_addr"], launch["master_port"], launch["world_size"])
    return LaunchPlan(launch["launch_id"], "", user, *place, nodes, launcher=launch["launcher"])


def silent_ranks(planned: LaunchNode) -> Iterable[RankEnd]:
    return (rank_end(rank, planned["node"], local) for local, rank in enumerate(planned["ranks"]))


def rank_end(
    rank: int, node: str, local: int, code: int | None = None, gone_at: float | None = None, stderr: str = ""
) -> RankEnd:
    return {
        "rank": rank,
        "node": node,
        "local_rank": local,
        "code": code,
        "gone_at": gone_at,
        "stderr": stderr,
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
