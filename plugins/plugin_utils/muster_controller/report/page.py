"""The report page of a run, and its junit.xml: read from the run's folder and written into it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from muster import report
from muster.verdict.printable import printable
from muster_controller.artifacts.json_file import write_json
from muster_controller.artifacts.private_files import write_text
from muster_controller.artifacts.runs import history, kept_plan, read_json
from muster_controller.playbook.variables import project_root

from . import junit

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PAGE = "report.html"
INSPECT = "inspect.json"
JUNIT = "junit.xml"
REMEMBERED = 40  # runs that the page shows


def write_page(folder: Path, run: dict[str, Any]) -> Path:
    """Write run.json and the page of the run in this folder. run: what is known of it (see muster_reporter)."""
    _keep_inspect(folder)
    kept = gather(folder, run)
    ended = {**run, **report.outcome(kept), "page": True}
    write_json(folder / "run.json", ended)
    known = gather(folder, ended)
    write_text(folder / PAGE, render(report.page(known)))
    write_text(folder / JUNIT, junit.xml(report.suite(known)))
    return folder / PAGE


def rewrite_page(folder: Path) -> Path:
    """Write the page of an earlier run anew."""
    run = read_json(folder / "run.json")
    return write_page(folder, {"schema": 1, "id": folder.name, "cluster": folder.parent.name, **run})


def render(page: dict[str, Any]) -> str:
    """The page as HTML. Not Ansible's templating: what machines said is printable text here, and never a template."""
    templates = FileSystemLoader(project_root() / "roles/report/templates")
    environment = Environment(loader=templates, autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    return printable(environment.get_template("report.html.j2").render(page))


def gather(folder: Path, run: dict[str, Any]) -> report.Artifacts:
    """All that the page needs of a run's folder and of those beside it."""
    return report.Artifacts(
        run=run,
        inspect=read_json(folder / INSPECT),
        verdict=read_json(folder / "verdict.json"),
        plan=kept_plan(folder),
        attempts=read_json(folder / "attempts.json"),
        smoke=read_json(folder / "smoke.json"),
        comparison=read_json(folder / "comparison.json"),
        shared_data=read_json(folder / "shared_data.json"),
        network=read_json(folder / "network.json"),
        diagnosis=read_json(folder / "diagnosis.json"),
        evidence=read_json(folder / "evidence.json"),
        drift=read_json(folder / "drift.json"),
        health={path.stem: read_json(path) for path in sorted((folder / "health").glob("*.json"))},
        logs={
            node.name: [f"logs/{node.name}/{path.name}" for path in sorted(node.iterdir()) if path.stat().st_size]
            for node in sorted((folder / "logs").glob("*"))
            if node.is_dir()
        },
        history=list(_runs(folder, run)),
    )


def _keep_inspect(folder: Path) -> None:
    """Keep what inspect found with its run: the file of the cluster is that of the newest look."""
    newest = read_json(folder.parent / INSPECT)
    if newest.get("run") == folder.name:
        write_json(folder / INSPECT, {name: value for name, value in newest.items() if name != "nodes"})


def _runs(folder: Path, run: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The newest runs of the cluster, with this one in its place."""
    for count, path in enumerate(history(folder.parent)):
        if count == REMEMBERED:
            return
        yield run if path == folder else _remembered(path)


def _remembered(folder: Path) -> dict[str, Any]:
    """What run.json says; of a run that was interrupted before it was written, what can be read from the rest."""
    run = read_json(folder / "run.json")
    if not run:
        known = report.Artifacts(
            verdict=read_json(folder / "verdict.json"),
            plan=kept_plan(folder),
            smoke=read_json(folder / "smoke.json"),
        )
        run = report.outcome(known)
    return {**run, "id": folder.name, "page": os.access(folder / PAGE, os.R_OK)}
