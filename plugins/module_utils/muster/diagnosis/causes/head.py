"""The head node cannot be reached, or it is not what answers there: many causes, and one line that they all print."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...verdict.commands import OnNode, playbook
from ..model import Cause, CausePlace, Question, no, not_looked, yes
from ..reaching import (
    CALLED_HEAD,
    WAITED,
    addresses_of,
    at_head,
    before_they_met,
    callers,
    probed,
    ways_to_head,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ..case import LaunchCase
    from ..evidence import Listener
    from ..model import CauseAnswer, Symptom

TORCH = ("torchrun", "torch.distributed", "python", "accelerate", "deepspeed")
EARLIER = 2.0  # seconds by which the clocks of a node and of the controller may differ unnoticed
LISTENERS = OnNode("ss -ltnp sport = :{port}", become=True)


# ---------------------------------------------------------------- where


def each_caller(case: LaunchCase, by: Sequence[Symptom]) -> Iterator[CausePlace]:
    return (CausePlace(node, case.head) for node in callers(case, by))


def held_by(case: LaunchCase, by: Sequence[Symptom]) -> Iterator[CausePlace]:
    """Where the port is taken: where a process says so, else on the head node."""
    said = [CausePlace(one.node) for one in by if one.id == "store.in_use"]
    return iter(dict.fromkeys(said or at_head(case, by)))


def twice(case: LaunchCase, by: Sequence[Symptom]) -> Iterator[CausePlace]:
    del by
    return (CausePlace(node, case.head) for node in case.nodes if node != case.head)


# ---------------------------------------------------------------- what is asked


def nobody_listened(case: LaunchCase, place: CausePlace) -> CauseAnswer:
    shot = case.seen["snapshots"].get(place.node)
    port = case.launch["master_port"]
    if shot is not None and "listeners" not in shot["unseen"]:
        found = [one for one in shot["listeners"] if one["port"] == port]
        if found:
            return no(f"{found[0]['command'] or 'a process'} listened on port {port}", "listeners before the stop")
        return yes(f"nobody listened on port {port}", f"listeners on {place.node} before the stop", shot["at"])
    if case.launch["live"] and case.seen["agents"].get(place.node) == []:
        return yes("no launcher runs there", f"processes on {place.node}")
    return not_looked(case.seen["not_looked"].get(place.node, f"the listeners on {place.node} were not looked at"))


def head_waited(case: LaunchCase, place: CausePlace) -> CauseAnswer:
    """Who waits for clients does listen; and what is over afterwards was not the reason."""
    end = case.node_ends.get(place.node)
    if end and "waiting for clients" in end["log"]:
        return yes("it has waited for the others", f"log of {place.node}")
    return no()


def head_failed(case: LaunchCase, place: CausePlace) -> CauseAnswer:
    """Whoever ended by itself does not listen any more: that is why, and the calls in vain follow from it."""
    for one in case.all_failures:
        if one.node == place.node and not one.cascade:
            return yes(one.summary, f"last words of {one.where}", one.when)
    return no()


def earlier(case: LaunchCase, node: str) -> Listener | None:
    """Who listened on the launch's port before the launch began."""
    shot = case.seen["snapshots"].get(node)
    began = case.launch["began"]
    for one in shot["listeners"] if shot else ():
        if one["port"] == case.launch["master_port"] and 0 < one["started"] < began - EARLIER:
            return one
    return None


def unknown_listener(case: LaunchCase, node: str) -> CauseAnswer:
    shot = case.seen["snapshots"].get(node)
    if shot is None or "listeners" in shot["unseen"] or not case.launch["began"]:
        return not_looked(case.seen["not_looked"].get(node, f"the listeners on {node} were not looked at"))
    mine = [one for one in shot["listeners"] if one["port"] == case.launch["master_port"]]
    if any(not one["started"] for one in mine):
        return not_looked(f"who listens on {node} cannot be seen without root")
    return no("nobody has listened there since before the launch", f"listeners on {node} before the stop")


def is_torch(listener: Listener) -> bool:
    return any(word in listener["command"] for word in TORCH)


def another_listened(case: LaunchCase, place: CausePlace) -> CauseAnswer:
    one = earlier(case, place.node)
    if one is None:
        return unknown_listener(case, place.node)
    if is_torch(one):
        return no(f"it is {one['command']}", "listeners before the stop")
    return yes(
        f"{one['command']} (pid {one['pid']}, of {one['user']}) held it", "listeners before the stop", one["started"]
    )


def stale_store(case: LaunchCase, place: CausePlace) -> CauseAnswer:
    one = earlier(case, place.node)
    if one is None:
        return unknown_listener(case, place.node)
    if not is_torch(one):
        return no(f"it is {one['command']}", "listeners before the stop")
    return yes(
        f"{one['command']} (pid {one['pid']}, of {one['user']}) has held it since before this launch began",
        "listeners before the stop",
        one["started"],
    )


def reply_lost(case: LaunchCase, place: CausePlace) -> CauseAnswer:
    shot = case.seen["snapshots"].get(place.peer)
    half_open = shot["half_open"] if shot else None
    if half_open is None:
        return not_looked(f"half-open connections on {place.peer} were not looked at")
    found = sorted(addresses_of(case, place.node) & set(half_open))
    if found:
        return yes(f"a call of {found[0]} came in, and its answer was not confirmed", f"SYN_RECV on {place.peer}")
    return no("no half-open connection", f"connections of {place.peer} before the stop")


def no_route(case: LaunchCase, place: CausePlace) -> CauseAnswer:
    record = case.record(place.node)
    route = record["routes"].get(place.peer) if record else None
    if route is None:
        return not_looked(case.why_not(place.node, "routes"))
    return yes(route["error"], f"ip route get on {place.node}") if route["error"] else no("there is a route")


def another_route(case: LaunchCase, place: CausePlace) -> CauseAnswer:
    record = case.record(place.node)
    route = record["routes"].get(place.peer) if record else None
    wanted = case.planned[place.node]["interface"]
    if route is None or not wanted:
        return not_looked(case.why_not(place.node, "routes"))
    if route["error"] or route["interface"] == wanted:
        return no(f"it leaves by {route['interface']}", f"ip route get on {place.node}")
    return yes(f"the route leaves by {route['interface']}, and not by {wanted}", f"ip route get on {place.node}")


def has_heads_address(case: LaunchCase, place: CausePlace) -> CauseAnswer:
    record, address = case.record(place.node), case.planned[case.head]["address"]
    if record is None:
        return not_looked(case.why_not(place.node, "interfaces"))
    for name, one in record["interfaces"].items():
        if address in one["addresses"]:
            return yes(f"{name} has {address} as well", f"interfaces of {place.node}")
    return no("it does not have that address", f"interfaces of {place.node}")


NOBODY = Question("head.listens", "did nobody listen on the launch's port of {node}?", nobody_listened, LISTENERS)
HEAD_WAITED = Question("head.waited", "has the store on {node} waited for others?", head_waited)
HEAD_FAILED = Question("head.failed", "did {node} fail by itself?", head_failed)
OTHER_PROGRAM = Question("head.other_program", "did another program listen there?", another_listened, LISTENERS)
STALE = Question("head.stale", "did the store of an earlier launch listen there?", stale_store, LISTENERS)
REPLY = Question(
    "head.reply",
    "did calls of {node} come in on {peer}, and their answers get lost?",
    reply_lost,
    OnNode("ss -tn state syn-recv", at="peer"),
)
NO_ROUTE = Question("route.none", "has {node} no route to {peer}?", no_route, OnNode("ip route get {address}"))
OTHER_ROUTE = Question(
    "route.other",
    "does the way to {peer} leave {node} by another interface?",
    another_route,
    OnNode("ip route get {address}"),
)
TWICE = Question("address.twice", "has {node} the address of {peer} as well?", has_heads_address)

DROPPED = ("net.master_port.dropped", "net.peer.dropped")
REFUSED = ("net.master_port.refused", "net.peer.refused")
FORBIDDEN = ("net.master_port.prohibited", "net.peer.prohibited")
GONE = ("net.peer.unreachable",)
LET_IN = "Let the nodes in, on the node and in whatever filters before it"
SILENT = ("store.connect.timeout", "store.connect.unanswered", "rendezvous.connection", *WAITED)
ERRORS = ("store.connect.no_host", "store.connect.no_route", "store.connect.none")
NETWORK = playbook("site.yml", tags="network")

CAUSES = (
    Cause(
        "head.nobody_listens",
        group="head",
        scope="node",
        says="nobody listens on port {port} of {node}, where the others call: its launcher was not started, or"
        " has ended",
        fix="Look at the launcher on {node}, and start it as node rank 0 with this port",
        command=LISTENERS,
        symptoms=("store.connect.timeout", "store.connect.refused", "rendezvous.connection"),
        places=before_they_met(at_head),
        confirm=(NOBODY,),
        refute=(HEAD_WAITED, HEAD_FAILED),
    ),
    Cause(
        "head.filtered",
        group="head",
        scope="link",
        says="calls to port {port} of the head node vanish, as when a firewall drops them",
        fix=LET_IN,
        command=NETWORK,
        symptoms=SILENT,
        places=before_they_met(ways_to_head(*DROPPED)),
        confirm=(probed("are calls from {node} to {peer} dropped?", *DROPPED),),
    ),
    Cause(
        "head.rejected",
        group="head",
        scope="link",
        says="calls to port {port} of the head node are rejected, though something listens there",
        fix=LET_IN,
        command=NETWORK,
        symptoms=(*SILENT, "store.connect.refused"),
        places=before_they_met(ways_to_head(*REFUSED)),
        confirm=(probed("are calls from {node} to {peer} rejected?", *REFUSED),),
    ),
    Cause(
        "head.forbidden",
        group="head",
        scope="link",
        says="calls to port {port} of the head node are forbidden by a firewall",
        fix=LET_IN,
        command=NETWORK,
        symptoms=(*SILENT, *ERRORS),
        places=before_they_met(ways_to_head(*FORBIDDEN)),
        confirm=(probed("are calls from {node} to {peer} forbidden?", *FORBIDDEN),),
    ),
    Cause(
        "head.reply_lost",
        group="head",
        scope="link",
        says="calls of {node} reach {peer}, and the answers of {peer} get lost on the way back",
        fix="Look at the way back: routes and outgoing rules on {peer}, and reverse-path filters between them",
        command=OnNode("ip route", at="peer"),
        symptoms=SILENT,
        places=before_they_met(each_caller),
        confirm=(REPLY,),
        instead_of=("head.filtered",),
    ),
    Cause(
        "head.no_host",
        group="head",
        scope="link",
        says="no machine answers at the address of the head node",
        fix="Look whether the head node is up, and whether its address is right",
        command=OnNode("ip neighbour"),
        symptoms=(*SILENT, *ERRORS),
        places=before_they_met(ways_to_head(*GONE)),
        confirm=(probed("does {node} find nobody at the address of {peer}?", *GONE),),
    ),
    Cause(
        "head.no_route",
        group="head",
        scope="link",
        says="{node} has no route to {peer}",
        fix="Add a route to the training network on {node}",
        command=OnNode("ip route get {address}"),
        symptoms=(*SILENT, *ERRORS),
        places=before_they_met(each_caller),
        confirm=(NO_ROUTE,),
        instead_of=("head.no_host",),
    ),
    Cause(
        "head.other_route",
        group="head",
        scope="link",
        says="the way of {node} to {peer} leaves by another interface than the training network's",
        fix="Take that route away, or give the training network one of its own",
        command=OnNode("ip route get {address}"),
        symptoms=(*SILENT, *ERRORS),
        places=before_they_met(each_caller),
        confirm=(OTHER_ROUTE,),
        instead_of=("head.filtered",),
    ),
    Cause(
        "head.address_twice",
        group="head",
        scope="node",
        says="{node} has the address of {peer} as well, and whoever calls it may reach either",
        fix="Take the address off {node}",
        command=OnNode("ip -brief address"),
        symptoms=(*CALLED_HEAD, *WAITED, "store.closed"),
        places=before_they_met(twice),
        confirm=(TWICE,),
        instead_of=("head.nobody_listens",),
    ),
    # Where a web server has the port, the client of torch 2.13 printed nothing in 35 s with a limit of 4 s: it hangs.
    Cause(
        "head.other_program",
        group="head",
        scope="node",
        says="another program holds port {port} on {node}",
        fix="Stop it, or take another port",
        command=LISTENERS,
        symptoms=("store.in_use", "store.closed", *CALLED_HEAD, *WAITED),
        places=before_they_met(held_by),
        confirm=(
            OTHER_PROGRAM,
            probed("is port {port} of {node} answered by another program?", "net.master_port.foreign"),
        ),
        instead_of=("process.exception", "process.launcher", "head.nobody_listens"),
    ),
    Cause(
        "head.stale_store",
        group="head",
        scope="node",
        says="the store of an earlier launch still holds port {port} on {node}",
        fix="End what is left of it by its process id, or take another port",
        command=LISTENERS,
        symptoms=("store.in_use", "store.closed", "store.key", "store.barrier", *CALLED_HEAD, *WAITED),
        places=before_they_met(held_by),
        confirm=(STALE,),
        instead_of=("process.exception", "process.launcher", "head.other_program"),
    ),
)
