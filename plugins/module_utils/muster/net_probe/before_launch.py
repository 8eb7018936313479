"""The links between the participants of a launch, on its own addresses and port, right before it starts.

torchrun finds a closed port only after its whole patience, and names the node that called. Calls that take a moment
name both ends, and what is wrong. The probe of health measures more, between all nodes, and has more time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, TypedDict

from ..inspect.training_network import PEER_OTHER_INTERFACE
from ..verdict.check import Check
from ..verdict.reading import Count, Flag, Limit, UnusableError, read, read_one
from . import links, quality, reach
from .cluster import Cluster, untried

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..launch.planned import LaunchPlan, PlannedNode
    from ..verdict.finding import Finding

UNSEEN = Check(
    "launch.links",
    seen="stand-in",
    reads="calls between all participants right before the start: to cluster_master_port of the head node, for a"
    " detached launch to the port of its beats there, and to ports that their kernels hand out",
    fires="a node could not be asked to take part in them (warn). What they find has an id that begins with net",
    fix="Nothing, if the launch runs; launch_probe=false leaves the calls out",
)
LOOKED_FOR = (  # beside the master port
    "net.ephemeral_ports",
    "net.peer",
    reach.WRONG_HOST.id,
    "net.path_mtu",
    PEER_OTHER_INTERFACE.id,
)
SAMPLES = 2  # of the ports that the kernel hands out: the first and the last
# Nobody calls any more: the controller is gone. Much longer than a healthy probe takes.
IDLE, IDLE_PER_NODE = 5.0, 0.2
FIRST_CALL = 15.0
NO_PACKETS = 0  # losses take a third of a second to count, and stop no launch


def serve_request(plan: LaunchPlan, entry: PlannedNode, token: str, beats: int | None = None) -> dict[str, Any]:
    """What the listener of a node is asked for: on the head node, the launch's own ports as well. beats: the second of
    them, where the launch is to be detached."""
    return {
        "token": token,
        "node": entry.node,
        "port": plan.master_port if entry.node_rank == 0 else None,
        "beats": beats if entry.node_rank == 0 else None,
        "samples": SAMPLES,
        "idle": IDLE + IDLE_PER_NODE * len(plan.nodes),
        "first_call": FIRST_CALL,
    }


def call_request(
    plan: LaunchPlan, entry: PlannedNode, token: str, served: Mapping[str, Mapping[str, Any]]
) -> dict[str, Any]:
    """Whom a node is to call, and where: those that listen."""
    peers = [
        {
            "node": peer.node,
            "address": peer.address,
            "names": [],
            "ports": ports_of(served[peer.node]),
        }
        for peer in plan.nodes
        if peer.node in served and peer.node != entry.node
    ]
    return {"token": token, "address": entry.address, "packets": NO_PACKETS, "peers": peers}


def ports_of(served: Mapping[str, Any]) -> list[int]:
    return [*(port for port in (served["port"], served["beats"]) if port), *served["ephemeral"]]


def judge(
    plan: LaunchPlan,
    served: Mapping[str, Mapping[str, Any]],
    called: Mapping[str, Mapping[str, Any]],
    why: Mapping[str, str],
    beats: int | None = None,
) -> list[Finding]:
    """What stands against the launch (fail), and what may. why: of each node that could not be asked."""
    said = concluded(cluster_of(plan, served, called, beats))
    # Another probe on the port is no reason against a launch: it ends before the ranks begin.
    unseen = [
        *(UNSEEN.warn(one.node, one.summary) for one in said if one.status == "unknown"),
        *(UNSEEN.warn(name, f"its links were not tried: {reason}") for name, reason in why.items()),
    ]
    return [*(one for one in said if one.status in ("fail", "warn")), *unseen]


def cluster_of(
    plan: LaunchPlan,
    served: Mapping[str, Mapping[str, Any]],
    called: Mapping[str, Mapping[str, Any]],
    beats: int | None = None,
) -> Cluster:
    nodes = [
        links.Node(entry.node, entry.address, entry.interface or "", served.get(entry.node)) for entry in plan.nodes
    ]
    names = [node.name for node in nodes]
    found = links.between(nodes, called)
    for link in found:
        link.rate, link.twice = link.bulk, link.stalled
    return Cluster(nodes, found, names[0], plan.master_port, names, beats=beats)


def concluded(cluster: Cluster) -> list[Finding]:
    """What the calls come to: also where hardly anything gets through, or streams were measured and one was slow."""
    return [*reach.judge(cluster), *quality.black_holes(cluster), *quality.slow(cluster)]


def looked_for(
    plan: LaunchPlan,
    served: Mapping[str, Mapping[str, Any]],
    called: Mapping[str, Mapping[str, Any]],
    cluster: Cluster,
) -> dict[str, list[str]]:
    """The beginnings of the ids that were looked for, by node that listened and called.

    The master port is the head node's alone: where that could not be listened on, no node has looked for it.
    """
    head = served.get(plan.head.node)
    master = ["net.master_port"] if head and head["port"] and not untried(head, plan.master_port) else []
    return {
        name: [*LOOKED_FOR, *master, *([quality.SLOW_STREAM.id] if is_measured(cluster, name) else [])]
        for name in called
        if name in served
    }


def is_measured(cluster: Cluster, name: str) -> bool:
    """Whether there is a rate of every way of this node that is open, and one that seemed slow was measured again."""
    slow = quality.suspects(cluster)
    ways = [link for link in cluster.touching(name) if "ok" in link.ports.values()]
    return bool(ways) and all(
        link.rate is not None and (link.twice or (link.origin, link.target) not in slow) for link in ways
    )


# ---------------------------------------------------------------- what nodes answer


Text = Annotated[str, Limit(most=200, instead="")]
OpenPort = Annotated[int | None, Limit(least=1, below=65536, instead=None)]


class Carrier(TypedDict):
    addresses: Annotated[list[Text], Limit(most=200)]
    mtu: Annotated[int | None, Limit(least=0, instead=None)]


class ServedFacts(TypedDict):
    """What a listener is: its process, and the ports on which it listens. holder: who has the launch's port."""

    pid: Count
    started: Count
    port: OpenPort
    beats: OpenPort
    holder: Text
    ephemeral: Annotated[list[Annotated[int, Limit(least=1, below=65536)]], Limit(most=SAMPLES, needed=True)]
    interfaces: dict[Annotated[str, Limit(most=200)], Carrier] | None


class Call(TypedDict):
    error: Text
    seconds: Annotated[float, Limit(instead=0.0)]
    greeting: Annotated[str | None, Limit(most=200, instead=None)]
    spoke: Annotated[bool, Limit(instead=True)]


class Size(TypedDict):
    mtu: Count
    passes: Flag


class StreamTry(TypedDict):
    whole: Flag
    acked: Count
    seconds: Annotated[float, Limit(least=1e-9, below=60.0)]


class LinkFacts(TypedDict, total=False):
    """What one node saw of the way to another. sizes: where the full size did not come through."""

    ports: dict[str, Call]
    route_error: Text
    neighbour: Text
    way: Text
    error: Text
    source: Annotated[str | None, Limit(most=200, instead=None)]
    full_size: Flag
    pmtu: Count
    sizes: Annotated[list[Size], Limit(most=1000)]
    bulk: Annotated[list[StreamTry], Limit(most=2)]


def read_served(data: Any) -> dict[str, Any]:
    """What `serve` answered, as far as it is used. Raises UnusableError."""
    return {**read(ServedFacts, data)[0], "physical": []}


def read_called(data: Any, peers: Mapping[str, list[int]]) -> dict[str, dict[str, LinkFacts]]:
    """What `links` answered of these peers and their ports. Raises UnusableError."""
    seen = data.get("links") if isinstance(data, dict) else None
    if not isinstance(seen, dict):
        raise UnusableError("links: expected what became of its calls")
    links = {name: link for name in peers if (link := read_one(LinkFacts, seen.get(name))) is not None}
    for name, link in links.items():
        asked = map(str, peers[name])
        link["ports"] = {port: link["ports"][port] for port in asked if port in link.get("ports", {})}
        link["full_size"] = link["full_size"] and "pmtu" in link
    return {"links": links}
