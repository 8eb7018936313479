"""Check that every node can connect to every other node on the ports of a launch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..verdict.check import Check
from ..verdict.commands import on_node, playbook, shell
from ..verdict.finding import evidence
from ..verdict.words import few
from . import routes, sides
from .blame import BlameShare, blame
from .cluster import untried

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from ..verdict.check import Seen
    from ..verdict.finding import Finding, FindingEvidence
    from .blame import Pair
    from .cluster import Cluster
    from .links import Link

PROBE = "muster-probe"  # process name of another probe, see plugins/module_utils/muster_node/programs/probe_listener.py
# Outcome of a connection -> description with its typical cause.
SAYS = {
    "dropped": "no reply (typical of a firewall that drops packets)",
    "refused": "refused although a listener is running (typical of a firewall that rejects packets)",
    "prohibited": "'no route to host' although the host is up (typical of a firewall that rejects packets)",
    "unreachable": "no route to host (typical of an address that no host has)",
    "foreign": "another program answers",
}
FIREWALL = "Allow traffic from the cluster nodes on firewalls in between. For the node's own firewall, run"
OWN_FIREWALL = "Allow traffic from the cluster nodes in the packet filter of {node}, for example with"
NETWORK = playbook("site.yml", tags="network")


def fires(outcome: str) -> str:
    return (
        f"connections fail: {SAYS[outcome]}. The finding is about a node if most of its links fail, otherwise about a"
        " pair. fail between launch participants (for the master port: on the head node only), otherwise warn"
    )


def every_port(outcome: str) -> str:
    return f"connections to all of these ports fail: {SAYS[outcome]}"


MASTER_PORT_READS = (
    "connections from each node to a listener on cluster_master_port of each other node and, before a detached launch,"
    " to the heartbeat port of the head node (the master port minus 50)"
)
EPHEMERAL_READS = (
    "connections to listeners on the first, the last and other ports of ip_local_port_range, which Gloo and NCCL use"
)
PEER_READS = "connections to the master port and ephemeral ports of a node"
LET_IN = f"{FIREWALL}: {NETWORK}"
LOOK_ON_THE_WAY = "Check the address, the route and the firewalls in between"


def by_outcome(reads: str, fires: Callable[[str], str], fix: str, seen: Mapping[str, Seen]) -> dict[str, Check]:
    """Return one check for each outcome of connections, which is the last part of its id."""
    checks = {name: name.rpartition(".")[2] for name in seen}
    return {
        outcome: Check(name, seen=seen[name], reads=reads, fires=fires(outcome), fix=fix)
        for name, outcome in checks.items()
    }


MASTER_PORT_FOREIGN = Check(
    "net.master_port.foreign",
    seen="sandbox",
    reads=MASTER_PORT_READS,
    fires=fires("foreign"),
    fix="Stop the process that uses the port, or choose another port",
)
MASTER_PORT = {
    **by_outcome(
        MASTER_PORT_READS,
        fires,
        LET_IN,
        {
            "net.master_port.dropped": "sandbox",
            "net.master_port.refused": "sandbox",
            "net.master_port.prohibited": "sandbox",
        },
    ),
    "foreign": MASTER_PORT_FOREIGN,
}
EPHEMERAL_PORTS = by_outcome(
    EPHEMERAL_READS,
    fires,
    LET_IN,
    {
        "net.ephemeral_ports.dropped": "sandbox",
        "net.ephemeral_ports.refused": "stand-in",
        "net.ephemeral_ports.prohibited": "stand-in",
        "net.ephemeral_ports.foreign": "stand-in",
    },
)
PEER = by_outcome(
    PEER_READS,
    every_port,
    LOOK_ON_THE_WAY,
    {
        "net.peer.dropped": "sandbox",
        "net.peer.refused": "stand-in",
        "net.peer.prohibited": "stand-in",
        "net.peer.foreign": "stand-in",
        "net.peer.unreachable": "sandbox",
    },
)
PEER_HANGS = Check(
    "net.peer.hangs",
    seen="stand-in",
    reads="connections from the other nodes to the SSH port of a node that stopped responding",
    fires="the kernel accepts connections, but sshd sends nothing: the node or its sshd hangs (fail)",
    fix="Check the console. The node might be frozen, out of memory or waiting for a disk",
)
WRONG_HOST = Check(
    "net.address.wrong_host",
    seen="sandbox",
    reads="the node name that the listener at a node's address reports",
    fires="another node answers at the address (fail)",
    fix="Give each node a unique address",
)
BUSY = Check(
    "net.probe.busy",
    seen="stand-in",
    reads="the process that uses the master port",
    fires="the process is another probe (unknown)",
    fix="Run the probe again after the other probe has finished",
)

CHECKS = (*MASTER_PORT.values(), *EPHEMERAL_PORTS.values(), *PEER.values())
BECAME = {check: check.id.rpartition(".")[2] for check in CHECKS}


def judge(cluster: Cluster) -> Iterator[Finding]:
    yield from holders(cluster)
    astray = routes.astray(cluster)
    yield from routes.judge(cluster, astray)
    explained = {pair for link in astray for pair in ((link.origin, link.target), (link.target, link.origin))}
    fired: dict[Check, dict[Pair, Link]] = {}
    for link in cluster.links:
        if (link.origin, link.target) in explained and routes.is_lost(link):
            continue
        for check in checks_of(link, cluster):
            fired.setdefault(check, {})[link.origin, link.target] = link
    tested = {(link.origin, link.target) for link in cluster.links if set(link.ports.values()) - {"not_tried"}}
    for check, bad in fired.items():
        for share in blame(cluster.names, bad, tested):
            yield conclusion(check, share, bad, cluster)


def holders(cluster: Cluster) -> Iterator[Finding]:
    for node in cluster.nodes:
        if not node.served or not node.served["holder"] or untried(node.served, cluster.port):
            continue
        if node.served["holder"] == PROBE:
            yield BUSY.unknown(
                node.name,
                f"another probe uses port {cluster.port}, so the port was not tested",
            )
        else:
            yield (MASTER_PORT_FOREIGN.fail if node.name == cluster.head else MASTER_PORT_FOREIGN.warn)(
                node.name,
                f"port {cluster.port} is used by another process, so the other nodes cannot connect to the launch",
                "Stop the process, or set cluster_master_port to another port. Show the process with",
                shell("sudo ss -ltnp sport = :{port}", port=cluster.port),
                observed=node.served["holder"],
                expected=f"port {cluster.port} free",
                evidence=evidence(f"bind to port {cluster.port}", node.served["holder"]),
            )


def checks_of(link: Link, cluster: Cluster) -> list[Check]:
    """Return the checks that report this link; several if its ports have different outcomes."""
    target = cluster.node(link.target)
    if target.served is None:
        return []  # no listener runs on the target
    if "wrong_host" in link.ports.values():
        return [WRONG_HOST]
    if len(set(link.ports.values())) == 1 and link.outcome != "ok" and len(link.ports) > 1:
        return [PEER["unreachable" if link.outcome == "no_route" else link.outcome]]
    found = []
    for port, seen in link.ports.items():
        if seen in ("ok", "not_tried"):
            continue
        # Other ports answer, so a route exists.
        outcome = "prohibited" if seen == "no_route" else seen
        if port not in cluster.declared:
            found.append(EPHEMERAL_PORTS[outcome])
        elif port == cluster.beats or not target.served["holder"]:
            found.append(MASTER_PORT[outcome])
    return list(dict.fromkeys(found))


def conclusion(check: Check, share: BlameShare, bad: Mapping[Pair, Link], cluster: Cluster) -> Finding:
    first = bad[share.links[0]]
    if check is WRONG_HOST:
        return wrong_host(share, first, cluster, calls(share, bad))
    outcome = BECAME[check]
    text, command = fix_for(outcome, cluster, first)
    drops = sides.of((bad[pair] for pair in share.links), cluster) if outcome == "dropped" else None
    if drops and drops.at:
        text = OWN_FIREWALL.format(node=drops.at)
    return (check.fail if stops_a_launch(check, share, cluster) else check.warn)(
        share.node,
        sentence(check, share, bad, cluster, drops.says if drops else SAYS[outcome]),
        text,
        command,
        observed=drops.words if drops else outcome,
        expected="ok",
        evidence=calls(share, bad),
        peer=share.peer,
    )


def calls(share: BlameShare, bad: Mapping[Pair, Link]) -> list[FindingEvidence]:
    shown = "; ".join(f"{origin} -> {target}: {outcomes(bad[origin, target])}" for origin, target in share.links[:8])
    return evidence("connections between the nodes (net_probe)", shown)


def wrong_host(share: BlameShare, link: Link, cluster: Cluster, proof: list[FindingEvidence]) -> Finding:
    address = cluster.node(link.target).address
    return WRONG_HOST.fail(
        share.node,
        f"{link.answered_by or 'another machine'} answers at the node's address {address}",
        "Give each node a unique address. Find the nodes that have this address with",
        on_node("gpu_nodes", "ip -brief address show to {address}", address=address),
        observed="wrong_host",
        expected="ok",
        evidence=proof,
        peer=share.peer,
    )


def sentence(check: Check, share: BlameShare, bad: Mapping[Pair, Link], cluster: Cluster, says: str) -> str:
    ports = sorted({port for pair in share.links for port in concerned(check, bad[pair], cluster.declared)})
    where = f"port {', '.join(map(str, ports))}" if len(ports) < 3 else "any tested port"
    who = few(share.peers)
    if share.way == "from":
        return f"this node cannot connect to {who} on {where}, but other nodes can: {says}"
    if share.way == "both":
        return f"this node and {who} cannot connect to each other on {where}: {says}"
    alone = ", but other nodes can" if share.way == "pair" and len(cluster.nodes) > 2 else ""
    return f"{who} cannot connect to this node on {where}{alone}: {says}"


def concerned(check: Check, link: Link, declared: tuple[int | None, ...]) -> list[int]:
    bad = [port for port, outcome in link.ports.items() if outcome not in ("ok", "not_tried")]
    if check in PEER.values():
        return bad
    return [port for port in bad if (port in declared) == (check in MASTER_PORT.values())]


def outcomes(link: Link) -> str:
    return ", ".join(f"{port} {outcome}" for port, outcome in link.ports.items())


def stops_a_launch(check: Check, share: BlameShare, cluster: Cluster) -> bool:
    """Return whether bad links make a launch fail: they connect two participating nodes or, for the master port, lead
    to the head node.
    """
    needed = [pair for pair in share.links if set(pair) <= set(cluster.participants)]
    if check in MASTER_PORT.values():
        needed = [pair for pair in needed if pair[1] == cluster.head]
    return bool(needed)


def fix_for(outcome: str, cluster: Cluster, link: Link) -> tuple[str, str]:
    """Return the fix for a bad link, and the command of the fix."""
    if outcome == "unreachable":
        return (
            f"Check that {link.target} has its cluster_address configured, and check the route with",
            on_node(link.origin, "ip route get {address}", address=cluster.node(link.target).address),
        )
    if outcome == "foreign":
        return (
            f"Find the program that accepts these connections on {link.target} with",
            on_node(link.target, "ss -ltnp", become=True),
        )
    return FIREWALL, NETWORK
