"""Why a launch failed or hangs.

Puts together what is known of a launch, looks at its nodes once more where that can tell more, and says in five lines
what happened, where, why and on what evidence, what was ruled out, and what to type. A cause that is not proved is
not said as one. What nobody could look at is named, with what would tell more. Changes nothing on a node, ends
nothing there, and renews no lease. A diagnosis that says unknown is a diagnosis, and no failure of this module.
Contacts every node by the connection that the inventory gives it; use it with run_once.

diagnosis: As in diagnosis.json: word (confirmed, likely or unknown), lines for people, causes with their proofs,
    candidates, also_seen, what was ruled out (ruled_out), symptoms, and why nodes were not checked (not_looked).
artifacts: Folder on the controller with diagnosis.json and evidence.json.
said: Why there is nothing to diagnose.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from ansible.errors import AnsibleActionFail
from ansible.utils.display import Display

sys.path[:0] = [str(Path(__file__).parents[1] / room) for room in ("module_utils", "plugin_utils")]

from muster.diagnosis.decide import decide
from muster.diagnosis.foreign import Known, case_of_logs
from muster.diagnosis.site_rules import asked, open_questions
from muster.diagnosis.words import diagnosis, outcome
from muster.launch.plan import NodeSpec, PlanError
from muster.launch.unit import is_launch_id
from muster_controller.artifacts.keeping import Keeping
from muster_controller.artifacts.runs import history, read_json, run_folder
from muster_controller.diagnosis.afterwards import SECONDS
from muster_controller.diagnosis.diagnosing import keep
from muster_controller.diagnosis.foreign_logs import read_logs
from muster_controller.diagnosis.known_launch import KnownLaunch, kept_case, newest
from muster_controller.diagnosis.rule_files import site_rules
from muster_controller.diagnosis.running_elsewhere import PROGRAM as AGENTS
from muster_controller.diagnosis.running_elsewhere import RunningElsewhere
from muster_controller.diagnosis.site_questions import SiteQuestions
from muster_controller.launch.elsewhere import opened
from muster_controller.nodes.connection import connect
from muster_controller.playbook.action import NO_NODES, ControllerAction, Options
from muster_controller.playbook.interruption import Interruption
from muster_controller.playbook.terminal import typed
from muster_controller.playbook.variables import node_variables

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from muster.diagnosis.case import Case
    from muster.diagnosis.evidence import CaseShape
    from muster_controller.nodes.messages import Messages


MOST_VERBOSE = 2  # with more, Ansible's ssh shows what nodes answer as it comes, and that is logs


class ActionModule(ControllerAction):
    """Changes nothing on a node, and ends nothing there."""

    OPTIONS: ClassVar[Options] = {
        # Id of a running or finished launch, started from any controller.
        "launch": {"type": "str", "default": ""},
        # Logs on the controller that were not written by Muster: a file, a folder or a pattern, such as
        # slurm-*.out.
        "log": {"type": "str", "default": ""},
        # Account whose running torchrun, started without Muster, is diagnosed.
        "account": {"type": "str", "default": ""},
        # Diagnoses running launches only, not the last launch.
        "live": {"type": "bool", "default": False},
    }

    def work(self) -> dict[str, Any]:
        Display().verbosity = min(Display().verbosity, MOST_VERBOSE)
        self.silent: dict[str, str] = {}
        self.nodes = list(self.task_vars["groups"].get("gpu_nodes", []))
        if not self.nodes:
            raise AnsibleActionFail(NO_NODES)
        cluster = node_variables(self.task_vars, self._templar, self._loader, self.nodes[0])
        self.site = site_rules(self.task_vars, self._templar, self._loader, self.nodes[0])
        for problem in self.site.problems:
            Display().warning(f"The rules of the site are left out: {problem}")
        kept = Path(cluster["cluster_artifacts_dir"], cluster["cluster_name"])
        try:
            if self.options["log"]:
                known = [Known(name, spec.address) for name, spec in self.specs().items()]
                logs = read_logs(self.options["log"])
                for sentence in logs.left_out:
                    Display().warning(f"Left out of the logs: {sentence}.")
                return self.decided(case_of_logs(logs.texts, known), run_folder(kept))
            if self.options["launch"]:
                return self.known(self.options["launch"], kept, cluster)
            found = self.running(kept, cluster)
            if found is None and self.options["live"]:
                silent = "".join(f" {name} was not looked at: {why}." for name, why in self.silent.items())
                return self.nothing(f"No torchrun runs on any node that answers: there is nothing to diagnose.{silent}")
            return found or self.known(newest(kept), kept, cluster)
        except PlanError as exc:
            raise AnsibleActionFail(" ".join(exc.problems)) from exc

    def running(self, kept: Path, cluster: Mapping[str, Any]) -> dict[str, Any] | None:
        """What runs on the nodes now: a launch of Muster's, or one that somebody has typed; None for neither, or where
        somebody has to say which one is meant."""
        messages = opened({name: connect(self, name, self.task_vars) for name in self.nodes}, AGENTS)
        with (interruption := Interruption()):
            there = RunningElsewhere(messages, self.nodes)
            self.silent = there.silent
            here = [path.name for path in history(kept) if (path / "plan.json").is_file()]
            last = bool(here) and not self.options["live"]
            chosen = there.choice(here, accounts_of(cluster), self.options["account"], has_last=last)
            seen = None
            if chosen.user:
                case = there.case(chosen.user, self.specs(), lambda: interruption.came)
                seen = self.site_asked(case, messages, cluster, there.silent, lambda: interruption.came)
        messages.close()
        if chosen.ask:
            return self.nothing(typed(chosen.ask))
        if chosen.remark:
            Display().display(f"  {typed(chosen.remark)}")
        if seen is not None:
            Display().display(f"  What is diagnosed is a torchrun that {chosen.user} has begun without Muster")
            return self.decided(seen, run_folder(kept))
        return self.known(chosen.launch, kept, cluster) if chosen.launch else None

    def specs(self) -> dict[str, NodeSpec]:
        return {
            name: NodeSpec.read(name, node_variables(self.task_vars, self._templar, self._loader, name))
            for name in self.nodes
        }

    def known(self, launch_id: str, kept: Path, cluster: Mapping[str, Any]) -> dict[str, Any]:
        """A launch of Muster's, running or over. Raises PlanError."""
        if not launch_id:
            return self.nothing("No launch was begun from here, and none is named: give one with -e launch=ID")
        if not is_launch_id(launch_id):
            raise AnsibleActionFail(f"{launch_id!r} is no launch ID: one is such as 20261127-093142-1df3")
        folder = kept / launch_id
        verdict = read_json(folder / "verdict.json")
        kept_one = kept_case(folder)
        seen = kept_one.seen if kept_one else None
        if seen is None and verdict.get("status") in ("healthy", "degraded"):
            return self.nothing(f"Launch {launch_id} ended well ({verdict['summary']}): there is nothing to diagnose")
        if seen is None:
            messages = opened({name: connect(self, name, self.task_vars) for name in self.nodes})
            with (interruption := Interruption()):
                known = KnownLaunch(launch_id, folder, messages, self.nodes, cluster, lambda: interruption.came)
                seen = self.site_asked(known.case(), messages, cluster, known.silent, lambda: interruption.came)
            messages.close()
        return self.decided(seen, folder)

    def site_asked(
        self,
        case: Case,
        messages: Messages,
        cluster: Mapping[str, Any],
        silent: Mapping[str, str],
        give_up: Callable[[], bool],
    ) -> CaseShape:
        """What is known, with what the site's own commands say, where it allows them."""
        if not self.site.commands or not self.site.rules.commands:
            return case.seen
        case = self.site.rules.of(case.seen)
        questions = asked(self.site.rules, case, open_questions(self.site.rules, case))
        under_way = SiteQuestions(messages, self.nodes, cluster["cluster_user"], silent)
        under_way.ask(questions)
        return under_way.gather(time.monotonic() + SECONDS, give_up).joined_to(case.seen)

    def nothing(self, sentence: str) -> dict[str, Any]:
        Display().display(f"  {sentence}")
        return {"said": sentence, "outcome": sentence.rstrip(".")}

    def decided(self, seen: CaseShape, folder: Path) -> dict[str, Any]:
        case = self.site.rules.of(seen)
        said = diagnosis(case, decide(case, self.site.rules.all_causes))
        for line in said["lines"]:
            Display().display(f"  {typed(line)}")
        if folder.is_dir():
            keep(folder, case.seen, said, Keeping(Display().warning))
        return {"diagnosis": said, "artifacts": str(folder), "outcome": outcome(said)}


def accounts_of(cluster: Mapping[str, Any]) -> list[str]:
    """Of those who launch here."""
    people = cluster.get("launch_users") or []
    return [str(cluster["cluster_user"]), *(str(one["name"] if isinstance(one, dict) else one) for one in people)]
