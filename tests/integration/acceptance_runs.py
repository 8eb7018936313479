"""The acceptance test, run on nodes of the sandbox, and faults that are put into its ranks from beside torch."""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from paths import ARTIFACTS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from machines import Machine, Play, Result

BESIDE_TORCH = "/opt/muster/pytorch/current/lib/python3*/site-packages"


class Run(NamedTuple):
    """result: of Ansible. measured, verdict: smoke.json and verdict.json; empty where there is none."""

    result: Result
    measured: dict[str, Any]
    verdict: dict[str, Any]

    @property
    def found(self) -> list[str]:
        """What the acceptance test has against the cluster."""
        return [
            f"{one['id']} {one['status']} {one['node']}: {one['summary']}"
            for one in self.verdict["findings"]
            if one["id"].startswith("smoke.") and one["status"] not in ("pass", "skipped")
        ]


def run_acceptance(play: Play, folder: Path, stages: str = "", **options: Any) -> Run:
    """Run these stages, or all, on two nodes with two ranks each unless options say otherwise. folder: of artifacts."""
    given: dict[str, Any] = {
        "cluster_artifacts_dir": str(folder),
        "cluster_launch_nodes": ["node1", "node2"],
        "cluster_nproc_per_node": 2,
        "ddp_smoke_stall_timeout": 300,  # a busy machine takes a minute to import torch four times
    }
    if stages:
        given["ddp_smoke_stages"] = stages.split(",")
    result = play("playbooks/ddp_smoke.yml", extravars={**given, **options})
    latest = (folder / ARTIFACTS.name / "latest").resolve()
    kept = [latest / name for name in ("smoke.json", "verdict.json")]
    measured, verdict = (json.loads(path.read_text()) if path.exists() else {} for path in kept)
    return Run(result, measured, verdict)


def beside_torch(machine: Machine) -> str:
    return machine.inside("sh", "-c", f"echo {BESIDE_TORCH}").stdout.strip()


@contextmanager
def stand_in(machine: Machine, source: Path, more: Mapping[str, str]) -> Iterator[str]:
    """Every Python of the environment imports this stand-in first. more: further files of its name, by their ending.

    Yield the folder that it lies in.
    """
    folder, name = beside_torch(machine), source.stem
    files = {"py": source.read_text(), "pth": f"import {name}", **more}
    try:
        for ending, text in files.items():
            machine.inside("sh", "-c", 'printf %s "$1" >"$2"', "-", text, f"{folder}/{name}.{ending}")
        yield folder
    finally:
        machine.inside("find", folder, "-name", f"{name}.*", "-delete")  # what Python compiled, too
        assert machine.inside("find", folder, "-name", f"{name}*").stdout == ""
