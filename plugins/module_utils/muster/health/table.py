"""Formats the health of the cluster as a few lines of text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..verdict.finding import as_lines
from ..verdict.words import plural

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..verdict.finding import Skipped
    from .cluster import Health

MARKS = {"fail": "FAIL", "unknown": "????", "warn": "warn"}


def report(health: Health, network: Mapping[str, Any], nodes: int) -> str:
    """Return the findings, worst first, then the numbers of checks and of skipped checks."""
    lines = []
    for status, mark in MARKS.items():
        lines += [f"{mark}  {line}" for line in as_lines([one for one in health.findings if one.status == status])]
    lines.append(checked(health, network, nodes))
    return "\n".join([*lines, *not_checked(health.skipped)])


def summary(health: Health, network: Mapping[str, Any], nodes: int) -> str:
    """Return one sentence. It does not repeat the warnings, which are findings of the verdict."""
    ready = f"{plural(health.spared, 'failed check')} counted as warnings" if health.spared else "ready to launch"
    return f"{ready}: {checked(health, network, nodes)}"


def checked(health: Health, network: Mapping[str, Any], nodes: int) -> str:
    ran = len({*health.ran, *(one.id for one in health.findings)})
    return f"{plural(nodes, 'node')}, {plural(ran, 'check')}{links(network)}"


def links(network: Mapping[str, Any]) -> str:
    """Return the number of links, with their median round-trip time and median bandwidth."""
    probed = [link for link in network.get("links", []) if link["outcome"] != "not_tried"]
    if not probed:
        return ""
    parts = [f", {plural(len(probed), 'link')}"]
    for key, form in (("rtt_ms", "round trip {:.2f} ms"), ("gbps", "{:.1f} Gbit/s")):
        values = sorted(link[key] for link in probed if link.get(key) is not None)
        if values:
            parts.append(form.format(values[len(values) // 2]))
    return parts[0] + (f" (median {', '.join(parts[1:])})" if parts[1:] else "")


def not_checked(skipped: Sequence[Skipped]) -> list[str]:
    """Return one line with the number of skipped checks; the many reasons on a node without GPUs are only in the
    report."""
    kinds = len({entry["id"] for entry in skipped})
    return [f"{plural(kinds, 'check')} skipped (reasons in the report)"] if kinds else []
