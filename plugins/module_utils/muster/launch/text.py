"""A launch in words: its plan before it begins, and why it failed."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

from ..verdict.finding import as_lines, findings_in
from ..verdict.words import few, gigabytes, plural
from .manager import AUTO, SELF, USER

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from ..verdict.finding import Verdict

NODES_SHOWN = 8  # in one line
NAME = "NAME"  # of the account that logs in, in a plan that is shown before the nodes are asked


def headline(plan: dict[str, Any]) -> str:
    parts = [f"{entry['node']} {rank_range(entry['ranks'])}" for entry in plan["nodes"]]
    more = f", and {len(parts) - NODES_SHOWN} nodes more" if len(parts) > NODES_SHOWN else ""
    shown = ", ".join(parts[:NODES_SHOWN]) + more
    return (
        f"launch {plan['launch_id']}: {plural(plan['world_size'], 'rank')} ({shown}),"
        f" {plan['backend']}, {plan['master_addr']} port {plan['master_port']}"
    )


def whose(plan: Mapping[str, Any]) -> str:
    """As whom it runs, and where its files go."""
    folder = plan["nodes"][0]["run_dir"].rpartition("/")[0]
    if plan.get("manager") == USER:
        return f"It is {plan['user']}'s own launch, without root: logs on the nodes go to {folder}"
    return f"It runs as {plan['user']}, started by root (an administrator's launch): logs on the nodes go to {folder}"


def rank_range(ranks: list[int]) -> str:
    return f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {ranks[0]}-{ranks[-1]}"


def pruned(starts: Mapping[str, Mapping[str, Any]]) -> str:
    """Return what the nodes removed for this start, by their answers; nothing where that was nothing."""
    gone = {name: answer for name, answer in starts.items() if answer.get("pruned")}
    if not gone:
        return ""
    launches = sorted({launch_id for answer in gone.values() for launch_id in answer["pruned"]})
    size = gigabytes(sum(answer["bytes"] for answer in gone.values()))
    limits = "cluster_run_keep, cluster_run_keep_mb"
    return f"logs of {few(launches)} were removed on {few(list(gone))}: {size} ({limits})"


def describe(plan: dict[str, Any]) -> str:
    """The plan for people: each node's environment and command, as they could be typed there.

    plan: as it may be shown; see masked in plan.py.
    """
    lines = [headline(plan)]
    if plan.get("image"):
        lines.append(f"in the image {plan['image']['source']}, beside its own environment")
    given = {name: f"from {option}" for name, option in plan["given"].items()}
    for entry in plan["nodes"]:
        lines += [
            "",
            f"{entry['node']}  (node rank {entry['node_rank']}, {rank_range(entry['ranks'])}, unit {entry['unit']})",
        ]
        lines += [f"  {name}={shlex.quote(value)} \\" for name, value in sorted(entry["env"].items())]
        lines += [f"  {name}=<{how}> \\" for name, how in sorted({**entry["from_node"], **given}.items())]
        lines.append("  " + " \\\n    ".join(shlex.quote(word) for word in entry["argv"]))
    return "\n".join(lines) + "\n"


def planned_outcome(plan: Mapping[str, Any], *, only: bool) -> str:
    """The last line of a run that shows a plan. only: by a playbook that does nothing else, and contacts no node."""
    ranks = f"{plural(plan['world_size'], 'rank')} on {plural(len(plan['nodes']), 'node')}"
    place = f"{plan['master_addr']} port {plan['master_port']}"
    if only:
        return f"the plan has {ranks}, which meet at {place}; no node was contacted, and nothing was changed"
    return f"{ranks} are launched, and meet at {place}"


def not_asked_yet(requested: str, users_root: str) -> str:
    """What the nodes alone can say of whose launch it is, before they are asked. requested: launch_as."""
    if requested == AUTO:
        return (
            f"\nWhere the account that logs in is a launch user, it is that account's own launch: {NAME} for the user,"
            f" and folders below {users_root}/{NAME} (launch_as).\n"
        )
    return f"\n{NAME} stands for the account that logs in.\n" if requested == SELF else ""


def failure_text(verdict: Verdict, diagnosis: Sequence[str] = (), said: Collection[str] = ()) -> str:
    """The summary; below it every reason where there are several, the lines of the diagnosis, and what proves them.

    said: ids of findings that those lines say.
    """
    findings = [one for one in findings_in(verdict) if one.status != "pass" and not (diagnosis and one.id in said)]
    reasons = as_lines(findings)
    parts = [verdict["summary"]] if len(reasons) == 1 else [f"- {reason}" for reason in reasons]
    parts += ["", *diagnosis] if diagnosis else []
    for finding in findings:
        parts += [f"\n{proof['source']}:\n{proof['text']}" for proof in finding.evidence]
    return "\n".join(parts)
