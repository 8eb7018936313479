"""Run the acceptance test on sandbox nodes and inject faults into its ranks."""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from paths import ARTIFACTS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from machines import Machine, Play, Result

SITE_PACKAGES_OF_TORCH = "/opt/muster/pytorch/current/lib/python3*/site-packages"


class Run(NamedTuple):
    """result: of the play. measured, verdict: contents of smoke.json and verdict.json, empty if a file is missing."""

    result: Result
    measured: dict[str, Any]
    verdict: dict[str, Any]

    @property
    def found(self) -> list[str]:
        """Return one line per finding of the acceptance test."""
        return [
            f"{one['id']} {one['status']} {one['node']}: {one['summary']}"
            for one in self.verdict["findings"]
            if one["id"].startswith("smoke.") and one["status"] not in ("pass", "skipped")
        ]


def run_acceptance(play: Play, folder: Path, stages: str = "", **options: Any) -> Run:
    """Run the given stages, or all stages if empty, by default with two ranks on each of two nodes."""
    given: dict[str, Any] = {
        "cluster_artifacts_dir": str(folder),
        "cluster_launch_nodes": ["node1", "node2"],
        "cluster_nproc_per_node": 2,
        "ddp_smoke_stall_timeout": 300,  # importing torch in four processes takes a minute on a busy machine
    }
    if stages:
        given["ddp_smoke_stages"] = stages.split(",")
    result = play("playbooks/ddp_smoke.yml", extravars={**given, **options})
    latest = (folder / ARTIFACTS.name / "latest").resolve()
    kept = [latest / name for name in ("smoke.json", "verdict.json")]
    measured, verdict = (json.loads(path.read_text()) if path.exists() else {} for path in kept)
    return Run(result, measured, verdict)


def site_packages_of_torch(machine: Machine) -> str:
    return machine.inside("sh", "-c", f"echo {SITE_PACKAGES_OF_TORCH}").stdout.strip()


@contextmanager
def stub_module(machine: Machine, source: Path, more: Mapping[str, str]) -> Iterator[str]:
    """Install a stub module that each Python process of the environment imports first. Yield the folder of the module.

    more: texts of additional files that have the module's name, by suffix.
    """
    folder, name = site_packages_of_torch(machine), source.stem
    files = {"py": source.read_text(), "pth": f"import {name}", **more}
    try:
        for ending, text in files.items():
            machine.inside("sh", "-c", 'printf %s "$1" >"$2"', "-", text, f"{folder}/{name}.{ending}")
        yield folder
    finally:
        machine.inside("find", folder, "-name", f"{name}.*", "-delete")  # also removes the compiled file
        assert machine.inside("find", folder, "-name", f"{name}*").stdout == ""
