"""The links between the participants of a launch, on its own addresses and port, right before it starts.

torchrun finds a closed port only after its whole patience, and names the node that called. Calls that take a moment
name both ends, and what is wrong. The probe of health measures more, between all nodes, and has more time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..inspect.training_network import PEER_OTHER_INTERFACE
from ..verdict.check import Check
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
# Of what a node says: enough for any machine.
MOST_INTERFACES = 500
MOST_ADDRESSES = 200
MOST_TEXT = 200
MOST_SIZES = 1000
MOST_PORT = 65535
MOST_TRIES = 2
LONGEST_TRY = 60.0  # seconds


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


def read_served(data: Any) -> dict[str, Any]:
    """What `serve` answered, as far as it is used. Raises ValueError where it is of no use."""
    seen = data if isinstance(data, dict) else {}
    pid, started = seen.get("pid"), seen.get("started")
    ephemeral = seen.get("ephemeral")
    if not _whole(pid) or not _whole(started) or not isinstance(ephemeral, list):
        raise ValueError("it does not say what listens")
    interfaces = seen.get("interfaces")
    return {
        "pid": pid,
        "started": started,
        "port": seen["port"] if _port(seen.get("port")) else None,
        "beats": seen["beats"] if _port(seen.get("beats")) else None,
        "holder": _text(seen.get("holder")),
        "ephemeral": [port for port in ephemeral[:SAMPLES] if _port(port)],
        "interfaces": _interfaces(interfaces) if isinstance(interfaces, dict) else None,
        "physical": [],
    }


def _interfaces(given: dict[Any, Any]) -> dict[str, Any]:
    found = {}
    for name, seen in list(given.items())[:MOST_INTERFACES]:
        addresses = seen.get("addresses") if isinstance(seen, dict) else None
        if isinstance(addresses, list):
            mtu = seen.get("mtu")
            found[_text(name)] = {
                "addresses": [_text(address) for address in addresses[:MOST_ADDRESSES]],
                "mtu": mtu if _whole(mtu) else None,
            }
    return found


def read_called(data: Any, peers: Mapping[str, list[int]]) -> dict[str, Any]:
    """What `links` answered of these peers and their ports. Raises ValueError where it is of no use."""
    seen = data.get("links") if isinstance(data, dict) else None
    if not isinstance(seen, dict):
        raise ValueError("it does not say what became of its calls")
    return {
        "links": {name: _link(seen[name], ports) for name, ports in peers.items() if isinstance(seen.get(name), dict)}
    }


def _link(seen: dict[str, Any], ports: list[int]) -> dict[str, Any]:
    ports_seen = seen.get("ports")
    tried = ports_seen if isinstance(ports_seen, dict) else {}
    sizes = seen.get("sizes")
    link: dict[str, Any] = {
        "ports": {str(port): _call(tried[str(port)]) for port in ports if isinstance(tried.get(str(port)), dict)},
        **{name: _text(seen.get(name)) for name in ("route_error", "neighbour", "way", "error")},
        "source": _text(seen.get("source")) or None,
    }
    if seen.get("full_size") is True and _whole(seen.get("pmtu")):
        link.update(full_size=True, pmtu=seen["pmtu"])
    elif isinstance(sizes, list):
        usable = [one for one in sizes[:MOST_SIZES] if isinstance(one, dict) and _whole(one.get("mtu"))]
        link["sizes"] = [{"mtu": one["mtu"], "passes": one.get("passes") is True} for one in usable]
    bulk = seen.get("bulk")
    if tries := [one for one in map(_bulk, bulk[:MOST_TRIES] if isinstance(bulk, list) else []) if one]:
        link["bulk"] = tries
    return link


def _bulk(entry: Any) -> dict[str, Any] | None:
    if not isinstance(entry, dict) or not _whole(entry.get("acked")):
        return None
    seconds = entry.get("seconds")
    if not isinstance(seconds, (int, float)) or isinstance(seconds, bool) or not 0 < seconds < LONGEST_TRY:
        return None
    return {"whole": entry.get("whole") is True, "acked": entry["acked"], "seconds": seconds}


def _call(entry: dict[str, Any]) -> dict[str, Any]:
    seconds, greeting = entry.get("seconds"), entry.get("greeting")
    return {
        "error": _text(entry.get("error")),
        "seconds": seconds if isinstance(seconds, (int, float)) and not isinstance(seconds, bool) else 0.0,
        "greeting": _text(greeting) if greeting is not None else None,
        "spoke": entry.get("spoke") is not False,
    }


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63


def _port(value: Any) -> bool:
    return _whole(value) and 0 < value <= MOST_PORT


def _text(value: Any) -> str:
    return value[:MOST_TEXT] if isinstance(value, str) else ""
