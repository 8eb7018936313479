"""Inspects every node before a launch starts, and decides whether the launch can start."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from muster.launch import caches, data, manager, preflight
from muster.launch import plan as planning
from muster.launch.preflight import Prepared

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from muster.launch.messages import Facts, Identity, PrepareRequest
    from muster.launch.planned import LaunchPlan, PlannedNode
    from muster.verdict.finding import Finding
    from muster_controller.nodes.messages import NodeReply

    from .launch_messages import LaunchMessages
    from .settings import Settings

PREPARE_TIMEOUT = 30.0


def prepare(
    plan: LaunchPlan,
    settings: Settings,
    messages: LaunchMessages,
    give_up: Callable[[], bool],
    own_plan: Callable[[str], LaunchPlan] | None = None,
) -> Prepared:
    """Inspect all nodes and evaluate the results. give_up: returns whether to stop waiting for responses.

    own_plan: builds the plan of the launch as a user launch.
    """
    known = identities(plan, messages, give_up)
    readers = {name: answer.data for name, answer in known.items() if answer.data is not None}
    whose, against = manager.whose(settings.options.run_as, readers)
    messages.own = whose.own
    plan = own_plan(whose.user) if whose.own and own_plan and not against else plan
    prepared = Prepared(plan, readers, findings=list(against), whose=whose)
    if against:
        prepared.reached = set(readers)
        prepared.findings += [unanswered(name, known.get(name)) for name in plan.names if name not in readers]
        return prepared
    entries = plan.by_node()
    for name in prepared.readers:
        messages.ask(name, "prepare", {**request_of(plan, entries[name], settings)}, privileged=True)
    answers = messages.gather("prepare", prepared.readers, PREPARE_TIMEOUT, too_late, give_up)
    seen: dict[str, Facts] = {}
    requested = preflight.Requested(
        plan.user,
        plan.backend,
        settings.options.min_free_mb * 1_000_000,
        bool(settings.script_name),
        settings.options.shared,
        settings.begun_here,
        str(Path(plan.head.run_dir).parents[1]) if whose.own else "",
        plan.launcher,
        in_image=bool(plan.image),
        slurm_job=os.environ.get("SLURM_JOB_ID", ""),
    )
    for name, entry in entries.items():
        answer = (answers if name in prepared.readers else known).get(name)
        if answer is None or answer.data is None:
            prepared.findings.append(unanswered(name, answer, readers.get(name)))
            continue
        try:
            prepared.findings += preflight.judge(entry, answer.data, requested)
            prepared.reached.add(name)
            seen[name] = answer.data
        except (KeyError, TypeError, ValueError, AttributeError) as exc:
            why = f"invalid response ({type(exc).__name__}: {exc})"
            prepared.findings.append(preflight.not_looked_at(name, why, reachable=True))
    requested_data = plan.data
    if requested_data:
        reports = {name: facts.get("data") for name, facts in seen.items()}
        prepared.findings += data.judge(requested_data, reports, plan.user)
    if not prepared.refused:
        image = plan.image["source"] if plan.image else ""
        completed = [planning.complete(entry, seen[entry.node], plan.backend, image) for entry in plan.nodes]
        prepared.plan = replace(plan, nodes=completed)
        prepared.notes = manager.notes(seen)
    return prepared


def identities(plan: LaunchPlan, messages: LaunchMessages, give_up: Callable[[], bool]) -> dict[str, NodeReply]:
    """Request the identity of the login user from every node."""
    for name in plan.names:
        messages.ask(name, "identity", {})
    return messages.gather("identity", plan.names, PREPARE_TIMEOUT, too_late, give_up)


def in_their_name(nodes: Collection[str], messages: LaunchMessages, give_up: Callable[[], bool]) -> dict[str, str]:
    """Return, by node, why root cannot become the user of a user launch, or "" if root can."""
    for name in nodes:
        messages.ask(name, "identity", {})
    known = messages.gather("identity", nodes, PREPARE_TIMEOUT, too_late, give_up)
    return {name: known[name].error if name in known else "no response" for name in nodes}


def request_of(plan: LaunchPlan, entry: PlannedNode, settings: Settings) -> PrepareRequest:
    return {
        "user": plan.user,
        "executable": entry.argv[0],
        "script": None if settings.script_name or plan.image or planning.in_project(entry) else entry.script,
        "chdir": settings.options.chdir or None,
        "run_root": str(Path(entry.run_dir).parent),
        "work_root": None if settings.options.chdir else str(Path(entry.work_dir).parent),
        "address": entry.address,
        "port": plan.master_port if entry.node_rank == 0 else None,
        "gpus": plan.backend == "nccl",
        "beat_port": planning.beat_port(plan.master_port)
        if settings.options.detached and entry.node_rank == 0
        else None,
        "path": entry.env.get("PATH", ""),
        "environment": entry.environment,
        "caches": caches.to_look_at(entry),
        "data": plan.data,
    }


def unanswered(name: str, answer: NodeReply | None, reader: Identity | None = None) -> Finding:
    """reader: the login user, if the user is known."""
    why = answer.error if answer else f"no response within {PREPARE_TIMEOUT:.0f} s"
    user = reader["name"] if reader and reader["uid"] and not reader["launch_user"] else ""
    return preflight.not_looked_at(name, why, reachable=answer is not None and answer.reachable, user=user)


def too_late(_answer: NodeReply) -> None:
    """Ignore a response that arrives after the timeout. No other request is sent before the start."""
