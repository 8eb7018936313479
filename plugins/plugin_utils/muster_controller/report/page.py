"""Writes the report page of a run and its junit.xml from the artifacts in the run's folder."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from muster import report
from muster.verdict.printable import printable
from muster_controller.artifacts.private_files import write_text
from muster_controller.artifacts.runs import history, kept_plan, read_json, write_json
from muster_controller.playbook.variables import project_root

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from muster.report.pipelines import JUnitCase, Suite

PAGE = "report.html"
INSPECT = "inspect.json"
JUNIT = "junit.xml"
REMEMBERED = 40  # runs on the page
# Printable characters that XML 1.0 forbids (https://www.w3.org/TR/xml/#charsets).
NONE_OF_XML = re.compile("[\ufffe\uffff]")
LONGEST = 4000  # characters of one text


def write_page(folder: Path, run: dict[str, Any]) -> Path:
    """Write run.json and the report of the run in this folder. run: the facts about the run (see Reporter)."""
    _keep_inspect(folder)
    kept = gather(folder, run)
    ended = {**run, **report.outcome(kept), "page": True}
    write_json(folder / "run.json", ended)
    known = gather(folder, ended)
    write_text(folder / PAGE, render(report.page(known)))
    write_text(folder / JUNIT, junit_xml(report.suite(known)))
    return folder / PAGE


def rewrite_page(folder: Path) -> Path:
    """Rewrite the report of an earlier run."""
    run = read_json(folder / "run.json")
    return write_page(folder, {"schema": 1, "id": folder.name, "cluster": folder.parent.name, **run})


def render(page: dict[str, Any]) -> str:
    """Render the page as HTML, without Ansible's templating, because machine output must never be evaluated as a
    template."""
    templates = FileSystemLoader(project_root() / "roles/report/templates")
    environment = Environment(loader=templates, autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    return printable(environment.get_template("report.html.j2").render(page))


def gather(folder: Path, run: dict[str, Any]) -> report.Artifacts:
    """Read the artifacts of a run, and the history of the cluster from the folders next to the run."""
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
    """Copy inspect.json to the folder of its run, because the next inspection overwrites the cluster's file."""
    newest = read_json(folder.parent / INSPECT)
    if newest.get("run") == folder.name:
        write_json(folder / INSPECT, {name: value for name, value in newest.items() if name != "nodes"})


def _runs(folder: Path, run: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the newest runs of the cluster, including this one."""
    for count, path in enumerate(history(folder.parent)):
        if count == REMEMBERED:
            return
        yield run if path == folder else _remembered(path)


def _remembered(folder: Path) -> dict[str, Any]:
    """Return run.json. If the run was interrupted before it wrote run.json, derive the outcome from its other
    artifacts."""
    run = read_json(folder / "run.json")
    if not run:
        known = report.Artifacts(
            verdict=read_json(folder / "verdict.json"),
            plan=kept_plan(folder),
            smoke=read_json(folder / "smoke.json"),
        )
        run = report.outcome(known)
    return {**run, "id": folder.name, "page": os.access(folder / PAGE, os.R_OK)}


def junit_xml(suite: Suite) -> str:
    counts = {name: str(count) for name, count in suite.counts.items()}
    about = {"name": text(suite.name), **counts, "time": f"{suite.seconds:.3f}", "timestamp": text(suite.began[:19])}
    whole = ET.Element("testsuites", {"name": "muster", **counts, "time": about["time"]})
    inner = ET.SubElement(whole, "testsuite", about)
    for case in suite.cases:
        add(inner, case)
    ET.indent(whole)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(whole, encoding="unicode") + "\n"


def add(suite: ET.Element, case: JUnitCase) -> None:
    about = {"classname": text(f"muster.{case.of}"), "name": text(case.name), "time": f"{case.seconds:.3f}"}
    element = ET.SubElement(suite, "testcase", about)
    if case.result == "pass":
        if case.text:
            ET.SubElement(element, "system-out").text = text(case.text)
        return
    inner = ET.SubElement(element, case.result, {"message": text(case.message)})
    if case.result != "skipped":
        inner.text = text(case.text)


def text(value: str) -> str:
    shown = NONE_OF_XML.sub("\N{REPLACEMENT CHARACTER}", printable(value))
    return shown if len(shown) <= LONGEST else f"{shown[: LONGEST - 1]}…"
