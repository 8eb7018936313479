"""Determines which nodes are idle: no launch holds a slot, and no process uses a GPU."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import TYPE_CHECKING, Any

from muster.launch.occupied import on_seats
from muster.onboard.partner import NOT_ASKED, busy_with
from muster_controller.playbook.node_error import NodeError

from .program import NodeProgram

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .connection import NodeConnection

LAUNCH = NodeProgram("launch")
AT_ONCE = 32


def busy(connections: Mapping[str, NodeConnection], own: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Return, by node, why a launch cannot start now, or "" if the node is idle. own: the cluster_* variables of the
    node."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        # Ansible keeps the current task in a context variable, which threads do not inherit.
        looks = {name: pool.submit(copy_context().run, _busy, node, own[name]) for name, node in connections.items()}
        return {name: look.result() for name, look in looks.items()}


def _busy(node: NodeConnection, own: Mapping[str, Any]) -> str:
    request = {
        "user": own["cluster_user"],
        "executable": own["cluster_torchrun"],
        "run_root": own["cluster_run_root"],
        "address": own["cluster_address"],
        "gpus": own["cluster_gpus"] > 0,
    }
    try:
        occupied = LAUNCH.call(node, "prepare", request, privileged=True)["occupied"]
        seats = [*occupied["held"], *occupied["computing"]]
        return busy_with(on_seats(seats, occupied), str(occupied["why"]), gpus=own["cluster_gpus"])
    except NodeError as problem:
        return f"{NOT_ASKED}{problem}"
    except (KeyError, TypeError, AttributeError) as problem:
        return f"invalid response ({type(problem).__name__})"
