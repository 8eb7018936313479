"""Test the links between the nodes of a launch immediately before the start, on the addresses and ports of the launch.

torchrun reports a closed port only after its full timeout, and only on the connecting node. These short connection
tests name both ends and the cause. The health probe takes longer, because it measures more and covers all nodes.
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
    reads="connections between all participants right before the start: to cluster_master_port of the head node, for a"
    " detached launch also to its heartbeat port, and to ephemeral ports",
    fires="a node could not take part in the test (warn). The test's own findings have ids that start with net",
    fix="No action is needed if the launch runs. To disable the test, set launch_probe=false",
)
LOOKED_FOR = (  # beside the master port
    "net.ephemeral_ports",
    "net.peer",
    reach.WRONG_HOST.id,
    "net.path_mtu",
    PEER_OTHER_INTERFACE.id,
)
SAMPLES = 2  # number of ephemeral ports: the first and the last
# Seconds without connections after which a listener ends (lost controller). Much longer than a healthy probe.
IDLE, IDLE_PER_NODE = 5.0, 0.2
FIRST_CALL = 15.0
NO_PACKETS = 0  # measuring loss takes a third of a second, and loss does not block a launch


def serve_request(plan: LaunchPlan, entry: PlannedNode, token: str, beats: int | None = None) -> dict[str, Any]:
    """Return the request to start a node's listener.

    The head node also listens on the master port and, for a detached launch, on the heartbeat port (beats).
    """
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
    """Return the request that makes a node connect to all nodes that listen."""
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
    """Return findings that block the launch (fail) or may disturb it.

    why: the reason for each node that was not tested.
    """
    found = concluded(cluster_of(plan, served, called, beats))
    # Another probe on the port does not block a launch: it ends before the ranks start.
    unseen = [
        *(UNSEEN.warn(one.node, one.summary) for one in found if one.status == "unknown"),
        *(UNSEEN.warn(name, f"links not tested: {reason}") for name, reason in why.items()),
    ]
    return [*(one for one in found if one.status in ("fail", "warn")), *unseen]


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
    """Return the findings about reachability, packet size problems and slow streams."""
    return [*reach.judge(cluster), *quality.black_holes(cluster), *quality.slow(cluster)]


def looked_for(
    plan: LaunchPlan,
    served: Mapping[str, Mapping[str, Any]],
    called: Mapping[str, Mapping[str, Any]],
    cluster: Cluster,
) -> dict[str, list[str]]:
    """Return the prefixes of the checked IDs for each node that listened and connected.

    If the head node could not listen on the master port, that port was not checked on any node.
    """
    head = served.get(plan.head.node)
    master = ["net.master_port"] if head and head["port"] and not untried(head, plan.master_port) else []
    return {
        name: [*LOOKED_FOR, *master, *([quality.SLOW_STREAM.id] if is_measured(cluster, name) else [])]
        for name in called
        if name in served
    }


def is_measured(cluster: Cluster, name: str) -> bool:
    """Return whether all open links of the node have a measured rate, and slow links were measured twice."""
    slow = quality.suspects(cluster)
    ways = [link for link in cluster.touching(name) if "ok" in link.ports.values()]
    return bool(ways) and all(
        link.rate is not None and (link.twice or (link.origin, link.target) not in slow) for link in ways
    )


# ---------------------------------------------------------------- replies of nodes


Text = Annotated[str, Limit(most=200, instead="")]
OpenPort = Annotated[int | None, Limit(least=1, below=65536, instead=None)]


class Carrier(TypedDict):
    addresses: Annotated[list[Text], Limit(most=200)]
    mac: Text
    mtu: Annotated[int | None, Limit(least=0, instead=None)]


class ServedFacts(TypedDict):
    """The state of a listener: its process and ports. holder: the process that uses the master port."""

    pid: Count
    started: Count
    port: OpenPort
    beats: OpenPort
    holder: Text
    ephemeral: Annotated[list[Annotated[int, Limit(least=1, below=65536)]], Limit(most=SAMPLES, needed=True)]
    filtered: Annotated[int | None, Limit(instead=None)]
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
    """One node's results for the link to another node. sizes: set if full-size packets did not arrive."""

    ports: dict[str, Call]
    route_error: Text
    neighbour: Text
    way: Text
    gateway: Text
    hardware: Text
    knocks: Count
    left: Count
    error: Text
    source: Annotated[str | None, Limit(most=200, instead=None)]
    full_size: Flag
    pmtu: Count
    sizes: Annotated[list[Size], Limit(most=1000)]
    bulk: Annotated[list[StreamTry], Limit(most=2)]


def read_served(data: Any) -> dict[str, Any]:
    """Return the fields of a `serve` reply that are used. Raises UnusableError."""
    return {**read(ServedFacts, data)[0], "physical": []}


def read_called(data: Any, peers: Mapping[str, list[int]]) -> dict[str, dict[str, LinkFacts]]:
    """Return the part of a `links` reply that is about these nodes and ports. Raises UnusableError."""
    seen = data.get("links") if isinstance(data, dict) else None
    if not isinstance(seen, dict):
        raise UnusableError("links: expected the results of connections")
    links = {name: link for name in peers if (link := read_one(LinkFacts, seen.get(name))) is not None}
    for name, link in links.items():
        asked = map(str, peers[name])
        link["ports"] = {port: link["ports"][port] for port in asked if port in link.get("ports", {})}
        link["full_size"] = link["full_size"] and "pmtu" in link
    return {"links": links}
