"""What only shows when the nodes are laid beside each other.

Where most nodes agree, the others are told. Where there is no majority, as with two nodes, it is told of all, and none
is blamed.
"""

from __future__ import annotations

from collections import defaultdict
from functools import partial
from typing import TYPE_CHECKING, Any

from ..verdict.entry import Entry
from ..verdict.majority import vote
from ..verdict.words import few

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ..verdict.finding import Finding
    from .node import Node


FINDINGS = {
    "node.same_machine": Entry(
        "the boot ids of all nodes",
        "two names of the inventory are one machine (fail)",
        "List every machine once",
    ),
    "node.machine_id.shared": Entry(
        "/etc/machine-id of all nodes",
        "two nodes have the same, as copies of one image do (warn)",
        "Give each its own",
    ),
    "node.host_key.shared": Entry(
        "the ssh host keys of all nodes",
        "two nodes have the same, as copies of one image do (warn)",
        "Give each its own",
    ),
}


def judge(nodes: list[Node]) -> list[Finding]:
    """Return the findings about the nodes that were looked at, taken together."""
    seen = [node for node in nodes if node.facts is not None]
    return [*same_machines(seen), *different_values(seen)]


def same_machines(nodes: list[Node]) -> Iterator[Finding]:
    """One machine under two names has one boot. Two machines with one id or one host key are copies of one image."""
    told: set[tuple[str, ...]] = set()
    for names, group in _alike(nodes, lambda node: (node.seen["identity"]["boot"], node.seen["identity"]["machine"])):
        told.add(names)
        for node in group:
            yield node.finding(
                "node.same_machine",
                "fail",
                f"{few([node.name for node in group], ' and ')} are one and the same machine",
                "List every machine once, under its own address",
                observed=node.seen["identity"]["boot"],
            )
    copies: tuple[tuple[str, str, str, str], ...] = (
        ("machine", "node.machine_id.shared", "machine id", "sudo rm /etc/machine-id && sudo systemd-machine-id-setup"),
        ("host_key", "node.host_key.shared", "ssh host key", "sudo rm /etc/ssh/ssh_host_* && sudo ssh-keygen -A"),
    )
    for key, name, what, command in copies:
        for names, group in _alike(nodes, partial(_identity, key)):
            if names in told:
                continue
            for node in group:
                yield node.finding(
                    name,
                    "warn",
                    f"{few([node.name for node in group], ' and ')} have the same {what}, as copies of one image do",
                    "Give each its own, on all but one of them, with",
                    command,
                )


def different_values(nodes: list[Node]) -> Iterator[Finding]:
    for name, what, value_of in (
        ("net.mtu.differ", "MTU of the training interface", _mtu),
        ("user.uid.differs", "uid of the training user", lambda node: _of_user(node, "uid")),
        ("user.gid.differs", "gid of the training user", lambda node: _of_user(node, "gid")),
        ("gpu.models.differ", "model of the GPUs", _models),
    ):
        yield from _minority(nodes, name, what, value_of)


def _minority(nodes: list[Node], name: str, what: str, value_of: Callable[[Node], Any]) -> Iterator[Finding]:
    by_name = {node.name: node for node in nodes}
    votes = vote({node.name: value_of(node) for node in nodes})
    if votes.agree:
        return
    for odd, value in votes.odd:
        summary = f"the {what} differs: {votes.spread()}"
        more = {"observed": str(value)}
        if votes.usual is not None:
            summary = f"the {what} is {value}, and {votes.usual} on most nodes"
            more["expected"] = str(votes.usual)
        yield by_name[odd].finding(name, "warn", summary, FIXES[name], **more)


FIXES = {
    "net.mtu.differ": "Set the same on all of them: a packet that fits one and not the other is lost without a word",
    "user.uid.differs": "It matters where the nodes share a file system. An account that exists is never altered",
    "user.gid.differs": "It matters where the nodes share a file system. An account that exists is never altered",
    "gpu.models.differ": "A launch over all of them goes at the pace of the slowest",
}


def _mtu(node: Node) -> int | None:
    interface = node.training_interface
    return node.seen["network"]["interfaces"][interface]["mtu"] if interface else None


def _of_user(node: Node, key: str) -> int | None:
    # Where the inventory fixes it, each node is judged by that.
    account = node.seen["users"]["training_user"]
    return account[key] if account and not node.request.get(f"node_baseline_user_{key}") else None


def _models(node: Node) -> str | None:
    if "gpus" in node.seen["skipped"] or not node.seen["gpus"]["devices"]:
        return None
    return " and ".join(sorted({device["name"] or device["id"] for device in node.seen["gpus"]["devices"]}))


def _identity(key: str, node: Node) -> tuple[str, ...]:
    return (node.seen["identity"][key],)


def _alike(
    nodes: list[Node], identity_of: Callable[[Node], tuple[str, ...]]
) -> Iterator[tuple[tuple[str, ...], list[Node]]]:
    groups: dict[tuple[str, ...], list[Node]] = defaultdict(list)
    for node in nodes:
        identity = identity_of(node)
        if all(identity):
            groups[identity].append(node)
    for group in groups.values():
        if len(group) > 1:
            yield tuple(node.name for node in group), group
