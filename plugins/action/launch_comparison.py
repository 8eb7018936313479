"""Compares launches of the same training on the controller.

Reads the report that rank 0 of each launch printed as its last output: a line @muster with a JSON object whose event is
summary, with samples_per_second and global_batch, and optionally seconds, accuracy, loss and memory_mb. Shows the
reports as a table with speed-up and efficiency, and writes comparison.json into the folder of the run. Fails if the
launches cannot be compared because a report is missing or the global batches differ. Contacts no node.

msg: The table.
comparison: The measurements, as in comparison.json.
verdict: The verdict of the launch on all nodes, with the comparison as its summary.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from muster.acceptance import comparison
from muster.launch.planned import LaunchPlan
from muster_controller.artifacts.runs import add_verdict, open_run, write_json
from muster_controller.playbook.action import ControllerAction, Options

if TYPE_CHECKING:
    from collections.abc import Mapping

TITLES = {"one_process": "one process", "one_node": "one node"}


class ActionModule(ControllerAction):
    OPTIONS: ClassVar[Options] = {
        # Registered result of torchrun_launch on all nodes.
        "all_nodes": {"type": "dict", "required": True},
        # Registered result on the first node with all of its ranks, if launched.
        "one_node": {"type": "dict", "default": {}},
        # Registered result of a single process on the first node, if launched.
        "one_process": {"type": "dict", "default": {}},
    }

    def work(self) -> dict[str, Any]:
        whole = self.options["all_nodes"]
        if "verdict" not in whole:
            return {"skipped": True, "msg": "No program was launched."}
        smaller = {name: self.options[name] for name in TITLES}
        launches = [launch_of(launch) for launch in smaller.values() if "verdict" in launch] + [launch_of(whole)]
        why = f"same as the launch on {'all nodes' if whole['plan']['world_size'] == 1 else 'the first node'}"
        skipped = [{"name": TITLES[name], "why": why} for name, launch in smaller.items() if "verdict" not in launch]
        measured = comparison.compare(launches, skipped)
        folder = Path(whole["artifacts"])
        write_json(folder / "comparison.json", measured)
        open_run(folder)  # the folders of the other launches are not the folder of the run
        result: dict[str, Any] = {"comparison": measured, "artifacts": str(folder), "msg": comparison.table(measured)}
        if measured["wrong"]:
            said = comparison.sentence(measured)
            return {**result, "failed": True, "msg": f"{result['msg']}\n{said[0].upper()}{said[1:]}"}
        said_of_it = {**whole["verdict"], "summary": comparison.sentence(measured)}
        return {**result, "verdict": add_verdict(folder, said_of_it, instead_of=("launch.",))}


def launch_of(launch: Mapping[str, Any]) -> comparison.ComparedLaunch:
    return comparison.ComparedLaunch(LaunchPlan.read(launch["plan"]), launch["events"])
