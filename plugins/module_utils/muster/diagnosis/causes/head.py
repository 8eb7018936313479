"""Causes of failed connections to the head node. Torch prints the same line for all these causes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ...verdict.commands import OnNode, playbook
from ..case import once
from ..model import Cause, CausePlace, Question, no, not_looked, yes
from ..questions import BY_ID
from ..reaching import (
    CALLED_HEAD,
    WAITED,
    addresses_of,
    at_head,
    before_they_met,
    callers,
    is_address,
    is_loopback,
    probed,
    ways_to_head,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ..case import LaunchCase
    from ..evidence import Listener
    from ..model import CauseAnswer, Symptom

TORCH = ("torchrun", "torch.distributed", "python", "accelerate", "deepspeed")
TIMED_OUT = re.compile(BY_ID["store.connect.timeout"].pattern)
EARLIER = 2.0  # seconds: tolerated difference between the clocks of a node and the controller
CONNECT = OnNode("nc -vz -w 5 {address} {port}")
PING = OnNode("ping -c 3 {address}")
LISTENERS = OnNode("ss -ltnp sport = :{port}", become=True)


# ---------------------------------------------------------------- places


def each_caller(case: LaunchCase, by: Sequence[Symptom]) -> Iterator[CausePlace]:
    return (CausePlace(node, case.head) for node in callers(case, by))


def held_by(case: LaunchCase, by: Sequence[Symptom]) -> Iterator[CausePlace]:
    """Yield the nodes that reported the port as in use; if none did, the head node."""
    said = [CausePlace(one.node) for one in by if one.id == "store.in_use"]
    return iter(dict.fromkeys(said or at_head(case, by)))


def twice(case: LaunchCase, by: Sequence[Symptom]) -> Iterator[CausePlace]:
    del by
    return (CausePlace(node, case.head) for node in case.nodes if node != case.head)


def other_meetings(case: LaunchCase, by: Sequence[Symptom]) -> Iterator[CausePlace]:
    """Yield the addresses at which ranks meet instead of at the rendezvous. If only the ranks of one node use an
    address, the place names this node."""
    del by
    for where in dict.fromkeys(where for _, where, _ in meetings(case)):
        nodes = {node for node, other, _ in meetings(case) if other == where}
        yield CausePlace(nodes.pop() if len(nodes) == 1 < len(case.nodes) else "", what=where)


# ---------------------------------------------------------------- checks


@once
def meetings(case: LaunchCase) -> list[tuple[str, str, CauseAnswer]]:
    """Return (node, "address:port", proof) for each rank that connects to another store than that of the launch. Only
    Muster's launches are known to give all ranks the same rendezvous."""
    found = []
    for one in case.all_failures if case.launch["how"] == "muster" else ():
        said = TIMED_OUT.search(f"{one.summary}\n{one.traceback}") if one.rank is not None else None
        if said and not is_the_rendezvous(case, said["address"], said["port"]):
            proof = yes(said[0], f"last output of {one.where}", one.when)
            found.append((one.node, f"{said['address']}:{said['port']}", proof))
    for rank, (node, shot) in case.shots.items():
        peers = [(*one["peer"].rpartition(":")[::2], one["state"]) for one in shot["sockets"]]
        met = any(is_the_rendezvous(case, host, port) for host, port, _ in peers)
        for host, port, state in peers:
            if state == "SYN_SENT" and not met and (is_loopback(host) or case.node_at(host)):
                proof = yes(f"rank {rank} gets no reply from {host}:{port}", f"connection snapshot of {node}")
                found.append((node, f"{host}:{port}", proof))
    return found


def is_the_rendezvous(case: LaunchCase, host: str, port: str) -> bool:
    """Return whether this is the rendezvous of the launch. A name may belong to the head node, except localhost."""
    same = case.head == case.node_at(host) or (not is_address(host) and host != "localhost")
    return same and port == str(case.launch["master_port"])


def meets_elsewhere(case: LaunchCase, place: CausePlace) -> CauseAnswer:
    proofs = (proof for _, where, proof in meetings(case) if where == place.what)
    return next(proofs, no("all ranks use the rendezvous of the launch"))


def no_listener(case: LaunchCase, place: CausePlace) -> CauseAnswer:
    shot = case.seen["snapshots"].get(place.node)
    port = case.launch["master_port"]
    if shot is not None and "listeners" not in shot["unseen"]:
        found = [one for one in shot["listeners"] if one["port"] == port]
        if found:
            return no(f"{found[0]['command'] or 'a process'} listened on port {port}", "listener snapshot")
        return yes(f"no process listened on port {port}", f"listener snapshot of {place.node}", shot["at"])
    if case.launch["live"] and case.seen["agents"].get(place.node) == []:
        return yes(f"no launcher runs on {place.node}", f"processes on {place.node}")
    return not_looked(case.seen["not_looked"].get(place.node, f"the listeners on {place.node} were not checked"))


def head_waited(case: LaunchCase, place: CausePlace) -> CauseAnswer:
    """Check whether the store on the head node was waiting for clients. If so, the port was open, and a port found
    closed later is not the cause."""
    end = case.node_ends.get(place.node)
    if end and "waiting for clients" in end["log"]:
        return yes("the store waited for the other nodes", f"log of {place.node}")
    return no()


def head_failed(case: LaunchCase, place: CausePlace) -> CauseAnswer:
    """Check whether the head node failed by itself. A failed head node stops listening, so the failed connections are a
    consequence."""
    for one in case.all_failures:
        if one.node == place.node and not one.cascade:
            return yes(one.summary, f"last output of {one.where}", one.when)
    return no()


def earlier(case: LaunchCase, node: str) -> Listener | None:
    """Return the process that was listening on the launch port before the launch started; None if there was none."""
    shot = case.seen["snapshots"].get(node)
    began = case.launch["began"]
    for one in shot["listeners"] if shot else ():
        if one["port"] == case.launch["master_port"] and 0 < one["started"] < began - EARLIER:
            return one
    return None


def unknown_listener(case: LaunchCase, node: str) -> CauseAnswer:
    shot = case.seen["snapshots"].get(node)
    if shot is None or "listeners" in shot["unseen"] or not case.launch["began"]:
        return not_looked(case.seen["not_looked"].get(node, f"the listeners on {node} were not checked"))
    mine = [one for one in shot["listeners"] if one["port"] == case.launch["master_port"]]
    if any(not one["started"] for one in mine):
        return not_looked(f"the listening process on {node} is visible only to root")
    return no("no process listened on the port before the launch", f"listener snapshot of {node}")


def is_torch(listener: Listener) -> bool:
    return any(word in listener["command"] for word in TORCH)


def another_listened(case: LaunchCase, place: CausePlace) -> CauseAnswer:
    one = earlier(case, place.node)
    if one is None:
        return unknown_listener(case, place.node)
    if is_torch(one):
        return no(f"the listener is {one['command']}", "listener snapshot")
    return yes(
        f"{one['command']} (pid {one['pid']}, user {one['user']}) used the port", "listener snapshot", one["started"]
    )


def stale_store(case: LaunchCase, place: CausePlace) -> CauseAnswer:
    one = earlier(case, place.node)
    if one is None:
        return unknown_listener(case, place.node)
    if not is_torch(one):
        return no(f"the listener is {one['command']}", "listener snapshot")
    return yes(
        f"{one['command']} (pid {one['pid']}, user {one['user']}) was already using the port before this launch",
        "listener snapshot",
        one["started"],
    )


def reply_lost(case: LaunchCase, place: CausePlace) -> CauseAnswer:
    shot = case.seen["snapshots"].get(place.peer)
    half_open = shot["half_open"] if shot else None
    if half_open is None:
        return not_looked(f"half-open connections on {place.peer} were not checked")
    found = sorted(addresses_of(case, place.node) & set(half_open))
    if found:
        return yes(f"the reply to {found[0]} was not acknowledged", f"SYN_RECV on {place.peer}")
    return no("no half-open connection", f"connection snapshot of {place.peer}")


def no_route(case: LaunchCase, place: CausePlace) -> CauseAnswer:
    record = case.record(place.node)
    route = record["routes"].get(place.peer) if record else None
    if route is None:
        return not_looked(case.why_not(place.node, "routes"))
    return yes(route["error"], f"ip route get on {place.node}") if route["error"] else no("a route exists")


def another_route(case: LaunchCase, place: CausePlace) -> CauseAnswer:
    record = case.record(place.node)
    route = record["routes"].get(place.peer) if record else None
    wanted = case.planned[place.node]["interface"]
    if route is None or not wanted:
        return not_looked(case.why_not(place.node, "routes"))
    if route["error"] or route["interface"] == wanted:
        return no(f"the route uses {route['interface']}", f"ip route get on {place.node}")
    return yes(f"the route uses {route['interface']} instead of {wanted}", f"ip route get on {place.node}")


def has_heads_address(case: LaunchCase, place: CausePlace) -> CauseAnswer:
    record, address = case.record(place.node), case.planned[case.head]["address"]
    if record is None:
        return not_looked(case.why_not(place.node, "interfaces"))
    for name, one in record["interfaces"].items():
        if address in one["addresses"]:
            return yes(f"interface {name} also has {address}", f"interfaces of {place.node}")
    return no(f"{place.node} does not have {address}", f"interfaces of {place.node}")


ELSEWHERE = Question("head.elsewhere", "do ranks meet at {what} instead of the rendezvous?", meets_elsewhere)
NO_LISTENER = Question("head.listens", "did no process listen on the launch port of {node}?", no_listener, LISTENERS)
HEAD_WAITED = Question("head.waited", "did the store on {node} wait for other nodes?", head_waited)
HEAD_FAILED = Question("head.failed", "did a rank or the launcher on {node} fail by itself?", head_failed)
OTHER_PROGRAM = Question("head.other_program", "did another program use the launch port?", another_listened, LISTENERS)
STALE = Question("head.stale", "did the store of an earlier launch use the launch port?", stale_store, LISTENERS)
REPLY = Question(
    "head.reply",
    "were the replies from {peer} to connections from {node} lost?",
    reply_lost,
    OnNode("ss -tn state syn-recv", at="peer"),
)
NO_ROUTE = Question("route.none", "does {node} have no route to {peer}?", no_route, OnNode("ip route get {address}"))
OTHER_ROUTE = Question(
    "route.other",
    "does the route from {node} to {peer} use an interface outside the training network?",
    another_route,
    OnNode("ip route get {address}"),
)
TWICE = Question("address.twice", "does {node} also have the address of {peer}?", has_heads_address)

DROPPED = ("net.master_port.dropped", "net.peer.dropped")
REFUSED = ("net.master_port.refused", "net.peer.refused")
FORBIDDEN = ("net.master_port.prohibited", "net.peer.prohibited")
GONE = ("net.peer.unreachable",)
LET_IN = "On both nodes and on any firewall in between, allow traffic from the cluster nodes"
SILENT = ("store.connect.timeout", "store.connect.unanswered", "rendezvous.connection", *WAITED)
ERRORS = ("store.connect.no_host", "store.connect.no_route", "store.connect.none")
NETWORK = playbook("site.yml", tags="network")

CAUSES = (
    Cause(
        "head.elsewhere",
        scope="code",
        says="the script meets at {what}, not at the rendezvous of the launch ({address}, port {port})",
        fix="Call init_process_group without init_method, and do not set MASTER_ADDR or MASTER_PORT in the script",
        symptoms=(*CALLED_HEAD, *WAITED, "store.key"),
        places=other_meetings,
        confirm=(ELSEWHERE,),
        instead_of=("head.nobody_listens", "head.filtered", "absent.busy", "absent.rank", "process.exception"),
    ),
    Cause(
        "head.nobody_listens",
        scope="node",
        says="no process listens on port {port} of the head node {node}: its launcher was not started or has exited",
        fix="Start the launcher on {node} with node rank 0 and port {port}, and check that it listens on the port",
        command=LISTENERS,
        symptoms=("store.connect.timeout", "store.connect.refused", "rendezvous.connection"),
        places=before_they_met(at_head),
        confirm=(NO_LISTENER,),
        refute=(HEAD_WAITED, HEAD_FAILED),
    ),
    Cause(
        "head.filtered",
        scope="link",
        says="packets to port {port} of the head node are dropped ({what})",
        fix=LET_IN,
        command=NETWORK,
        symptoms=SILENT,
        places=before_they_met(ways_to_head(*DROPPED)),
        confirm=(probed("are packets from {node} to {peer} dropped?", *DROPPED, by_hand=CONNECT),),
    ),
    Cause(
        "head.rejected",
        scope="link",
        says="connections to port {port} of the head node are refused, although a process listens on it",
        fix=LET_IN,
        command=NETWORK,
        symptoms=(*SILENT, "store.connect.refused"),
        places=before_they_met(ways_to_head(*REFUSED)),
        confirm=(probed("are connections from {node} to {peer} refused?", *REFUSED, by_hand=CONNECT),),
    ),
    Cause(
        "head.forbidden",
        scope="link",
        says="a firewall prohibits connections to port {port} of the head node",
        fix=LET_IN,
        command=NETWORK,
        symptoms=(*SILENT, *ERRORS),
        places=before_they_met(ways_to_head(*FORBIDDEN)),
        confirm=(probed("are connections from {node} to {peer} prohibited?", *FORBIDDEN, by_hand=CONNECT),),
    ),
    Cause(
        "head.reply_lost",
        scope="link",
        says="connections from {node} reach {peer}, but the replies from {peer} are lost",
        fix="Check the return path: reverse-path filters in between, and the outgoing rules and routes on {peer}",
        command=OnNode("ip route", at="peer"),
        symptoms=SILENT,
        places=before_they_met(each_caller),
        confirm=(REPLY,),
        instead_of=("head.filtered",),
    ),
    Cause(
        "head.no_host",
        scope="link",
        says="no machine responds at the address of the head node",
        fix="Check whether the head node is up and its address is correct",
        command=OnNode("ip neighbour"),
        symptoms=(*SILENT, *ERRORS),
        places=before_they_met(ways_to_head(*GONE)),
        confirm=(probed("does {node} get no response from the address of {peer}?", *GONE, by_hand=PING),),
    ),
    Cause(
        "head.no_route",
        scope="link",
        says="{node} has no route to {peer}",
        fix="On {node}, add a route to the training network",
        command=OnNode("ip route get {address}"),
        symptoms=(*SILENT, *ERRORS),
        places=before_they_met(each_caller),
        confirm=(NO_ROUTE,),
        instead_of=("head.no_host",),
    ),
    Cause(
        "head.other_route",
        scope="link",
        says="the route from {node} to {peer} does not use the training network interface",
        fix="Remove this route, or add a separate route for the training network",
        command=OnNode("ip route get {address}"),
        symptoms=(*SILENT, *ERRORS),
        places=before_they_met(each_caller),
        confirm=(OTHER_ROUTE,),
        instead_of=("head.filtered", "network.astray"),
    ),
    Cause(
        "head.address_twice",
        scope="node",
        says="{node} has the same address as {peer}, so connections can reach either node",
        fix="Remove the duplicate address from {node}. List the addresses of the node",
        command=OnNode("ip -brief address"),
        symptoms=(*CALLED_HEAD, *WAITED, "store.closed"),
        places=before_they_met(twice),
        confirm=(TWICE,),
        instead_of=("head.nobody_listens",),
    ),
    # If a web server uses the port, the client of torch 2.13 hangs: no output in 35 s with a timeout of 4 s.
    Cause(
        "head.other_program",
        scope="node",
        says="another program uses port {port} on {node}",
        fix="Use another port, or stop the program. Find the process that listens on the port",
        command=LISTENERS,
        symptoms=("store.in_use", "store.closed", *CALLED_HEAD, *WAITED),
        places=before_they_met(held_by),
        confirm=(
            OTHER_PROGRAM,
            probed("does another program respond on port {port} of {node}?", "net.master_port.foreign"),
        ),
        instead_of=("process.launcher", "head.nobody_listens"),
    ),
    Cause(
        "head.stale_store",
        scope="node",
        says="the store of an earlier launch still uses port {port} on {node}",
        fix="Use another port, or end the remaining process. Find the PID of the process",
        command=LISTENERS,
        symptoms=("store.in_use", "store.closed", "store.key", "store.barrier", *CALLED_HEAD, *WAITED),
        places=before_they_met(held_by),
        confirm=(STALE,),
        instead_of=("process.launcher", "head.other_program"),
    ),
)
