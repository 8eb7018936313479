"""Compare the facts of all nodes.

If most nodes have the same value, the nodes that differ are reported. Without a majority, for example with two nodes,
all nodes are reported.
"""

from __future__ import annotations

from collections import defaultdict
from functools import partial
from typing import TYPE_CHECKING, Any

from ..verdict.check import Check
from ..verdict.majority import vote
from ..verdict.words import few
from . import environments
from .node import GID_DIFFERS, UID_DIFFERS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ..verdict.finding import Finding
    from .facts import InspectedNode


SAME_MACHINE = Check(
    "node.same_machine",
    seen="recording",
    reads="the boot ids of all nodes",
    fires="two inventory names refer to the same machine (fail)",
    fix="List each machine once, with its own address",
)
MACHINE_ID_SHARED = Check(
    "node.machine_id.shared",
    seen="recording",
    reads="/etc/machine-id of all nodes",
    fires="two nodes have the same machine id, which is typical of cloned images (warn)",
    fix="Generate a new machine id on all but one of these nodes",
)
HOST_KEY_SHARED = Check(
    "node.host_key.shared",
    seen="recording",
    reads="the SSH host keys of all nodes",
    fires="two nodes have the same SSH host key, which is typical of cloned images (warn)",
    fix="Generate new host keys on all but one of these nodes",
)
# The health checks repeat these two before a launch.
MTU_DIFFERS = Check(
    "net.mtu.differ",
    seen="recording",
    reads="the facts of all nodes",
    fires="the MTU of the training interface differs between nodes (fail): packets larger than the smallest MTU are"
    " dropped silently",
    fix="Set the same MTU on all nodes (mtu_training)",
)
MODELS_DIFFER = Check(
    "gpu.models.differ",
    seen="recording",
    reads="the facts of all nodes",
    fires="the GPU model differs between nodes (warn): a launch runs at the speed of the slowest GPU",
    fix="Launch on nodes with the same GPU model (cluster_launch_nodes)",
)
LOST_UNSEEN = "Set the same MTU on all nodes; packets larger than the smallest MTU are dropped silently"
SHARED_FILES = "Use equal ids if the nodes share a file system. Muster never changes an existing account"
SLOWEST = "A launch on all nodes runs at the speed of the slowest GPU"


def judge(nodes: list[InspectedNode]) -> list[Finding]:
    """Return the findings from comparing the inspected nodes."""
    seen = [node for node in nodes if node.facts is not None]
    return [*same_machines(seen), *different_values(seen), *environments.judge(seen)]


def same_machines(nodes: list[InspectedNode]) -> Iterator[Finding]:
    """Report a machine that is listed under two names (same boot ID), and cloned machines (same machine ID or host
    key).
    """
    reported: set[tuple[str, ...]] = set()
    for names, group in _alike(nodes, lambda node: (node.seen["identity"]["boot"], node.seen["identity"]["machine"])):
        reported.add(names)
        for node in group:
            yield SAME_MACHINE.fail(
                node.name,
                f"{few([node.name for node in group], ' and ')} are the same machine",
                observed=node.seen["identity"]["boot"],
            )
    copies: tuple[tuple[Check, str, str, str], ...] = (
        (MACHINE_ID_SHARED, "machine", "machine id", "sudo rm /etc/machine-id && sudo systemd-machine-id-setup"),
        (HOST_KEY_SHARED, "host_key", "SSH host key", "sudo rm /etc/ssh/ssh_host_* && sudo ssh-keygen -A"),
    )
    for check, key, what, command in copies:
        for names, group in _alike(nodes, partial(_identity, key)):
            if names in reported:
                continue
            for node in group:
                yield check.warn(
                    node.name,
                    f"{few([node.name for node in group], ' and ')} have the same {what} (typical of cloned images)",
                    f"Generate a new {what} on all but one of these nodes with",
                    command,
                )


def different_values(nodes: list[InspectedNode]) -> Iterator[Finding]:
    for check, what, value_of, fix in (
        (MTU_DIFFERS, "MTU of the training interface", _mtu, LOST_UNSEEN),
        (UID_DIFFERS, "uid of the training user", lambda node: _of_user(node, "uid"), SHARED_FILES),
        (GID_DIFFERS, "gid of the training user", lambda node: _of_user(node, "gid"), SHARED_FILES),
        (MODELS_DIFFER, "GPU model", _models, SLOWEST),
    ):
        yield from _minority(nodes, check, what, value_of, fix)


def _minority(
    nodes: list[InspectedNode], check: Check, what: str, value_of: Callable[[InspectedNode], Any], fix: str
) -> Iterator[Finding]:
    votes = vote({node.name: value_of(node) for node in nodes})
    if votes.agree:
        return
    for odd, value in votes.odd:
        summary = f"the {what} differs: {votes.spread()}"
        more = {"observed": str(value)}
        if votes.usual is not None:
            summary = f"the {what} is {value}, but {votes.usual} on most nodes"
            more["expected"] = str(votes.usual)
        yield check.warn(odd, summary, fix, **more)


def _mtu(node: InspectedNode) -> int | None:
    interface = node.training_interface
    return node.seen["network"]["interfaces"][interface]["mtu"] if interface else None


def _of_user(node: InspectedNode, key: str) -> int | None:
    # If the inventory sets the id, each node is checked against the inventory instead.
    account = node.seen["users"]["training_user"]
    return account[key] if account and not node.request.get(f"node_baseline_user_{key}") else None


def _models(node: InspectedNode) -> str | None:
    if "gpus" in node.seen["skipped"] or not node.seen["gpus"]["devices"]:
        return None
    return " and ".join(sorted({device["name"] or device["id"] for device in node.seen["gpus"]["devices"]}))


def _identity(key: str, node: InspectedNode) -> tuple[str, ...]:
    return (node.seen["identity"][key],)


def _alike(
    nodes: list[InspectedNode], identity_of: Callable[[InspectedNode], tuple[str, ...]]
) -> Iterator[tuple[tuple[str, ...], list[InspectedNode]]]:
    groups: dict[tuple[str, ...], list[InspectedNode]] = defaultdict(list)
    for node in nodes:
        identity = identity_of(node)
        if all(identity):
            groups[identity].append(node)
    for group in groups.values():
        if len(group) > 1:
            yield tuple(node.name for node in group), group
