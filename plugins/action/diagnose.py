"""Why a launch failed or hangs; documented in library/diagnose.py."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ansible.errors import AnsibleActionFail
from ansible.utils.display import Display

sys.path[:0] = [str(Path(__file__).parents[1] / room) for room in ("module_utils", "plugin_utils")]

from muster.diagnosis.case import Case
from muster.diagnosis.causes import CAUSES
from muster.diagnosis.decide import decide
from muster.diagnosis.foreign import Known, case_of_logs
from muster.diagnosis.words import diagnosis
from muster.launch.plan import NodeSpec, PlanError
from muster_controller.action import ControllerAction
from muster_controller.connection import connect
from muster_controller.diagnosing import keep
from muster_controller.elsewhere import opened
from muster_controller.foreign_logs import texts_of
from muster_controller.interruption import Interruption
from muster_controller.keeping import Keeping
from muster_controller.known_launch import KnownLaunch, kept_case, newest
from muster_controller.running_elsewhere import PROGRAM as AGENTS
from muster_controller.running_elsewhere import RunningElsewhere
from muster_controller.runs import read_json, run_folder
from muster_controller.terminal import typed
from muster_controller.variables import node_variables

if TYPE_CHECKING:
    from collections.abc import Mapping


MOST_VERBOSE = 2  # with more, Ansible's ssh shows what nodes answer as it comes, and that is logs


class ActionModule(ControllerAction):
    """Changes nothing on a node, and ends nothing there."""

    def work(self) -> dict[str, Any]:
        Display().verbosity = min(Display().verbosity, MOST_VERBOSE)
        self.nodes = list(self.task_vars["groups"].get("gpu_nodes", []))
        if not self.nodes:
            raise AnsibleActionFail("The inventory has no gpu_nodes.")
        cluster = node_variables(self.task_vars, self._templar, self._loader, self.nodes[0])
        kept = Path(cluster["cluster_artifacts_dir"], cluster["cluster_name"])
        try:
            if self.options["log"]:
                known = [Known(name, spec.address) for name, spec in self.specs().items()]
                return self.decided(Case(case_of_logs(texts_of(self.options["log"]), known)), run_folder(kept))
            if self.options["launch"]:
                return self.known(self.options["launch"], kept, cluster)
            found = self.running(kept, cluster)
            if found is None and self.options["live"]:
                return self.nothing("No torchrun runs on any node that answers: there is nothing to diagnose")
            return found or self.known(newest(kept), kept, cluster)
        except PlanError as exc:
            raise AnsibleActionFail(" ".join(exc.problems)) from exc

    def running(self, kept: Path, cluster: Mapping[str, Any]) -> dict[str, Any] | None:
        """What runs on the nodes now: a launch of Muster's, or one that somebody has typed; None for neither."""
        messages = opened({name: connect(self, name, self.task_vars) for name in self.nodes}, AGENTS)
        with (interruption := Interruption()):
            there = RunningElsewhere(messages, self.nodes)
            case = there.case(self.specs(), lambda: interruption.came)
        messages.close()
        if case is not None:
            return self.decided(case, run_folder(kept))
        launches = there.musters()
        return self.known(launches[0], kept, cluster) if launches else None

    def specs(self) -> dict[str, NodeSpec]:
        return {
            name: NodeSpec.read(name, node_variables(self.task_vars, self._templar, self._loader, name))
            for name in self.nodes
        }

    def known(self, launch_id: str, kept: Path, cluster: Mapping[str, Any]) -> dict[str, Any]:
        """A launch of Muster's, running or over. Raises PlanError."""
        if not launch_id:
            return self.nothing("No launch was begun from here, and none is named: give one with -e launch=ID")
        folder = kept / launch_id
        verdict = read_json(folder / "verdict.json")
        case = kept_case(folder)
        if case is None and verdict.get("status") in ("healthy", "degraded"):
            return self.nothing(f"Launch {launch_id} ended well ({verdict['summary']}): there is nothing to diagnose")
        if case is None:
            messages = opened({name: connect(self, name, self.task_vars) for name in self.nodes})
            with (interruption := Interruption()):
                case = KnownLaunch(launch_id, folder, messages, self.nodes, cluster, lambda: interruption.came).case()
            messages.close()
        return self.decided(case, folder)

    def nothing(self, sentence: str) -> dict[str, Any]:
        Display().display(f"  {sentence}")
        return {"said": sentence}

    def decided(self, case: Case, folder: Path) -> dict[str, Any]:
        said = diagnosis(case, decide(case, CAUSES))
        for line in said["lines"]:
            Display().display(f"  {typed(line)}")
        if folder.is_dir():
            keep(folder, case.seen, said, Keeping(Display().warning))
        return {"diagnosis": said, "artifacts": str(folder)}
