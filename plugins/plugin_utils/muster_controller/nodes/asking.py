"""Sends one request to many nodes at once, with a thread for each, so that a hanging node does not delay others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .connection import connect
from .messages import Messages

if TYPE_CHECKING:
    from collections.abc import Mapping

    from muster_controller.playbook.action import ControllerAction

    from .program import NodeProgram

SECONDS = 60.0  # timeout of a node's response


@dataclass(frozen=True)
class NodeAnswer:
    """The response of a node. error: why there is no data."""

    data: Any = None
    error: str = ""


def ask_nodes(
    action: ControllerAction,
    program: NodeProgram,
    verb: str,
    payloads: Mapping[str, dict[str, Any]],
    seconds: float = SECONDS,
) -> dict[str, NodeAnswer]:
    """Send a request to each node and run it as root. payloads: the request for each node."""
    messages = Messages({name: connect(action, name, action.task_vars) for name in payloads}, program)
    messages.open()
    for name, payload in payloads.items():
        messages.ask(name, verb, payload, privileged=True)
    answers = messages.gather(verb, payloads, seconds, lambda _: None)
    messages.close()
    late = NodeAnswer(error=f"no response within {seconds:.0f} s")
    return {name: NodeAnswer(one.data, one.error) if (one := answers.get(name)) else late for name in payloads}
