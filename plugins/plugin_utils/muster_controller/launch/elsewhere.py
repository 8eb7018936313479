"""Launches from any controller, as reported by the nodes. Nodes store the plan of a launch next to its logs
(kept.py)."""

from __future__ import annotations

import base64
import json
import time
import zlib
from typing import TYPE_CHECKING, Any, NamedTuple

from muster.launch.jobs import usable
from muster.launch.plan import PlanError
from muster.launch.planned import LaunchPlan
from muster.verdict.words import few
from muster_controller.nodes.messages import Messages
from muster_controller.nodes.program import NodeProgram

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from muster_controller.playbook.node_error import Way


PROGRAM = NodeProgram("jobs")
SECONDS = 60.0
MOST_PLAN = 16_000_000  # bytes


class Heard(NamedTuple):
    """Results by node. who: the login user's identity on the node. said: the response and the time it was received.
    silent: why the node did not respond."""

    who: dict[str, dict[str, Any]]
    said: dict[str, dict[str, Any]]
    silent: dict[str, str]


def packed(plan: LaunchPlan) -> str:
    """Return the compressed plan to send to a node. Because entries of many nodes are similar, plans compress well."""
    return base64.b64encode(zlib.compress(json.dumps(plan.as_json()).encode(), 9)).decode()


def unpacked(text: Any) -> Any:
    """Return the plan that a node has stored, or None if the plan is invalid."""
    try:
        return json.loads(zlib.decompressobj().decompress(base64.b64decode(text, validate=True), MOST_PLAN))
    except (ValueError, TypeError, RecursionError, zlib.error):
        return None


def opened(connections: Mapping[str, Way], program: NodeProgram = PROGRAM) -> Messages:
    messages = Messages(connections, program)
    messages.open()
    return messages


def ask(messages: Messages, nodes: Sequence[str], verb: str, request: Mapping[str, Any]) -> Heard:
    """Send a request to every node in parallel, as root unless the login user is a launch user."""
    heard = Heard({}, {}, {})
    for name in nodes:
        messages.ask(name, "identity", {})
    deadline = time.monotonic() + SECONDS
    while len(heard.said) + len(heard.silent) < len(nodes) and time.monotonic() < deadline:
        answer = messages.next(0.2)
        if answer is None or answer.node in heard.said or answer.node in heard.silent:
            continue
        if not isinstance(answer.data, dict):
            heard.silent[answer.node] = answer.error or "invalid response"
        elif answer.verb == "identity":
            heard.who[answer.node] = answer.data
            own = is_own(answer.data)
            messages.ask(answer.node, verb, {**request, "node": answer.node, "own": own}, privileged=not own)
        elif answer.verb == verb:
            heard.said[answer.node] = {**answer.data, "received": answer.received}
    for name in nodes:
        if name not in heard.said:
            heard.silent.setdefault(name, f"no response within {SECONDS:.0f} s")
    return heard


def is_own(identity: Mapping[str, Any]) -> bool:
    return identity.get("launch_user") is True


class FoundPlan(NamedTuple):
    """as_root: whether only root can read the launch, because it belongs to a user other than the login user."""

    plan: LaunchPlan
    as_root: bool


def find(messages: Messages, nodes: Sequence[str], launch_id: str, cluster: Mapping[str, Any]) -> FoundPlan:
    """Find the plan of a launch that was started from another controller. Raises PlanError."""
    request = {"launch_id": launch_id, **roots(cluster)}
    heard = ask(messages, nodes, "plan", request)
    kept = {name: answer for name, answer in heard.said.items() if answer.get("plan")}
    plans: list[LaunchPlan] = []
    problems = []
    for name, answer in kept.items():
        plan = unpacked(answer["plan"])
        why = usable(plan, launch_id, str(answer.get("run_dir")), nodes, str(answer.get("user") or ""))
        if why:
            problems.append(f"{name}: the stored plan of {launch_id} is invalid: {why}.")
        elif (read := LaunchPlan.read(plan)) not in plans:
            plans.append(read)
    if len(plans) > 1:
        problems.append(f"{few(list(kept))} have different plans of {launch_id}.")
    if problems:
        raise PlanError(problems)
    if not plans:
        silent = [f"{name} did not respond: {why}" for name, why in heard.silent.items()]
        asked = [name for name in nodes if name in heard.said] or ["any node"]
        raise PlanError([f"Launch {launch_id} is not known on this controller or on {few(asked)}.", *silent])
    readers = {name: answer.get("reader") for name, answer in kept.items() if answer.get("reader") is not None}
    as_root = any(uid != heard.who[name].get("uid") for name, uid in readers.items())
    return FoundPlan(plans[0], as_root)


def roots(cluster: Mapping[str, Any]) -> dict[str, str]:
    return {"run_root": cluster["cluster_run_root"], "users_root": cluster["cluster_users_root"]}
