"""Explains why a launch failed or hangs.

Collects the recorded facts of a launch, and inspects its nodes again if an inspection can add information. Reports in
five lines what happened, where, the cause with its evidence, what was ruled out, and how to fix it. A cause is only
named if it is confirmed. Items that could not be checked are listed, each with the source that would provide the
information. Changes nothing on a node, ends no process and renews no lease. The diagnosis unknown is a valid result and
does not fail the task. Contacts every node with the connection settings of the inventory; use it with run_once.

diagnosis: As in diagnosis.json: word (confirmed, likely or unknown), lines for the screen, causes with evidence,
    candidates, also_seen, ruled out causes (ruled_out), symptoms, and for each node that was not checked, the reason
    (not_looked).
artifacts: Folder on the controller with diagnosis.json and evidence.json.
said: Why there is no launch to diagnose, if so.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from ansible.errors import AnsibleActionFail
from ansible.utils.display import Display

from muster.diagnosis.decide import decide
from muster.diagnosis.foreign import case_of_logs
from muster.diagnosis.log_sources import Known
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

    from muster.diagnosis.case import LaunchCase
    from muster.diagnosis.evidence import CaseShape
    from muster_controller.nodes.messages import Messages


MOST_VERBOSE = 2  # at higher levels, Ansible's ssh prints the nodes' raw responses, which are logs


class ActionModule(ControllerAction):
    ROLE = "diagnose"
    OPTIONS: ClassVar[Options] = {}

    def work(self) -> dict[str, Any]:
        Display().verbosity = min(Display().verbosity, MOST_VERBOSE)
        self.silent: dict[str, str] = {}
        self.nodes = list(self.task_vars["groups"].get("gpu_nodes", []))
        if not self.nodes:
            raise AnsibleActionFail(NO_NODES)
        cluster = node_variables(self.task_vars, self._templar, self._loader, self.nodes[0])
        self.site = site_rules(self.task_vars, self._templar, self._loader, self.nodes[0])
        for problem in self.site.problems:
            Display().warning(f"The site's diagnosis rules are ignored: {problem}")
        kept = Path(cluster["cluster_artifacts_dir"], cluster["cluster_name"])
        try:
            if self.options["log"]:
                known = [Known(name, spec.address) for name, spec in self.specs().items()]
                logs = read_logs(self.options["log"])
                for sentence in logs.left_out:
                    Display().warning(f"Not read from the logs: {sentence}.")
                return self.decided(case_of_logs(logs.texts, known), run_folder(kept))
            if self.options["launch"]:
                return self.known(self.options["launch"], kept, cluster)
            found = self.running(kept, cluster)
            if found is None and self.options["live"]:
                silent = "".join(f" {name} was not checked: {why}." for name, why in self.silent.items())
                return self.nothing(f"Nothing to diagnose: no torchrun is running on the nodes that responded.{silent}")
            return found or self.known(newest(kept), kept, cluster)
        except PlanError as exc:
            raise AnsibleActionFail(" ".join(exc.problems)) from exc

    def running(self, kept: Path, cluster: Mapping[str, Any]) -> dict[str, Any] | None:
        """Diagnose a running launch: a launch of Muster, or a torchrun that a user started directly.

        Return None if no launch is running, or if the user must choose between several.
        """
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
            Display().display(f"  Diagnosing a torchrun that {chosen.user} started without Muster")
            return self.decided(seen, run_folder(kept))
        return self.known(chosen.launch, kept, cluster) if chosen.launch else None

    def specs(self) -> dict[str, NodeSpec]:
        return {
            name: NodeSpec.read(name, node_variables(self.task_vars, self._templar, self._loader, name))
            for name in self.nodes
        }

    def known(self, launch_id: str, kept: Path, cluster: Mapping[str, Any]) -> dict[str, Any]:
        """Diagnose a running or finished launch of Muster. Raises PlanError."""
        if not launch_id:
            return self.nothing("No launch was started from this controller: set a launch ID with -e launch=ID")
        if not is_launch_id(launch_id):
            raise AnsibleActionFail(f"{launch_id!r} is not a launch ID (example: 20261127-093142-1df3)")
        folder = kept / launch_id
        verdict = read_json(folder / "verdict.json")
        kept_one = kept_case(folder)
        seen = kept_one.seen if kept_one else None
        if seen is None and verdict.get("status") in ("healthy", "degraded"):
            return self.nothing(f"Nothing to diagnose: launch {launch_id} succeeded ({verdict['summary']})")
        if seen is None:
            messages = opened({name: connect(self, name, self.task_vars) for name in self.nodes})
            with (interruption := Interruption()):
                known = KnownLaunch(launch_id, folder, messages, self.nodes, cluster, lambda: interruption.came)
                seen = self.site_asked(known.case(), messages, cluster, known.silent, lambda: interruption.came)
            messages.close()
        return self.decided(seen, folder)

    def site_asked(
        self,
        case: LaunchCase,
        messages: Messages,
        cluster: Mapping[str, Any],
        silent: Mapping[str, str],
        give_up: Callable[[], bool],
    ) -> CaseShape:
        """Return the case, with the output of commands in the site's rules if the site allows commands."""
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
    """Return the names of the accounts that run launches on this cluster."""
    people = cluster.get("launch_users") or []
    return [str(cluster["cluster_user"]), *(str(one["name"] if isinstance(one, dict) else one) for one in people)]
