"""The content of the report page, computed from a run's artifacts (parsed JSON).

This package makes all decisions about the page; the template (roles/report/templates/report.html.j2) only renders them.
The package produces no markup except SVG paths, which contain only numbers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..road.changes import table
from ..verdict.words import few
from . import accepted, checks, diagnosed, links, measured, past, run_verdict, training, transports, versions, words
from .artifacts import Artifacts
from .pipelines import suite

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Artifacts", "outcome", "page", "suite"]


def outcome(kept: Artifacts) -> dict[str, Any]:
    """Return the outcome of the run for run.json, which scripts and the reports of later runs read."""
    head = words.headline(kept.run, kept.verdict)
    sentence = f"{few(head['nodes'])}: {head['sentence']}" if head["nodes"] else head["sentence"]
    launch = run_verdict.word(kept)
    said = {"launch": launch} if launch else {}
    return {"status": head["status"], "sentence": sentence, **said, "figures": past.figures(kept)}


def page(kept: Artifacts) -> dict[str, Any]:
    """Return the parts of the page. A part is None if the run has no data for it."""
    nodes = kept.nodes()
    return {
        "run": about(kept),
        "head": words.headline(kept.run, kept.verdict),
        "causes": words.causes(kept.verdict),
        "inspected": words.causes(kept.inspect),
        "diagnosed": diagnosed.section(kept),
        "drifted": versions.drift_section(kept),
        "planned": "\n".join(table(kept.run["planned"])) if "planned" in kept.run else "",
        "stops": words.stops(kept.run, kept.verdict),
        "checks": checks.grid(kept, nodes),
        "links": links.maps(kept.network),
        "versions": versions.table(kept.health),
        "acceptance": acceptance(kept),
        "training": training.launch(kept),
        "attempts": training.restart_table(kept.attempts, kept.verdict, kept.run.get("id", "")),
        "comparison": training.speed_table(kept.comparison),
        "shared_data": measured.shared_data_tables(kept.shared_data),
        "past": past.table(kept.history, kept.run.get("id", "")),
        "trends": past.trends(kept.history, kept.run.get("id", "")),
        "skipped": checks.skipped(kept, nodes),
    }


def acceptance(kept: Artifacts) -> dict[str, Any] | None:
    """Return the parts of the page about the acceptance test; None if no acceptance test ran."""
    smoke = kept.smoke
    parts = {
        "overview": accepted.overview(smoke),
        "beside": accepted.beside(smoke),
        "collectives": measured.collectives(smoke),
        "transport": transports.transport(smoke),
        "pairs": transports.pairs(smoke),
        "devices": measured.devices(smoke),
        "stragglers": measured.stragglers(smoke),
        "scaling": measured.scaling(smoke),
        "soak": measured.soak(smoke),
    }
    return parts if any(parts.values()) else None


def about(kept: Artifacts) -> Mapping[str, Any]:
    """Return information about the run: command, start, duration, options and steps."""
    run = kept.run
    return {
        "id": run.get("id", ""),
        "cluster": run.get("cluster", ""),
        "nodes": len(kept.nodes()),
        "began": words.moment(str(run.get("began", ""))),
        "lasted": words.duration(run.get("seconds")),
        "command": run.get("command", ""),
        "check": bool(run.get("check")),
        "options": run.get("options", {}),
        "steps": [{"name": step["name"], "lasted": words.duration(step["seconds"])} for step in run.get("steps", [])],
    }
