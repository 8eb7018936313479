"""Evaluates a smoke launch on the controller.

Compares the reports of all ranks with the plan of the launch: world size and layout of the ranks, an exact integer
all-reduce, parameters bitwise equal on all ranks, a falling loss, and nodes that are separate machines. A rank without
a report is a failure. Compares the measurements with the accepted state of the cluster: acceptance.json in the
cluster's folder, created by the first healthy run. Writes smoke.json and verdict.json into the folder of the launch.
Contacts no node.

verdict: The verdict on the launch and its measurements: status, summary, findings, coverage.
smoke: The measurements, as in smoke.json.
"""

from __future__ import annotations

import datetime as dt
import json
import math
import runpy
from pathlib import Path
from typing import Any, ClassVar

import yaml

from muster.acceptance import baseline, judge, reports
from muster.launch.planned import LaunchPlan
from muster.report.run_verdict import ended_with
from muster_controller.artifacts.runs import add_verdict, read_json, write_json
from muster_controller.playbook.action import ControllerAction, Options

ACCEPTED = "acceptance.json"  # in the cluster's folder, because it belongs to no run


def stage_names(payload: Path, mode: str, stages: list[str]) -> tuple[str, ...]:
    """Return the stages that the payload was requested to run, as listed in the payload's own table."""
    table = runpy.run_path(str(payload / "payload" / "stages.py"))
    return tuple(stage.name for stage in table["chosen"](mode, ",".join(stages)))


def rail_rates(cluster: Path) -> tuple[float, ...]:
    """Return the rates in Gbit/s that the last test of the RDMA adapters measured. Empty if there was no test."""
    kept = [folder / "rails.json" for folder in cluster.iterdir() if not folder.is_symlink()]
    found = sorted((path for path in kept if path.is_file()), key=lambda path: path.parent.name)
    if not found:
        return ()
    rates = [reports.number(rail.get("gbps")) for rail in json.loads(found[-1].read_text(encoding="utf-8"))["rails"]]
    return tuple(rate for rate in rates if rate is not None and math.isfinite(rate) and rate > 0)


class ActionModule(ControllerAction):
    ROLE = "ddp_smoke"
    OPTIONS: ClassVar[Options] = {
        # Registered result of torchrun_launch.
        "launch": {"type": "dict", "required": True},
        # Folder of the payload on the controller, which contains the table of stages.
        "payload": {"type": "path", "required": True},
    }

    def work(self) -> dict[str, Any]:
        launch = self.options["launch"]
        if "verdict" not in launch:
            return {"skipped": True, "msg": "No program was launched."}
        plan, events, mode = LaunchPlan.read(launch["plan"]), launch["events"], self.options["mode"]
        folder, payload = Path(launch["artifacts"]), Path(self.options["payload"])
        bounds = reports.Bounds(
            loss_ratio=self.options["loss_ratio"],
            busbw_floor=self.options["busbw_floor"],
            scaling_floor=self.options["scaling_floor"],
            rails=rail_rates(folder.parent),
            gpu_rates=yaml.safe_load((payload.parent / "gpu_rates.yml").read_text(encoding="utf-8")),
        )
        wanted = stage_names(payload, mode, self.options["stages"])
        seen = reports.read(plan, events, mode, wanted, bounds)
        book = folder.parent / ACCEPTED
        verdict, measured, accepted = judge.concluded(seen, launch["verdict"], events, self.past(book, folder))
        write_json(folder / "smoke.json", measured)
        if accepted is not None:
            write_json(book, accepted)
        whole = add_verdict(folder, verdict, instead_of=("launch.", "smoke."))
        verdict = ended_with(verdict, whole)
        result: dict[str, Any] = {"verdict": verdict, "smoke": measured, "artifacts": str(folder)}
        if verdict["status"] not in ("healthy", "degraded"):
            proofs = [proof for finding in launch["verdict"]["findings"] for proof in finding.get("evidence", [])]
            shown = [f"\n{proof['source']}:\n{proof['text']}" for proof in proofs]
            result.update(failed=True, msg="\n".join([verdict["summary"], *shown]))
        return result

    def past(self, book: Path, folder: Path) -> baseline.AcceptanceHistory:
        return baseline.AcceptanceHistory(
            read_json(book),
            run=folder.name,
            date=dt.datetime.now().astimezone().isoformat(timespec="seconds"),
            accept=self.options["accept"],
            severity=self.options["regression"],
            looks={path.stem: read_json(path) for path in sorted((folder / "health").glob("*.json"))},
        )
