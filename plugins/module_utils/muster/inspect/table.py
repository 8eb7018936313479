"""Format the inspection of all nodes as a table of at most 120 columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..firewall.services import SERVICE_CUT_OFF
from ..verdict.commands import playbook
from ..verdict.finding import as_lines
from ..verdict.words import few, plural
from . import environments
from .gpus import reminder

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..verdict.finding import Finding, Skipped
    from .facts import InspectedNode

WIDTH = 120
HEAD = ("node", "system", "kernel", "GPUs", "training address", "firewall", "clock", "found")
# (column, width): columns to shorten, in this order, if the table is too wide.
CUT = ((2, 8), (1, 12), (3, 12), (5, 9), (6, 11), (0, 16), (4, 21))
MARKS = {"fail": "FAIL", "unknown": "????", "warn": "warn"}


def report(nodes: list[InspectedNode], findings: list[Finding], skipped: list[Skipped], rdma: Mapping[str, str]) -> str:
    """Return the table, then the findings, then the facts that could not be collected.

    rdma: a summary of each node's RDMA adapters; "" for a node without adapters.
    """
    lines = _table([HEAD, *(_row(node, findings) for node in nodes)])
    lines += [f"rdma  {few(names)}: {line}." for line, names in _alike(rdma).items() if line]
    lines += [f"found  {line}." for line in environments.lines(nodes)]
    blocked = [one for one in findings if one.id == SERVICE_CUT_OFF.id and one.status == "pass"]
    lines += [f"firewall  {line}." for line in as_lines(blocked)]
    for status, mark in MARKS.items():
        lines += [f"{mark}  {line}" for line in as_lines([finding for finding in findings if finding.status == status])]
    groups: dict[str, tuple[list[str], list[str]]] = {}
    for entry in skipped:
        ids, names = groups.setdefault(entry["why"], ([], []))
        ids += [entry["id"]] if entry["id"] not in ids else []
        names += [entry["node"]] if entry["node"] not in names else []
    for why, (ids, names) in groups.items():
        if ids != ["inspect"]:  # an unreachable node is already a finding
            where = "every node" if len(names) == len(nodes) > 1 else few(names)
            lines.append(f"skipped  {where}: {', '.join(ids)} ({why})")
    unused = reminder(nodes)
    if unused:
        lines += ["", f"warn  {unused}"]
    return "\n".join(lines)


def outcome(nodes: list[InspectedNode], findings: list[Finding]) -> str:
    """Return the last line of an inspection run. A reminder may follow this line."""
    stopped = {finding.node for finding in findings if finding.status == "fail"}
    good = [node for node in nodes if node.facts is not None and node.name not in stopped]
    warnings = sum(finding.status == "warn" for finding in findings)
    can = f"{len(good)} of {plural(len(nodes), 'node')} can continue"
    can += f", with {plural(warnings, 'warning')}" if warnings else ""
    return can if reminder(nodes) else f"{can}; next: {playbook('site.yml')}"


def _alike(lines: Mapping[str, str]) -> dict[str, list[str]]:
    names: dict[str, list[str]] = {}
    for node, line in lines.items():
        names.setdefault(line, []).append(node)
    return names


def _row(node: InspectedNode, findings: list[Finding]) -> tuple[str, ...]:
    statuses = [finding.status for finding in findings if finding.node == node.name]
    counts = [f"{statuses.count(status)} {status}" for status in ("fail", "warn") if status in statuses]
    if node.facts is None:
        return (node.name, "not reached", *("" for _ in HEAD[3:]), "unknown")
    facts = node.facts
    return (
        node.name,
        _system(facts["system"]),
        facts["system"]["kernel"],
        _gpus(facts),
        _address(node),
        " ".join([*facts["firewall"]["in_force"], *facts["firewall"]["engines"]]) or _unknown(facts, "firewall.rules"),
        _clock(facts),
        ", ".join(counts) or "ok",
    )


def _system(system: Mapping[str, Any]) -> str:
    name = f"{system['id'].capitalize()} {system['version']}".strip() or "?"
    return f"{name} ({system['virtual']})" if system["virtual"] else name


def _gpus(facts: Mapping[str, Any]) -> str:
    devices = facts["gpus"]["devices"]
    if "gpus" in facts["skipped"]:
        return "?"
    if not devices:
        return "none"
    models = sorted({device["name"] or device["id"] for device in devices})
    drivers = sorted({device["driver"] or "no driver" for device in devices})
    return f"{len(devices)} x {'/'.join(models)} {'/'.join(drivers)}"


def _address(node: InspectedNode) -> str:
    interface = node.training_interface
    if not interface:
        return f"{node.address} ?"
    mtu = node.seen["network"]["interfaces"][interface]["mtu"]
    return f"{node.address} {interface} {mtu}"


def _clock(facts: Mapping[str, Any]) -> str:
    clock = facts["clock"]
    word = {True: "in sync", False: "not in sync", None: "?"}[clock["synchronised"]]
    return " ".join([*clock["sources"][:1], word])


def _unknown(facts: Mapping[str, Any], subject: str) -> str:
    return "?" if subject in facts["skipped"] else "none"


def _table(rows: list[tuple[str, ...]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEAD))]
    gaps = 2 * (len(HEAD) - 1)
    for column, least in CUT:
        surplus = sum(widths) + gaps - WIDTH
        widths[column] -= max(0, min(surplus, widths[column] - least))
    return ["  ".join(_fit(cell, width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _fit(cell: str, width: int) -> str:
    return cell.ljust(width) if len(cell) <= width else f"{cell[: width - 1]}…"
