"""Causes related to other software that handles connections: web proxies, container networks, service meshes."""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING

from ...verdict.commands import OnNode
from ...verdict.words import few
from ..drift import environment
from ..model import Cause, CausePlace, Question, no, not_looked, yes
from ..reaching import CALLED_HEAD, CALLED_PEER, CUT, WAITED
from .address import OF_AN_ENGINE, advertised_addresses, each_node, holding, may_be_shared

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ..case import LaunchCase
    from ..model import CauseAnswer, Symptom

PROXIES = ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
SIDECARS = ("envoy", "pilot-agent", "istio-proxy", "linkerd2-proxy", "linkerd-proxy")
CONTAINER_NET = 16  # bits: common prefix of a container address and the bridge of its host
BRIDGES = ("bridge", "virtual")


def speakers(case: LaunchCase, by: Sequence[Symptom]) -> Iterator[CausePlace]:
    del case
    return (CausePlace(one.node) for one in by if one.node)


def contained(case: LaunchCase, by: Sequence[Symptom]) -> Iterator[CausePlace]:
    """Yield a place for each advertised address that no node has."""
    for address in advertised_addresses(case, by):
        if not holding(case, address) and may_be_shared(case, address):
            yield CausePlace(what=address)


def has_proxy(case: LaunchCase, place: CausePlace) -> CauseAnswer:
    names = environment(case, place.node)
    if names is None:
        return not_looked(case.why_not(place.node, "program"))
    found = [name for name in PROXIES if name in names]
    if found:
        return yes(f"{few(found)} {'is' if len(found) == 1 else 'are'} set", f"environment variables on {place.node}")
    return no("no proxy variable is set", f"environment variables on {place.node}")


def is_in_a_container(case: LaunchCase, place: CausePlace) -> CauseAnswer:
    """Check whether the address is in the network of a bridge on a node."""
    for node in case.nodes:
        record = case.record(node)
        for name, one in (record["interfaces"] if record else {}).items():
            if one["kind"] in BRIDGES and any(same_net(place.what, each) for each in one["addresses"]):
                return yes(f"{place.what} is in the network of the bridge {name} on {node}", f"interfaces of {node}")
    unknown = [node for node in case.nodes if case.record(node) is None]
    return not_looked(case.why_not(unknown[0], "interfaces")) if unknown else no("no bridge network has this address")


def same_net(address: str, other: str) -> bool:
    try:
        net = ipaddress.ip_network(f"{other}/{CONTAINER_NET}", strict=False)
        return ipaddress.ip_address(address) in net
    except ValueError:
        return False


def has_sidecar(case: LaunchCase, place: CausePlace) -> CauseAnswer:
    shot = case.seen["snapshots"].get(place.node)
    if shot is None or "listeners" in shot["unseen"]:
        return not_looked(f"the listeners on {place.node} were not checked")
    for one in shot["listeners"]:
        if any(name in one["command"] for name in SIDECARS):
            return yes(f"{one['command']} listens on port {one['port']}", f"listener snapshot of {place.node}")
    return no("no service mesh proxy listens on the launch ports", f"listener snapshot of {place.node}")


CAUSES = (
    Cause(
        "interference.proxy",
        scope="node",
        says="connections from {node} to the other nodes go through a web proxy",
        fix="Add the nodes to no_proxy, or remove the proxy variables from the launch environment",
        symptoms=("interference.proxy_error", "ray.connect"),
        places=speakers,
        confirm=(Question("interference.variables", "are proxy variables set on {node}?", has_proxy),),
        decisive=("interference.proxy_error",),
    ),
    Cause(
        "interference.container",
        scope="config",
        says="ranks advertise {what}, a container address that other nodes cannot reach",
        fix="Run the container with the host network (--network=host)",
        symptoms=(*CALLED_PEER, "nccl.connect", "nccl.remote", "nccl.timeout", *CALLED_HEAD),
        places=contained,
        confirm=(Question("interference.bridge", "is {what} in a container bridge network?", is_in_a_container),),
        support=(OF_AN_ENGINE,),
    ),
    Cause(
        "interference.mesh",
        scope="node",
        says="a service mesh proxy on {node} intercepts the connections of the launch",
        fix="Exclude the ports or pods of the launch from the service mesh. List the listening processes",
        command=OnNode("ss -ltnp", become=True),
        symptoms=(*CALLED_HEAD, *WAITED, *CUT, *CALLED_PEER, "interference.sidecar"),
        places=each_node,
        confirm=(Question("interference.sidecar", "does a service mesh proxy listen on {node}?", has_sidecar),),
        instead_of=("head.other_program",),
    ),
)
