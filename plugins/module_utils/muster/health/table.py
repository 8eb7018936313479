"""The cluster's health for people, in a few lines."""

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
    """What was found, the worst first; then what was looked at, and how much was not."""
    lines = []
    for status, mark in MARKS.items():
        lines += [f"{mark}  {line}" for line in as_lines([one for one in health.findings if one.status == status])]
    lines.append(looked_at(health, network, nodes))
    return "\n".join([*lines, *not_looked_at(health.skipped)])


def summary(health: Health, network: Mapping[str, Any], nodes: int) -> str:
    """One sentence: nothing stands against a launch. The warnings are findings of the verdict, each for itself."""
    said = (
        f"{plural(health.spared, 'failed check')} counted as warnings"
        if health.spared
        else "nothing stands against a launch"
    )
    return f"{said}: {looked_at(health, network, nodes)}"


def looked_at(health: Health, network: Mapping[str, Any], nodes: int) -> str:
    ran = len({*health.ran, *(one.id for one in health.findings)})
    return f"{plural(nodes, 'node')}, {plural(ran, 'kind')} of check{links(network)}"


def links(network: Mapping[str, Any]) -> str:
    """The links in one clause: how many, how long a message takes, how fast they are."""
    probed = [link for link in network.get("links", []) if link["outcome"] != "not_tried"]
    if not probed:
        return ""
    parts = [f", {plural(len(probed), 'link')}"]
    for key, form in (("rtt_ms", "round trip {:.2f} ms"), ("gbps", "{:.1f} Gbit/s")):
        values = sorted(link[key] for link in probed if link.get(key) is not None)
        if values:
            parts.append(form.format(values[len(values) // 2]))
    return parts[0] + (f" (median {', '.join(parts[1:])})" if parts[1:] else "")


def not_looked_at(skipped: Sequence[Skipped]) -> list[str]:
    """One line: the reasons, of which a node without GPUs has many, are in the report."""
    kinds = len({entry["id"] for entry in skipped})
    do = "does" if kinds == 1 else "do"
    return (
        [f"{plural(kinds, 'kind')} of check {do} not apply or could not be made: why is in the report"] if kinds else []
    )
