"""Can every node call every other on the ports of a launch: findings, with the node that stands behind them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..verdict.entry import Entry
from ..verdict.finding import Finding, evidence
from ..verdict.words import few
from .blame import Share, blame
from .cluster import untried

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from .blame import Pair
    from .cluster import Cluster
    from .links import Link

BUSY = "muster-probe"  # an earlier probe's process, see plugins/module_utils/muster_node/programs/probe_listener.py
# What becomes of a call, and what may do such a thing.
SAYS = {
    "dropped": "gets no answer, as when a firewall drops it",
    "refused": "is refused though something listens there, as when a firewall rejects it",
    "prohibited": "is told that there is no way though the host is there, as when a firewall forbids it",
    "unreachable": "finds no way, as when no host has the address",
    "foreign": "is answered by another program than the one that listens there",
}
SAID_AS = {"no_route": "unreachable"}
FIREWALL = "Let the nodes in, on the node and in whatever filters before it; on the node it is done by"
NETWORK = "ansible-playbook site.yml --tags network"


def fires(outcome: str) -> str:
    return (
        f"a call {SAYS[outcome]}: most of a node's links name the node, a single one the pair. fail where both"
        " take part in a launch (the master port on the head node alone), else warn"
    )


FINDINGS = {
    **{
        f"net.master_port.{outcome}": Entry(
            "a call from each node to cluster_master_port of each other, where a listener was started for it",
            fires(outcome),
            f"{FIREWALL}: {NETWORK}" if outcome != "foreign" else "Stop what holds the port, or take another port",
        )
        for outcome in ("dropped", "refused", "prohibited", "foreign")
    },
    **{
        f"net.ephemeral_ports.{outcome}": Entry(
            "calls to listeners on the first, the last and other ports of ip_local_port_range: Gloo and NCCL take"
            " theirs from there",
            fires(outcome),
            f"{FIREWALL}: {NETWORK}",
        )
        for outcome in ("dropped", "refused", "prohibited", "foreign")
    },
    **{
        f"net.peer.{outcome}": Entry(
            "calls to all of these ports of a node",
            f"every one of them fails alike: a call {SAYS[outcome]}",
            "Look at the address, the route and the firewalls on the way",
        )
        for outcome in ("dropped", "refused", "prohibited", "foreign", "unreachable")
    },
    "net.address.wrong_host": Entry(
        "the name that the listener at a node's address gives of itself",
        "another node answers at the address (fail)",
        "Give every node an address of its own",
    ),
    "net.probe.busy": Entry(
        "who holds the master port",
        "the process of another probe holds it (unknown)",
        "Run again when it is done: without its controller it ends by itself, in less than a minute",
    ),
}


def judge(cluster: Cluster) -> Iterator[Finding]:
    yield from holders(cluster)
    kinds: dict[str, dict[Pair, Link]] = {}
    for link in cluster.links:
        for kind in kinds_of(link, cluster):
            kinds.setdefault(kind, {})[link.origin, link.target] = link
    tested = {(link.origin, link.target) for link in cluster.links if set(link.ports.values()) - {"not_tried"}}
    for kind, bad in kinds.items():
        for share in blame(cluster.names, bad, tested):
            yield tell(kind, share, bad, cluster)


def holders(cluster: Cluster) -> Iterator[Finding]:
    for node in cluster.nodes:
        if not node.served or not node.served["holder"] or untried(node.served, cluster.port):
            continue
        if node.served["holder"] == BUSY:
            yield Finding(
                "net.probe.busy",
                "unknown",
                node.name,
                f"another probe listens on port {cluster.port}, so that it could not be tried",
                fix={"text": "Run again when it is done"},
            )
        else:
            yield Finding(
                "net.master_port.foreign",
                "fail" if node.name == cluster.head else "warn",
                node.name,
                f"port {cluster.port} is held by another process, and nodes that call it would wait for an answer",
                observed=node.served["holder"],
                expected=f"port {cluster.port} free",
                evidence=evidence(f"bind to port {cluster.port}", node.served["holder"]),
                fix={
                    "text": "Stop it, or set cluster_master_port to another port; what holds it is shown by",
                    "command": f"sudo ss -ltnp sport = :{cluster.port}",
                },
            )


def kinds_of(link: Link, cluster: Cluster) -> list[str]:
    """The ids of what is wrong with this link; several where its ports fare differently."""
    target = cluster.node(link.target)
    if target.served is None:
        return []  # nothing listens there, whatever the calls came to
    if "wrong_host" in link.ports.values():
        return ["net.address.wrong_host"]
    if len(set(link.ports.values())) == 1 and link.outcome != "ok" and len(link.ports) > 1:
        return [f"net.peer.{SAID_AS.get(link.outcome, link.outcome)}"]
    found = []
    for port, seen in link.ports.items():
        if seen in ("ok", "not_tried"):
            continue
        # Where other ports answer, there is a way.
        outcome = "prohibited" if seen == "no_route" else seen
        if port != cluster.port:
            found.append(f"net.ephemeral_ports.{outcome}")
        elif not target.served["holder"]:
            found.append(f"net.master_port.{outcome}")
    return list(dict.fromkeys(found))


def tell(kind: str, share: Share, bad: Mapping[Pair, Link], cluster: Cluster) -> Finding:
    first = bad[share.links[0]]
    outcome = kind.rpartition(".")[2]
    calls = "; ".join(f"{origin} -> {target}: {outcomes(bad[origin, target])}" for origin, target in share.links[:8])
    if outcome == "wrong_host":
        summary, fix = wrong_host(first, cluster)
    else:
        summary, fix = sentence(kind, share, bad, cluster), fix_for(outcome, cluster, first)
    return Finding(
        kind,
        "fail" if outcome == "wrong_host" else status(kind, share, cluster),
        share.node,
        summary,
        observed=outcome,
        expected="ok",
        evidence=evidence("calls between the nodes (net_probe)", calls),
        fix=fix,
        peer=share.peer,
    )


def wrong_host(link: Link, cluster: Cluster) -> tuple[str, dict[str, str]]:
    address = cluster.node(link.target).address
    command = f"ansible gpu_nodes -m ansible.builtin.command -a 'ip -brief address show to {address}'"
    return (
        f"at its address {address}, {link.answered_by or 'another machine'} answers",
        {"text": "Give every node an address of its own; who has it is shown by", "command": command},
    )


def sentence(kind: str, share: Share, bad: Mapping[Pair, Link], cluster: Cluster) -> str:
    says = SAYS[kind.rpartition(".")[2]]
    ports = sorted({port for pair in share.links for port in concerned(kind, bad[pair], cluster.port)})
    where = f"port {', '.join(map(str, ports))}" if len(ports) < 3 else "any port that was tried"
    who = few(share.peers)
    if share.way == "from":
        return f"it cannot call {who} on {where}, though others can: a call {says}"
    if share.way == "both":
        return f"neither can it call {who}, nor they it, on {where}: a call {says}"
    alone = ", though others can" if share.way == "pair" and len(cluster.nodes) > 2 else ""
    return f"{who} cannot call it on {where}{alone}: a call {says}"


def concerned(kind: str, link: Link, master: int) -> list[int]:
    bad = [port for port, outcome in link.ports.items() if outcome not in ("ok", "not_tried")]
    if "net.peer" in kind:
        return bad
    return [port for port in bad if (port == master) == ("master_port" in kind)]


def outcomes(link: Link) -> str:
    return ", ".join(f"{port} {outcome}" for port, outcome in link.ports.items())


def status(kind: str, share: Share, cluster: Cluster) -> str:
    """Whether a launch fails by it: between participants, and on the master port where the head node is called."""
    needed = [pair for pair in share.links if set(pair) <= set(cluster.participants)]
    if "master_port" in kind:
        needed = [pair for pair in needed if pair[1] == cluster.head]
    return "fail" if needed else "warn"


def fix_for(outcome: str, cluster: Cluster, link: Link) -> dict[str, str]:
    address = cluster.node(link.target).address
    if outcome == "unreachable":
        return {
            "text": f"Compare cluster_address of {link.target} with what it has, and the route, with",
            "command": f"ansible {link.origin} -m ansible.builtin.command -a 'ip route get {address}'",
        }
    if outcome == "foreign":
        return {
            "text": f"See what takes connections to it on {link.target}",
            "command": f"ansible {link.target} --become -m ansible.builtin.command -a 'ss -ltnp'",
        }
    return {"text": FIREWALL, "command": NETWORK}
