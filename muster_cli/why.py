"""The verb `why` for logs: the diagnosis runs in this process, without an inventory and without Ansible."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path

import click


def is_of_logs(source: str) -> bool:
    """Return whether the source names logs, and not a launch."""
    return source == "-" or "/" in source or any(mark in source for mark in "*?[") or Path(source).exists()


def show(project: Path, source: str, *, as_json: bool) -> None:
    """Print the diagnosis as lines, or as one JSON object."""
    sys.path[:0] = [str(project / "plugins" / room) for room in ("module_utils", "plugin_utils")]
    plan_error = importlib.import_module("muster.launch.plan").PlanError
    try:
        found, left_out = importlib.import_module("muster_controller.diagnosis.logs_alone").diagnosed(source)
    except plan_error as problem:
        raise click.UsageError(" ".join(problem.problems)) from None
    for sentence in left_out:
        click.echo(f"Left out of the logs: {sentence}.", err=True)
    click.echo(json.dumps(found, ensure_ascii=False) if as_json else "\n".join(found["lines"]))
