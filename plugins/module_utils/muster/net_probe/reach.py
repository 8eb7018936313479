"""Can every node call every other on the ports of a launch: findings, with the node that stands behind them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..verdict.check import Check
from ..verdict.commands import on_node, playbook, shell
from ..verdict.finding import evidence
from ..verdict.words import few
from . import routes
from .blame import BlameShare, blame
from .cluster import untried

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ..verdict.finding import Finding, FindingEvidence
    from .blame import Pair
    from .cluster import Cluster
    from .links import Link

PROBE = "muster-probe"  # an earlier probe's process, see plugins/module_utils/muster_node/programs/probe_listener.py
# What becomes of a call, and what may do such a thing.
SAYS = {
    "dropped": "gets no answer, as when a firewall drops it",
    "refused": "is refused though something listens there, as when a firewall rejects it",
    "prohibited": "is answered that there is no route though the host is there, as when a firewall forbids it",
    "unreachable": "finds no way, as when no host has the address",
    "foreign": "is answered by another program than the one that listens there",
}
FIREWALL = "Let the nodes in, on the node and in whatever filters before it; on the node it is done by"
NETWORK = playbook("site.yml", tags="network")


def fires(outcome: str) -> str:
    return (
        f"a call {SAYS[outcome]}: most of a node's links name the node, a single one the pair. fail where both"
        " take part in a launch (the master port on the head node alone), else warn"
    )


def every_port(outcome: str) -> str:
    return f"every one of them fails alike: a call {SAYS[outcome]}"


MASTER_PORT_READS = (
    "a call from each node to cluster_master_port of each other, where a listener was started for it; right before a"
    " detached launch also to the port 50 below it, on which the head node hears of the others"
)
EPHEMERAL_READS = (
    "calls to listeners on the first, the last and other ports of ip_local_port_range: Gloo and NCCL take theirs from"
    " there"
)
PEER_READS = "calls to all of these ports of a node"
LET_IN = f"{FIREWALL}: {NETWORK}"
LOOK_ON_THE_WAY = "Look at the address, the route and the firewalls on the way"

MASTER_PORT_DROPPED = Check(
    "net.master_port.dropped",
    seen="sandbox",
    reads=MASTER_PORT_READS,
    fires=fires("dropped"),
    fix=LET_IN,
)
MASTER_PORT_REFUSED = Check(
    "net.master_port.refused",
    seen="sandbox",
    reads=MASTER_PORT_READS,
    fires=fires("refused"),
    fix=LET_IN,
)
MASTER_PORT_PROHIBITED = Check(
    "net.master_port.prohibited",
    seen="sandbox",
    reads=MASTER_PORT_READS,
    fires=fires("prohibited"),
    fix=LET_IN,
)
MASTER_PORT_FOREIGN = Check(
    "net.master_port.foreign",
    seen="sandbox",
    reads=MASTER_PORT_READS,
    fires=fires("foreign"),
    fix="Stop what holds the port, or take another port",
)
EPHEMERAL_PORTS_DROPPED = Check(
    "net.ephemeral_ports.dropped",
    seen="sandbox",
    reads=EPHEMERAL_READS,
    fires=fires("dropped"),
    fix=LET_IN,
)
EPHEMERAL_PORTS_REFUSED = Check(
    "net.ephemeral_ports.refused",
    seen="stand-in",
    reads=EPHEMERAL_READS,
    fires=fires("refused"),
    fix=LET_IN,
)
EPHEMERAL_PORTS_PROHIBITED = Check(
    "net.ephemeral_ports.prohibited",
    seen="stand-in",
    reads=EPHEMERAL_READS,
    fires=fires("prohibited"),
    fix=LET_IN,
)
EPHEMERAL_PORTS_FOREIGN = Check(
    "net.ephemeral_ports.foreign",
    seen="stand-in",
    reads=EPHEMERAL_READS,
    fires=fires("foreign"),
    fix=LET_IN,
)
PEER_DROPPED = Check(
    "net.peer.dropped",
    seen="sandbox",
    reads=PEER_READS,
    fires=every_port("dropped"),
    fix=LOOK_ON_THE_WAY,
)
PEER_REFUSED = Check(
    "net.peer.refused",
    seen="stand-in",
    reads=PEER_READS,
    fires=every_port("refused"),
    fix=LOOK_ON_THE_WAY,
)
PEER_PROHIBITED = Check(
    "net.peer.prohibited",
    seen="stand-in",
    reads=PEER_READS,
    fires=every_port("prohibited"),
    fix=LOOK_ON_THE_WAY,
)
PEER_FOREIGN = Check(
    "net.peer.foreign",
    seen="stand-in",
    reads=PEER_READS,
    fires=every_port("foreign"),
    fix=LOOK_ON_THE_WAY,
)
PEER_UNREACHABLE = Check(
    "net.peer.unreachable",
    seen="sandbox",
    reads=PEER_READS,
    fires=every_port("unreachable"),
    fix=LOOK_ON_THE_WAY,
)
PEER_HANGS = Check(
    "net.peer.hangs",
    seen="stand-in",
    reads="calls of the other nodes to the ssh port of a node that stopped answering: whether anything is said there",
    fires="its kernel takes the calls, and nothing says a word: the node hangs, or its sshd does (fail)",
    fix="Look at its console: it is frozen, has no memory left, or waits for a disk",
)
WRONG_HOST = Check(
    "net.address.wrong_host",
    seen="sandbox",
    reads="the name that the listener at a node's address gives of itself",
    fires="another node answers at the address (fail)",
    fix="Give every node an address of its own",
)
BUSY = Check(
    "net.probe.busy",
    seen="stand-in",
    reads="who holds the master port",
    fires="the process of another probe holds it (unknown)",
    fix="Run again when it is done",
)

# By what becomes of the calls.
MASTER_PORT = {
    "dropped": MASTER_PORT_DROPPED,
    "refused": MASTER_PORT_REFUSED,
    "prohibited": MASTER_PORT_PROHIBITED,
    "foreign": MASTER_PORT_FOREIGN,
}
EPHEMERAL_PORTS = {
    "dropped": EPHEMERAL_PORTS_DROPPED,
    "refused": EPHEMERAL_PORTS_REFUSED,
    "prohibited": EPHEMERAL_PORTS_PROHIBITED,
    "foreign": EPHEMERAL_PORTS_FOREIGN,
}
PEER = {
    "dropped": PEER_DROPPED,
    "refused": PEER_REFUSED,
    "prohibited": PEER_PROHIBITED,
    "foreign": PEER_FOREIGN,
    "unreachable": PEER_UNREACHABLE,
}
BECAME = {check: outcome for table in (MASTER_PORT, EPHEMERAL_PORTS, PEER) for outcome, check in table.items()}


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
                f"another probe listens on port {cluster.port}, so that it could not be tried",
            )
        else:
            yield (MASTER_PORT_FOREIGN.fail if node.name == cluster.head else MASTER_PORT_FOREIGN.warn)(
                node.name,
                f"port {cluster.port} is held by another process, and nodes that call it would wait for an answer",
                "Stop it, or set cluster_master_port to another port; what holds it is shown by",
                shell("sudo ss -ltnp sport = :{port}", port=cluster.port),
                observed=node.served["holder"],
                expected=f"port {cluster.port} free",
                evidence=evidence(f"bind to port {cluster.port}", node.served["holder"]),
            )


def checks_of(link: Link, cluster: Cluster) -> list[Check]:
    """What is wrong with this link; several where its ports fare differently."""
    target = cluster.node(link.target)
    if target.served is None:
        return []  # nothing listens there, whatever the calls came to
    if "wrong_host" in link.ports.values():
        return [WRONG_HOST]
    if len(set(link.ports.values())) == 1 and link.outcome != "ok" and len(link.ports) > 1:
        return [PEER["unreachable" if link.outcome == "no_route" else link.outcome]]
    found = []
    for port, seen in link.ports.items():
        if seen in ("ok", "not_tried"):
            continue
        # Where other ports answer, there is a way.
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
    return (check.fail if stops_a_launch(check, share, cluster) else check.warn)(
        share.node,
        sentence(check, share, bad, cluster),
        text,
        command,
        observed=outcome,
        expected="ok",
        evidence=calls(share, bad),
        peer=share.peer,
    )


def calls(share: BlameShare, bad: Mapping[Pair, Link]) -> list[FindingEvidence]:
    shown = "; ".join(f"{origin} -> {target}: {outcomes(bad[origin, target])}" for origin, target in share.links[:8])
    return evidence("calls between the nodes (net_probe)", shown)


def wrong_host(share: BlameShare, link: Link, cluster: Cluster, proof: list[FindingEvidence]) -> Finding:
    address = cluster.node(link.target).address
    return WRONG_HOST.fail(
        share.node,
        f"at its address {address}, {link.answered_by or 'another machine'} answers",
        "Give every node an address of its own; who has it is shown by",
        on_node("gpu_nodes", "ip -brief address show to {address}", address=address),
        observed="wrong_host",
        expected="ok",
        evidence=proof,
        peer=share.peer,
    )


def sentence(check: Check, share: BlameShare, bad: Mapping[Pair, Link], cluster: Cluster) -> str:
    says = SAYS[BECAME[check]]
    ports = sorted({port for pair in share.links for port in concerned(check, bad[pair], cluster.declared)})
    where = f"port {', '.join(map(str, ports))}" if len(ports) < 3 else "any port that was tried"
    who = few(share.peers)
    if share.way == "from":
        return f"it cannot call {who} on {where}, though others can: a call {says}"
    if share.way == "both":
        return f"neither can it call {who}, nor they it, on {where}: a call {says}"
    alone = ", though others can" if share.way == "pair" and len(cluster.nodes) > 2 else ""
    return f"{who} cannot call it on {where}{alone}: a call {says}"


def concerned(check: Check, link: Link, declared: tuple[int | None, ...]) -> list[int]:
    bad = [port for port, outcome in link.ports.items() if outcome not in ("ok", "not_tried")]
    if check in PEER.values():
        return bad
    return [port for port in bad if (port in declared) == (check in MASTER_PORT.values())]


def outcomes(link: Link) -> str:
    return ", ".join(f"{port} {outcome}" for port, outcome in link.ports.items())


def stops_a_launch(check: Check, share: BlameShare, cluster: Cluster) -> bool:
    """Whether a launch fails by it: between participants, and on the master port where the head node is called."""
    needed = [pair for pair in share.links if set(pair) <= set(cluster.participants)]
    if check in MASTER_PORT.values():
        needed = [pair for pair in needed if pair[1] == cluster.head]
    return bool(needed)


def fix_for(outcome: str, cluster: Cluster, link: Link) -> tuple[str, str]:
    """What to do, and the command."""
    if outcome == "unreachable":
        return (
            f"Compare cluster_address of {link.target} with what it has, and the route, with",
            on_node(link.origin, "ip route get {address}", address=cluster.node(link.target).address),
        )
    if outcome == "foreign":
        return (
            f"See what takes connections to it on {link.target}",
            on_node(link.target, "ss -ltnp", become=True),
        )
    return FIREWALL, NETWORK
