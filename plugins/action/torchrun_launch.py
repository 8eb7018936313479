"""Controller side of a launch; documented in library/torchrun_launch.py."""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from ansible.errors import AnsibleActionFail
from ansible.utils.display import Display

from muster.diagnosis.findings import CHECKS
from muster.launch import attempts, launchers, outcome
from muster.launch.endings import Ending
from muster.launch.manager import CLUSTER_USER, SELF, as_own
from muster.launch.options import LaunchCluster, LaunchOptions
from muster.launch.plan import LaunchRequest, NodeSpec, PlanError, build_plan, masked
from muster.launch.text import NAME, describe, failure_text, headline, not_asked_yet, planned_outcome
from muster.launch.watched import gone
from muster.pytorch.environments import only_own
from muster.verdict.commands import Terminal
from muster_controller.artifacts.keeping import Keeping
from muster_controller.artifacts.private_files import point_latest
from muster_controller.artifacts.runs import keep_verdict, kept_plan, open_run, write_json
from muster_controller.detached.watched_launch import WatchedLaunch, runs_detached
from muster_controller.diagnosis.diagnosing import Diagnosing, failed
from muster_controller.diagnosis.rule_files import site_rules
from muster_controller.launch.attempts import Attempts
from muster_controller.launch.elsewhere import find, opened
from muster_controller.launch.exporting import export
from muster_controller.launch.given import read_given
from muster_controller.launch.image import read_image
from muster_controller.launch.launch_options import cluster_folder, request_of, settings_of
from muster_controller.launch.logs import ANY_SIZE, LogBook
from muster_controller.launch.project import read_project
from muster_controller.launch.supervisor import Supervisor
from muster_controller.nodes.connection import connect
from muster_controller.playbook.action import NO_NODES, ControllerAction
from muster_controller.playbook.progress import Progress
from muster_controller.playbook.terminal import typed
from muster_controller.playbook.variables import node_variables, plain
from muster_controller.report.reporter import REPORTER

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from muster.launch.outcome import LaunchRecord
    from muster.launch.planned import LaunchPlan
    from muster.verdict.finding import Verdict
    from muster.verdict.redaction import Redaction
    from muster_controller.detached.watched_launch import WatchedOutcome
    from muster_controller.launch.given import Given
    from muster_controller.launch.image import Image
    from muster_controller.launch.project import Project
    from muster_controller.launch.settings import Settings
    from muster_controller.nodes.connection import NodeConnection

DIAGNOSED = {check.id for check in CHECKS}  # findings that the lines of a diagnosis already contain
# Highest verbosity used here. At higher levels, Ansible's ssh prints the nodes' raw responses, which are logs.
MOST_VERBOSE = 2
ATTEMPTS = "attempts.json"  # next to the plan of the first attempt; the outcome of each attempt


class ActionModule(ControllerAction):
    """asked: the task options. own_plan: builds the plan as a user launch; set once the request has been read. as_root:
    whether root manages a user launch. project: the project files to copy. image: the container image. last: the newest
    attempt of a launch with several attempts."""

    ROLE = "launch"
    asked: LaunchOptions
    cluster: LaunchCluster
    redaction: Redaction
    own_plan: Callable[[str], LaunchPlan] | None = None
    as_root = False
    project: Project | None = None
    image: Image | None = None
    last: tuple[Supervisor, LaunchRecord] | None = None

    def work(self) -> dict[str, Any]:
        # Only affects this process, which Ansible forked for this task.
        Display().verbosity = min(Display().verbosity, MOST_VERBOSE)
        self.asked = LaunchOptions(**plain(self.options)).with_local_script()
        try:
            given, warnings = read_given(self.asked)
            self.redaction = given.redaction
            plan = self.plan(given)
        except PlanError as exc:
            raise AnsibleActionFail("Launch rejected. " + " ".join(exc.problems)) from None
        brought = launchers.warnings_of(self.asked.command, len(plan.nodes))
        left_out = self.project.warnings if self.project else ()
        self.site = site_rules(self.task_vars, self._templar, self._loader, plan.head.node)
        brought += [f"The site's diagnosis rules are ignored: {one}" for one in self.site.problems]
        for warning in (*warnings, *given.warnings(plan), *brought, *left_out):
            Display().warning(warning)
        if self._task.check_mode:
            if self.asked.run_as == SELF and self.own_plan:
                plan = self.own_plan(NAME)
            if self.asked.export_to:
                return export(self.asked, self.request, self.inventory)
            shown = masked(plan, self.redaction)
            Display().display(describe(shown) + not_asked_yet(self.asked.run_as, self.cluster.users_root))
            return {"plan": shown.as_json(), "outcome": planned_outcome(shown, only=not REPORTER.contacts_nodes)}
        return self.launch(plan)

    def plan(self, given: Given) -> LaunchPlan:
        """Return the plan. Cluster-wide variables are read from the head node. Raises PlanError."""
        names = list(self.task_vars["groups"].get("gpu_nodes", []))
        if not names:
            raise PlanError([NO_NODES])
        asked = self.asked
        variables = {name: node_variables(self.task_vars, self._templar, self._loader, name) for name in names}
        self.cluster = LaunchCluster.read(variables[names[0]])
        if asked.detached and asked.time_limit <= 0:
            raise PlanError(["A detached launch needs a time limit in seconds: set launch_time_limit."])
        if asked.known:
            return self.known_plan(asked.known, names, variables[names[0]])
        if asked.environment in self.cluster.own_environments:
            # Nobody else may run the user's code.
            if asked.run_as == CLUSTER_USER:
                raise PlanError([f"{only_own(asked.environment)}: set launch_as to self."])
            self.asked = asked = replace(asked, run_as=SELF)
        self.inventory = [NodeSpec.read(name, own, asked.environment) for name, own in variables.items()]
        if asked.project:
            self.project = read_project(asked.project, asked.project_max_mb)
        self.image = read_image(asked)
        self.request = request_of(given, asked, self.cluster, self.project, self.image)
        plan = self.planned(self.request, self.inventory)
        usable = [node.name for node in self.inventory if not node.quarantined]
        taking_part = plan.names
        unwatched = asked.detached and asked.run_as == CLUSTER_USER
        if problems := attempts.problems(asked, taking_part, usable, unwatched=unwatched):
            raise PlanError(problems)
        return plan

    def planned(self, request: LaunchRequest, inventory: Sequence[NodeSpec]) -> LaunchPlan:
        """Return the plan, and set own_plan for a user launch. Raises PlanError."""
        nodes = list(inventory)
        self.own_plan = lambda user: build_plan(as_own(request, user), nodes)
        return build_plan(request, nodes)

    def known_plan(self, name: str, nodes: list[str], cluster: Mapping[str, Any]) -> LaunchPlan:
        """Return the plan of a launch from this controller's artifacts or, failing that, from its nodes. Raises
        PlanError."""
        folder = cluster_folder(self.cluster)
        if (folder / name / "plan.json").is_file() or self._task.check_mode:
            return plan_begun_here(folder, name, nodes)
        messages = opened({node: self.connected(node) for node in nodes})
        found = find(messages, nodes, name, cluster)
        self.as_root = found.as_root
        return found.plan

    def launch(self, plan: LaunchPlan) -> dict[str, Any]:
        """Run one attempt, or the configured number of attempts."""
        asked = self.asked
        if (asked.known and plan.watched) or (not asked.known and asked.restarts and asked.detached):
            return self.watched(plan)
        if asked.known or not (asked.restarts or asked.checkpoints):
            return self.attempt(plan, asked)[0]

        def one(plan: LaunchPlan, earlier: tuple[str, ...], left: int) -> tuple[dict[str, Any], LaunchRecord]:
            return self.attempt(plan, replace(asked, time_limit=left), earlier, whole)

        whole = Attempts(
            self.request,
            self.inventory,
            build=self.planned,
            run=one,
            connect=self.connected,
            say=lambda text: Display().display(f"  {self.redaction.text(text)}"),
        )
        result = whole.see_through(plan)
        folder = cluster_folder(self.cluster) / plan.launch_id
        keeping = Keeping(whole.say)
        if self.last:
            supervisor, record = self.last
            record.fetched = supervisor.fetch(record, folder, keeping)
            supervisor.messages.close()
            result["verdict"] = self.redaction.shape(outcome.with_fetched(result["verdict"], record))
        if whole.went_on or result["verdict"]["status"] != "healthy":
            self.keep_whole(folder, result["verdict"], result["attempts"], keeping)
            result["artifacts"] = str(folder)
        if result["failed"]:
            result["msg"] = failure_text(result["verdict"], lines_of(result), DIAGNOSED)
        return result

    def keep_whole(
        self, folder: Path, verdict: Verdict, history: Sequence[Mapping[str, Any]], keeping: Keeping
    ) -> None:
        """Write the result of all attempts into the folder of the first attempt."""
        keep_verdict(folder, verdict, keeping)
        path = folder / ATTEMPTS
        if history:
            keeping.surely(path, lambda: write_json(path, {"schema": 1, "attempts": list(history)}))
        keeping.surely(folder, lambda: point_latest(folder))

    def attempt(
        self,
        plan: LaunchPlan,
        options: LaunchOptions,
        earlier: tuple[str, ...] = (),
        whole: Attempts | None = None,
    ) -> tuple[dict[str, Any], LaunchRecord]:
        """Run one attempt. earlier: the ids of earlier attempts. whole: the launch to which this attempt belongs. If
        set, files are fetched after the last attempt."""
        folder = cluster_folder(self.cluster) / plan.launch_id
        progress = self.progress()
        keeping = Keeping(progress.say)
        keeping.surely(folder, lambda: open_run(folder))
        settings = replace(settings_of(options, self.cluster, self.project, self.image), earlier=earlier)
        logs = LogBook(folder, plan, progress.on_line, self.redaction, keeping, settings.options.log_max or ANY_SIZE)
        lost = logs.keep_plan(plan)
        if lost and options.detached and not options.attach and not options.stop:
            raise AnsibleActionFail(
                f"Launch rejected. A detached launch needs its plan, which cannot be written to {folder}: {lost}"
            )
        epoch = time.time() - time.monotonic()
        progress.say(headline(plan))
        connections = {name: self.connected(name) for name in plan.names}
        supervisor = Supervisor(
            plan,
            connections,
            settings,
            logs,
            lambda text: progress.say(typed(self.redaction.text(text))),
            self.own_plan,
            whole.interruption if whole else None,
        )
        supervisor.messages.as_root = self.as_root
        if options.stop:
            record = supervisor.end()
        elif options.attach:
            record = supervisor.attach()
        else:
            record = supervisor.launch()
        if self.last:
            self.last[0].messages.close()
        self.last = (supervisor, record) if whole else None
        fetches = not whole and not logs.others  # one supervisor does
        if fetches and not failed(record):
            record.fetched = supervisor.fetch(record, folder, keeping)
        verdict = self.redaction.shape(outcome.judge(record, str(folder / "logs")))
        diagnosed = None
        if options.diagnose and failed(record):
            diagnosing = Diagnosing(supervisor, self.redaction, progress.say, self.site)
            diagnosed = diagnosing.diagnose(record, verdict, folder, None if logs.others else keeping)
        verdict = diagnosed.verdict if diagnosed else verdict
        if fetches and failed(record):  # after the diagnosis, because fetching may take minutes
            record.fetched = supervisor.fetch(record, folder, keeping)
            verdict = self.redaction.shape(outcome.with_fetched(verdict, record))
        if supervisor.messages.own and not supervisor.messages.by_root:
            verdict = Terminal(is_somebodys=True).shapes(verdict)
        logs.close()
        if not logs.others:  # otherwise the process that keeps the logs writes a more complete verdict
            keep_verdict(folder, verdict, keeping)
        progress.finish()
        if not whole:
            supervisor.messages.close()
        result = {
            "changed": False,
            "failed": verdict["status"] not in ("healthy", "degraded") and not as_requested(record, options),
            "verdict": verdict,
            "plan": masked(record.plan, self.redaction).as_json(),
            "events": logs.events.kept,
            "artifacts": str(folder),
            "timing": record.timing(epoch),
            **({"diagnosis": diagnosed.said} if diagnosed else {}),
        }
        if result["failed"]:
            result["msg"] = failure_text(verdict, lines_of(result), DIAGNOSED)
        return result, record

    # ------------------------------------------------------------ with a watcher on the head node

    def watched(self, plan: LaunchPlan) -> dict[str, Any]:
        """Start, attach to, or stop a detached launch with restarts."""
        launches = cluster_folder(self.cluster)
        folder = launches / (plan.watched["launch_id"] if plan.watched else plan.launch_id)
        progress = self.progress()
        keeping = Keeping(progress.say)
        keeping.surely(folder, lambda: open_run(folder))

        def say(text: str) -> None:
            progress.say(typed(self.redaction.text(text)))

        def quote(text: str) -> None:
            progress.say(self.redaction.text(text))

        def keep(plan: LaunchPlan) -> str:
            path = folder / "plan.json"
            return keeping.surely(path, lambda: write_json(path, masked(plan, self.redaction).as_json()))

        progress.say(headline(plan))
        settings = settings_of(self.asked, self.cluster, self.project, self.image)
        names = list(self.task_vars["groups"]["gpu_nodes"])
        launch = WatchedLaunch(launches, self.connected, say, quote, settings, names)
        if self.asked.stop or self.asked.attach:
            came = launch.stop(plan) if self.asked.stop else launch.attach(plan)
        else:
            came = launch.begin(self.request, self.inventory, plan, self.redaction, keep)
        verdict = came.verdict
        if came.running:
            verdict = runs_detached(came.plan)
        elif verdict is None:
            say(f"{plan.watched['node'] if plan.watched else 'the head node'}: {came.why}")
            verdict = self.without_watcher(came, launch)
        elif came.began:
            verdict = self.brought_home(came, verdict, folder, settings, keeping)
        verdict = self.redaction.shape(verdict)
        self.keep_whole(folder, verdict, came.attempts, keeping)
        progress.finish()
        well = verdict["status"] in ("healthy", "degraded") or came.running or (self.asked.stop and not came.left)
        result = {
            "changed": False,
            "failed": not well,
            "verdict": verdict,
            "plan": masked(came.plan, self.redaction).as_json(),
            "artifacts": str(folder),
            "attempts": came.attempts,
        }
        return result if well else {**result, "msg": failure_text(verdict)}

    def without_watcher(self, came: WatchedOutcome, launch: WatchedLaunch) -> Verdict:
        """If the watcher is gone, no further attempt can start. Stop the newest attempt, or determine its outcome."""
        if not self.asked.stop:
            launch.wait_for_leases(came.plan)
        asked = self.asked
        how = asked if asked.stop else replace(asked, attach=came.plan.launch_id)
        result, record = self.attempt(came.plan, how)
        came.left = bool(record.leftovers or record.unseen)
        verdict: Verdict = result["verdict"]
        return verdict if self.asked.stop else gone(verdict, came.plan.head.node, came.why)

    def brought_home(
        self, came: WatchedOutcome, verdict: Verdict, folder: Path, settings: Settings, keeping: Keeping
    ) -> Verdict:
        """Copy the logs of all attempts to the controller, fetch the files of the last one, and return the verdict."""
        for plan in came.plans:
            place = folder.parent / plan.launch_id
            keeping.surely(place, partial(open_run, place))
            logs = LogBook(
                place, plan, lambda *_line: None, self.redaction, keeping, settings.options.log_max or ANY_SIZE
            )
            logs.keep_plan(plan)
            ways = {name: self.connected(name) for name in plan.names}
            supervisor = Supervisor(plan, ways, settings, logs, keeping.say)
            record = supervisor.bring_logs()
            if plan is came.plans[-1] and not logs.others:
                record.fetched = supervisor.fetch(record, folder, keeping)
                verdict = outcome.with_fetched(verdict, record)
            logs.close()
            supervisor.messages.close()
        return verdict

    def connected(self, node: str) -> NodeConnection:
        return connect(self, node, self.task_vars)

    def progress(self) -> Progress:
        rank = self.asked.show_rank
        return Progress(Display(), show_rank=rank if rank >= 0 else None)


def lines_of(result: Mapping[str, Any]) -> list[str]:
    """Return the lines of the diagnosis to show."""
    return list(result["diagnosis"]["lines"]) if "diagnosis" in result else []


def as_requested(record: LaunchRecord, options: LaunchOptions) -> bool:
    """Return whether the request was met: the launch was left running, or was stopped on all nodes."""
    if record.decision is None:
        return False  # rejected
    if options.stop:
        return not record.leftovers and not record.unseen
    return record.decision is not None and record.decision.ending is Ending.DETACHED


def plan_begun_here(folder: Path, name: str, nodes: list[str]) -> LaunchPlan:
    """Return the plan of a launch that was started from this controller. Raises PlanError."""
    plan = kept_plan(folder / name)
    if plan is None:
        known = sorted(path.parent.name for path in folder.glob("2*/plan.json"))[-3:]
        raise PlanError([f"Launch {name!r} was not started from here. Newest launches: {', '.join(known) or 'none'}."])
    missing = [one for one in plan.names if one not in nodes]
    if missing:
        raise PlanError([f"{', '.join(missing)} took part in {name}, but is no longer in gpu_nodes."])
    return plan
