"""Messages about a launch: its plan before the start, and the causes of a failure."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

from ..pytorch.environments import LOGIN
from ..verdict.finding import as_lines, findings_in
from ..verdict.words import few, gigabytes, plural
from .manager import AUTO, SELF

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from ..verdict.finding import Verdict
    from .planned import LaunchPlan

NODES_SHOWN = 8  # in one line
NAME = LOGIN


def headline(plan: LaunchPlan) -> str:
    parts = [f"{entry.node} {rank_range(entry.ranks)}" for entry in plan.nodes]
    more = f", and {len(parts) - NODES_SHOWN} more nodes" if len(parts) > NODES_SHOWN else ""
    shown = ", ".join(parts[:NODES_SHOWN]) + more
    return (
        f"launch {plan.launch_id}: {plural(plan.world_size, 'rank')} ({shown}),"
        f" {plan.backend}, {plan.master_addr} port {plan.master_port}"
    )


def whose(plan: LaunchPlan) -> str:
    """Return one line with the type and user of the launch and the folder of its logs."""
    folder = plan.head.run_dir.rpartition("/")[0]
    if plan.is_own:
        return f"User launch by {plan.user}, without root. Logs on the nodes: {folder}"
    return f"Administrator launch, run as {plan.user} and started by root. Logs on the nodes: {folder}"


def rank_range(ranks: list[int]) -> str:
    return f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {ranks[0]}-{ranks[-1]}"


def pruned(starts: Mapping[str, Mapping[str, Any]]) -> str:
    """Return a sentence about logs that the nodes removed before this start; "" if none were removed."""
    gone = {name: answer for name, answer in starts.items() if answer.get("pruned")}
    if not gone:
        return ""
    launches = sorted({launch_id for answer in gone.values() for launch_id in answer["pruned"]})
    size = gigabytes(sum(answer["bytes"] for answer in gone.values()))
    limits = "cluster_run_keep, cluster_run_keep_mb"
    return f"old logs of {few(launches)} were removed on {few(list(gone))}: {size} ({limits})"


def describe(plan: LaunchPlan) -> str:
    """Return the plan as text: the environment and command of each node, which can be pasted into a shell.

    plan: the plan without the values of the users' variables; see masked in plan.py.
    """
    lines = [headline(plan)]
    if plan.image:
        lines.append(f"in the image {plan.image['source']}, added to the image's environment")
    given = {name: f"from {option}" for name, option in (plan.given or {}).items()}
    for entry in plan.nodes:
        lines += [
            "",
            f"{entry.node}  (node rank {entry.node_rank}, {rank_range(entry.ranks)}, unit {entry.unit})",
        ]
        lines += [f"  {name}={shlex.quote(value)} \\" for name, value in sorted(entry.env.items())]
        lines += [f"  {name}=<{how}> \\" for name, how in sorted({**entry.from_node, **given}.items())]
        lines.append("  " + " \\\n    ".join(shlex.quote(word) for word in entry.argv))
    return "\n".join(lines) + "\n"


def planned_outcome(plan: LaunchPlan, *, only: bool) -> str:
    """Return the last line of a run that shows a plan. only: whether the playbook only plans and contacts no nodes."""
    ranks = f"{plural(plan.world_size, 'rank')} on {plural(len(plan.nodes), 'node')}"
    place = f"{plan.master_addr} port {plan.master_port}"
    if only:
        return f"the plan has {ranks} with the rendezvous at {place}; no node was contacted, and nothing was changed"
    return f"launching {ranks} with the rendezvous at {place}"


def not_asked_yet(requested: str, users_root: str) -> str:
    """Return a note about the launch type, which is unknown until the nodes are contacted.

    requested: value of launch_as.
    """
    if requested == AUTO:
        return (
            f"\nIf the login account is a launch user, this becomes a user launch of that account ({NAME}),"
            f" with folders below {users_root}/{NAME} (launch_as).\n"
        )
    return f"\n{NAME} is a placeholder for the login account.\n" if requested == SELF else ""


def failure_text(verdict: Verdict, diagnosis: Sequence[str] = (), said: Collection[str] = ()) -> str:
    """Return the summary, or all reasons if there are several, followed by the diagnosis and the evidence.

    said: IDs of findings that the diagnosis already covers.
    """
    findings = [one for one in findings_in(verdict) if one.status != "pass" and not (diagnosis and one.id in said)]
    reasons = as_lines(findings)
    parts = [verdict["summary"]] if len(reasons) == 1 else [f"- {reason}" for reason in reasons]
    parts += ["", *diagnosis] if diagnosis else []
    for finding in findings:
        parts += [f"\n{proof['source']}:\n{proof['text']}" for proof in finding.evidence]
    return "\n".join(parts)
