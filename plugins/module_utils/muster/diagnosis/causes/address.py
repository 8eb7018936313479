"""Causes of wrong addresses: a node advertises an address that the other nodes cannot reach."""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING

from ...verdict.commands import OnNode, playbook
from ...verdict.words import few
from ..drift import environment, value_among
from ..model import Cause, CausePlace, Question, no, not_looked, yes
from ..reaching import CALLED_PEER, is_loopback, probed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ..case import LaunchCase
    from ..model import CauseAnswer, Symptom

# Variables that select the network interface of a rank.
OF_NCCL = "NCCL_SOCKET_IFNAME"
OF_ENGINES = [
    *(ipaddress.ip_network(f"172.{number}.0.0/16") for number in range(17, 30)),
    *map(ipaddress.ip_network, ("10.88.0.0/16", "10.244.0.0/16", "192.168.122.0/24", "169.254.0.0/16")),
]
VARIABLES = ("GLOO_SOCKET_IFNAME", OF_NCCL, "TP_SOCKET_IFNAME")
ADVERTISED = (*CALLED_PEER, "nccl.connect", "nccl.remote", "nccl.timeout", "gloo.timeout", "ray.address")
NAME_IT = "Set the variable to the interface of the training network, or unset it. List the interfaces of the node"
ADDRESSES = OnNode("ip -brief address")


def named_interface(case: LaunchCase, node: str) -> tuple[str, str]:
    """Return the environment variable that selects an interface on the node, and the interface; two empty strings if
    no variable selects one."""
    record = case.record(node)
    for variable in VARIABLES:
        name = value_among(case, node, variable, record["interfaces"] if record else ())
        if name:
            return variable, name
    return "", ""


# ---------------------------------------------------------------- places


def with_its_interface(case: LaunchCase, by: Sequence[Symptom]) -> Iterator[CausePlace]:
    """Yield the nodes that reported the error, and the nodes where a variable selects the same interface. The launch
    might have ended on the latter before they reported the error."""
    for one in by:
        name = one.about.get("name", "")
        for node in case.nodes:
            if node == one.node or any(value_among(case, node, variable, (name,)) for variable in VARIABLES):
                yield CausePlace(node, what=name)


def where_met(case: LaunchCase, by: Sequence[Symptom]) -> Iterator[CausePlace]:
    return (CausePlace(one.node) for one in by if one.node and (one.rank is not None or case.is_only_a_log))


def where_nccl_began(case: LaunchCase, by: Sequence[Symptom]) -> Iterator[CausePlace]:
    """Yield the nodes that reported the error. NCCL looks for an interface first on the rank that creates its ID."""
    creators = [case.node_of(int(one.about.get("rank", 0))) for one in by if one.id == "nccl.unique_id"]
    yield from map(CausePlace, filter(None, creators))
    yield from where_met(case, [one for one in by if one.id != "nccl.unique_id"])


def each_node(case: LaunchCase, by: Sequence[Symptom]) -> Iterator[CausePlace]:
    del by
    return (CausePlace(node) for node in case.nodes)


def each_on_loopback(case: LaunchCase, by: Sequence[Symptom]) -> Iterator[CausePlace]:
    """Yield every node, unless the errors name other addresses. The host name of most Ubuntu machines resolves to
    127.0.1.1, which shows nothing."""
    named = [one.about["address"] for one in by if "address" in one.about]
    return each_node(case, by) if not named or any(map(is_loopback, named)) else iter(())


def advertised_addresses(case: LaunchCase, by: Sequence[Symptom]) -> list[str]:
    found = [one.about[name] for one in by for name in ("address", "called") if name in one.about]
    planned = {one["address"] for one in case.launch["nodes"]}
    return [one for one in dict.fromkeys(found) if one not in planned and not is_loopback(one)]


def by_owner(case: LaunchCase, by: Sequence[Symptom]) -> Iterator[CausePlace]:
    """Yield a place for each advertised address that the launch does not use. If only one node has the address, the
    place names this node."""
    for address in advertised_addresses(case, by):
        holders = holding(case, address)
        if holders or not case.is_only_a_log:
            yield CausePlace(holders[0] if len(holders) == 1 else "", what=address)
    for one in by:
        if one.id == "ray.address":
            yield CausePlace(one.node, what=one.about.get("address", ""))


def by_many(case: LaunchCase, by: Sequence[Symptom]) -> Iterator[CausePlace]:
    return (CausePlace(what=address) for address in advertised_addresses(case, by) if may_be_shared(case, address))


def may_be_shared(case: LaunchCase, address: str) -> bool:
    """Return whether several nodes may have the address. In a log, only the usual networks of containers are known to
    exist on every node."""
    return not case.is_only_a_log or of_an_engine(address)


def of_an_engine(address: str) -> bool:
    """Return whether the address is in a default network of Docker, Podman, libvirt or flannel, or link-local."""
    try:
        return any(ipaddress.ip_address(address) in network for network in OF_ENGINES)
    except ValueError:
        return False


def holding(case: LaunchCase, address: str) -> list[str]:
    """Return the nodes with an interface that has the address."""
    found = []
    for node in case.nodes:
        record = case.record(node)
        if record and any(address in one["addresses"] for one in record["interfaces"].values()):
            found.append(node)
    return found


# ---------------------------------------------------------------- checks


def interface_is_missing(case: LaunchCase, place: CausePlace) -> CauseAnswer:
    record = case.record(place.node)
    if record is None:
        return not_looked(case.why_not(place.node, "interfaces"))
    found = record["interfaces"].get(place.what)
    if found is None:
        return yes(f"{place.what} is not among {few(sorted(record['interfaces']))}", f"interfaces of {place.node}")
    if not found["addresses"]:
        return yes(f"{place.what} has no address", f"interfaces of {place.node}")
    return no(f"{place.what} has {few(found['addresses'])}", f"interfaces of {place.node}")


def of_nccl_is_none(case: LaunchCase, place: CausePlace) -> CauseAnswer:
    """Check whether NCCL_SOCKET_IFNAME differs from the names of all existing interfaces. NCCL reads the value as a
    list of prefixes."""
    record, known = case.record(place.node), environment(case, place.node)
    if record is None or known is None:
        return not_looked(case.why_not(place.node, "interfaces" if record is None else "program"))
    if OF_NCCL not in known:
        return no(f"{OF_NCCL} is not set", f"environment on {place.node}")
    there = sorted(record["interfaces"])
    if value_among(case, place.node, OF_NCCL, [f"{sign}{name}" for name in there for sign in ("", "=")]):
        return no(f"{OF_NCCL} names an existing interface", f"environment on {place.node}")
    return yes(f"{OF_NCCL} names none of the interfaces {few(there)}", f"environment and interfaces of {place.node}")


def interface_is_another(case: LaunchCase, place: CausePlace) -> CauseAnswer:
    wanted = case.planned[place.node]["interface"]
    variable, name = named_interface(case, place.node)
    if name and wanted and name != wanted:
        return yes(f"{variable} is {name}, but the training network uses {wanted}", f"environment on {place.node}")
    if environment(case, place.node) is None or case.record(place.node) is None:
        return not_looked(case.why_not(place.node, "program"))
    return no("no variable selects a different interface", f"environment on {place.node}")


def advertises_loopback(case: LaunchCase, place: CausePlace) -> CauseAnswer:
    """Check whether the rank advertises a loopback address. If no variable selects an interface, a rank advertises the
    address that the host name resolves to."""
    variable, name = named_interface(case, place.node)
    if name and name != "lo":
        return no(f"{variable} is {name}", f"environment on {place.node}")
    if name == "lo":
        return yes(f"{variable} is lo", f"environment on {place.node}")
    record = case.record(place.node)
    answers = record["names"].get(record["hostname"]) if record else None
    if record is None or answers is None:
        return not_looked(case.why_not(place.node, "names"))
    if answers and all(map(is_loopback, answers)):
        return yes(f"the host name {record['hostname']} resolves to {few(answers)}", f"getaddrinfo on {place.node}")
    return no(f"the host name resolves to {few(answers)}", f"getaddrinfo on {place.node}")


def is_of_an_engine(case: LaunchCase, place: CausePlace) -> CauseAnswer:
    del case
    if of_an_engine(place.what):
        return yes(f"{place.what} is in a default network of a container engine", "the address")
    return no("the address is not in a default network of a container engine", "the address")


def is_another_address(case: LaunchCase, place: CausePlace) -> CauseAnswer:
    holders = holding(case, place.what)
    if len(holders) == 1:
        record = case.record(holders[0])
        on = [name for name, one in record["interfaces"].items() if place.what in one["addresses"]] if record else []
        return yes(f"{place.what} is an address of {few(on)} on {holders[0]}", f"interfaces of {holders[0]}")
    unknown = [node for node in case.nodes if case.record(node) is None]
    return not_looked(case.why_not(unknown[0], "interfaces")) if unknown and not holders else no()


def is_everywhere(case: LaunchCase, place: CausePlace) -> CauseAnswer:
    holders = holding(case, place.what)
    if len(holders) > 1:
        return yes(f"{few(holders)} have {place.what}", "interfaces of the nodes")
    unknown = [node for node in case.nodes if case.record(node) is None]
    return not_looked(case.why_not(unknown[0], "interfaces")) if unknown else no("at most one node has the address")


OF_AN_ENGINE = Question("address.engine", "is {what} an address of a container network?", is_of_an_engine)
LOOPBACK_FOUND = probed("does the host name of {node} resolve to a loopback address?", "net.name.loopback")

CAUSES = (
    Cause(
        "address.interface_missing",
        scope="node",
        says="a variable such as GLOO_SOCKET_IFNAME selects {what}, which is not a usable interface on {node}",
        fix=NAME_IT,
        command=ADDRESSES,
        symptoms=("gloo.interface",),
        places=with_its_interface,
        confirm=(
            Question(
                "address.interface",
                "is the interface {what} missing or without an address on {node}?",
                interface_is_missing,
                ADDRESSES,
            ),
        ),
        decisive=("gloo.interface",),
        instead_of=("absent.rank",),
    ),
    Cause(
        "address.nccl_interface",
        scope="node",
        says="NCCL found no usable interface on {node}: NCCL_SOCKET_IFNAME is wrong, or no interface is up",
        fix=NAME_IT,
        command=ADDRESSES,
        symptoms=("nccl.no_interface", "nccl.system_error", "nccl.unique_id"),
        places=where_nccl_began,
        confirm=(
            Question(
                "address.nccl",
                "does NCCL_SOCKET_IFNAME name an interface that {node} does not have?",
                of_nccl_is_none,
                ADDRESSES,
            ),
        ),
        decisive=("nccl.no_interface",),
    ),
    Cause(
        "address.interface_other",
        scope="node",
        says="a variable on {node}, or a program without one, selects an interface outside the training network",
        fix=NAME_IT,
        command=ADDRESSES,
        symptoms=(*ADVERTISED, "nccl.starting"),
        places=each_node,
        confirm=(
            Question("address.variable", "does a variable on {node} select another interface?", interface_is_another),
        ),
        instead_of=("address.other", "address.bridge", "address.loopback"),
    ),
    Cause(
        "address.loopback",
        scope="node",
        says="{node} advertises its loopback address to the other nodes",
        fix="Set GLOO_SOCKET_IFNAME, or remove the host name from the 127.0.1.1 line in /etc/hosts",
        command=playbook("site.yml", tags="network"),
        symptoms=(*CALLED_PEER, "gloo.hostname"),
        places=each_on_loopback,
        confirm=(
            Question(
                "address.own_name",
                "does {node} advertise its loopback address?",
                advertises_loopback,
                OnNode("cat /etc/hosts"),
            ),
            LOOPBACK_FOUND,
        ),
    ),
    Cause(
        "address.bridge",
        scope="config",
        says="ranks advertise {what}, an address that several nodes share (typical of a container bridge)",
        fix="Set GLOO_SOCKET_IFNAME and NCCL_SOCKET_IFNAME to the interface of the training network",
        symptoms=(*ADVERTISED, "nccl.system_error", "nccl.bridge"),
        places=by_many,
        command=ADDRESSES,
        confirm=(
            Question("address.everywhere", "do several nodes have the address {what}?", is_everywhere, ADDRESSES),
        ),
        support=(OF_AN_ENGINE,),
    ),
    Cause(
        "address.other",
        scope="node",
        says="{node} advertises an address ({what}) that is not its address in the training network",
        fix="Set GLOO_SOCKET_IFNAME and NCCL_SOCKET_IFNAME to the interface of the training network",
        command=ADDRESSES,
        symptoms=ADVERTISED,
        places=by_owner,
        confirm=(Question("address.another", "does another interface of {node} have {what}?", is_another_address),),
    ),
)
