"""Compare launches of the same training on the controller; documented in library/launch_comparison.py."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path[:0] = [str(Path(__file__).parents[1] / room) for room in ("module_utils", "plugin_utils")]

from muster.acceptance import comparison
from muster_controller.artifacts.json_file import write_json
from muster_controller.artifacts.runs import add_verdict, open_run
from muster_controller.playbook.action import ControllerAction

if TYPE_CHECKING:
    from collections.abc import Mapping

TITLES = {"one_process": "one process", "one_node": "one node"}


class ActionModule(ControllerAction):
    """Contacts no node."""

    def work(self) -> dict[str, Any]:
        whole = self.options["all_nodes"]
        if "verdict" not in whole:
            return {"skipped": True, "msg": "Nothing was launched."}
        smaller = {name: self.options[name] for name in TITLES}
        launches = [launch_of(launch) for launch in smaller.values() if "verdict" in launch] + [launch_of(whole)]
        why = f"that is the launch on {'all nodes' if whole['plan']['world_size'] == 1 else 'the first node'} already"
        skipped = [{"name": TITLES[name], "why": why} for name, launch in smaller.items() if "verdict" not in launch]
        measured = comparison.compare(launches, skipped)
        folder = Path(whole["artifacts"])
        write_json(folder / "comparison.json", measured)
        open_run(folder)  # that of the later launches is not the run's
        result: dict[str, Any] = {"comparison": measured, "artifacts": str(folder), "msg": comparison.table(measured)}
        if measured["wrong"]:
            said = comparison.sentence(measured)
            return {**result, "failed": True, "msg": f"{result['msg']}\n{said[0].upper()}{said[1:]}"}
        said_of_it = {**whole["verdict"], "summary": comparison.sentence(measured)}
        return {**result, "verdict": add_verdict(folder, said_of_it, instead_of=("launch.",))}


def launch_of(launch: Mapping[str, Any]) -> comparison.Launch:
    return comparison.Launch(launch["plan"], launch["events"])
