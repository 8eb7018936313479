"""The controller's side of a launch; documented in library/torchrun_launch.py."""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ansible.errors import AnsibleActionFail
from ansible.utils.display import Display

sys.path[:0] = [str(Path(__file__).parents[1] / room) for room in ("module_utils", "plugin_utils")]

from muster.diagnosis.findings import CHECKS
from muster.launch import attempts, launchers, outcome
from muster.launch.endings import Ending
from muster.launch.manager import CLUSTER_USER, SELF, as_own
from muster.launch.plan import LaunchRequest, NodeSpec, PlanError, build_plan, masked
from muster.launch.text import NAME, describe, failure_text, headline, not_asked_yet, planned_outcome
from muster.launch.watched import gone
from muster.verdict.commands import Terminal
from muster_controller.artifacts.json_file import write_json
from muster_controller.artifacts.keeping import Keeping
from muster_controller.artifacts.private_files import point_latest
from muster_controller.artifacts.runs import keep_verdict, kept_plan, open_run
from muster_controller.detached.watched_launch import WatchedLaunch, runs_detached
from muster_controller.diagnosis.diagnosing import Diagnosing, failed
from muster_controller.diagnosis.rule_files import site_rules
from muster_controller.launch.attempts import Attempts
from muster_controller.launch.elsewhere import find, opened
from muster_controller.launch.given import read_given
from muster_controller.launch.image import read_image
from muster_controller.launch.launch_options import cluster_folder, policy_of, request_of, settings_of
from muster_controller.launch.logs import ANY_SIZE, LogBook
from muster_controller.launch.project import read_project
from muster_controller.launch.supervisor import Supervisor
from muster_controller.nodes.connection import connect
from muster_controller.playbook.action import NO_NODES, ControllerAction
from muster_controller.playbook.progress import Progress
from muster_controller.playbook.terminal import typed
from muster_controller.playbook.variables import node_variables
from muster_controller.report.reporter import REPORTER

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from muster.launch.outcome import LaunchRecord
    from muster.launch.planned import LaunchPlan
    from muster.verdict.finding import Verdict
    from muster.verdict.redaction import Redaction
    from muster_controller.detached.watched_launch import WatchedOutcome
    from muster_controller.launch.given import Given
    from muster_controller.launch.image import Image
    from muster_controller.launch.project import Project
    from muster_controller.launch.settings import Settings

DIAGNOSED = {check.id for check in CHECKS}  # what the lines of a diagnosis say
# How often -v counts here: with one more, Ansible's ssh shows what nodes answer as it comes, and that is logs.
MOST_VERBOSE = 2
ATTEMPTS = "attempts.json"  # beside the first one's plan: how each of them ended


class ActionModule(ControllerAction):
    """own_plan: the plan of the launch as this user's own, once the request has been read. as_root: whether somebody's
    own launch is dealt with as root. project: what is sent of it. image: that it runs in. last: of a launch with
    several attempts."""

    own_plan: Callable[[str], LaunchPlan] | None = None
    as_root = False
    project: Project | None = None
    image: Image | None = None
    last: tuple[Supervisor, LaunchRecord] | None = None

    def work(self) -> dict[str, Any]:
        # For this process alone, which Ansible has made for this task.
        Display().verbosity = min(Display().verbosity, MOST_VERBOSE)
        try:
            given, warnings = read_given(self.options)
            plan, cluster = self.plan(given, self.options, self.task_vars)
        except PlanError as exc:
            raise AnsibleActionFail("No launch. " + " ".join(exc.problems)) from exc
        brought = launchers.warnings_of(self.options["command"], len(plan.nodes))
        left_out = self.project.warnings if self.project else ()
        self.site = site_rules(self.task_vars, self._templar, self._loader, plan.head.node)
        brought += [f"The rules of the site for diagnoses are left out: {one}" for one in self.site.problems]
        for warning in (*warnings, *given.warnings(plan), *brought, *left_out):
            Display().warning(warning)
        if self._task.check_mode:
            if self.options["run_as"] == SELF and self.own_plan:
                plan = self.own_plan(NAME)
            shown = masked(plan, given.redaction)
            Display().display(describe(shown) + not_asked_yet(self.options["run_as"], cluster["cluster_users_root"]))
            return {"plan": shown.as_json(), "outcome": planned_outcome(shown, only=not REPORTER.contacts_nodes)}
        return self.launch(plan, given.redaction, cluster, self.options, self.task_vars)

    def plan(
        self, given: Given, options: dict[str, Any], task_vars: Mapping[str, Any]
    ) -> tuple[LaunchPlan, dict[str, Any]]:
        """The plan, and the head node's reading of the whole cluster's variables. Raises PlanError."""
        names = list(task_vars["groups"].get("gpu_nodes", []))
        if not names:
            raise PlanError([NO_NODES])
        variables = {name: node_variables(task_vars, self._templar, self._loader, name) for name in names}
        cluster = variables[names[0]]
        if options["detached"] and options["time_limit"] <= 0:
            raise PlanError(["A detached launch needs a time limit in seconds: set launch_time_limit."])
        known = options["attach"] or options["stop"]
        if known:
            return self.known_plan(known, names, cluster), cluster
        self.inventory = [NodeSpec.read(name, own, options["environment"]) for name, own in variables.items()]
        if options["project"]:
            self.project = read_project(options["project"], options["project_max_mb"])
        self.image = read_image(options)
        self.request = request_of(given, options, cluster, self.project, self.image)
        plan = self.planned(self.request, self.inventory, cluster)
        usable = [node.name for node in self.inventory if not node.quarantined]
        taking_part = plan.names
        unwatched = options["detached"] and options["run_as"] == CLUSTER_USER
        if problems := attempts.problems(policy_of(options), taking_part, usable, unwatched=unwatched):
            raise PlanError(problems)
        return plan, cluster

    def planned(self, request: LaunchRequest, inventory: Sequence[NodeSpec], cluster: dict[str, Any]) -> LaunchPlan:
        """The plan, and what makes of it that of an own launch. Raises PlanError."""
        nodes = list(inventory)
        self.own_plan = lambda user: build_plan(as_own(request, user, cluster["cluster_users_root"]), nodes)
        return build_plan(request, nodes)

    def known_plan(self, name: str, nodes: list[str], cluster: dict[str, Any]) -> LaunchPlan:
        """The plan of a launch that was begun from here, or that its nodes have kept. Raises PlanError."""
        folder = cluster_folder(cluster)
        if (folder / name / "plan.json").is_file() or self._task.check_mode:
            return plan_begun_here(folder, name, nodes)
        messages = opened({node: connect(self, node, self.task_vars) for node in nodes})
        found = find(messages, nodes, name, cluster)
        self.as_root = found.as_root
        return found.plan

    def launch(
        self,
        plan: LaunchPlan,
        redaction: Redaction,
        cluster: dict[str, Any],
        options: dict[str, Any],
        task_vars: Mapping[str, Any],
    ) -> dict[str, Any]:
        """One attempt, or as many as help."""
        policy = policy_of(options)
        known = bool(options["stop"] or options["attach"])
        if (known and plan.watched) or (not known and policy.restarts and options["detached"]):
            return self.watched(plan, redaction, cluster, options, task_vars)
        if known or not (policy.restarts or policy.checkpoints):
            return self.attempt(plan, redaction, cluster, options, task_vars)[0]

        def one(plan: LaunchPlan, earlier: tuple[str, ...], left: int) -> tuple[dict[str, Any], LaunchRecord]:
            one_of = {**options, "time_limit": left}
            return self.attempt(plan, redaction, cluster, one_of, task_vars, earlier, whole)

        whole = Attempts(
            policy,
            self.request,
            self.inventory,
            lambda request, nodes: self.planned(request, nodes, cluster),
            one,
            lambda name: connect(self, name, task_vars),
            lambda text: Display().display(f"  {redaction.text(text)}"),
            options["failure_timeout"],
            options["run_as"],
            options["time_limit"],
            options["shared"],
            options["silence_timeout"],
        )
        result = whole.see_through(plan)
        folder = cluster_folder(cluster) / plan.launch_id
        keeping = Keeping(whole.say)
        if self.last:
            supervisor, record = self.last
            record.fetched = supervisor.fetch(record, folder, keeping)
            supervisor.messages.close()
            result["verdict"] = redaction.shape(outcome.with_fetched(result["verdict"], record))
        if whole.went_on or result["verdict"]["status"] != "healthy":
            self.keep_whole(folder, result["verdict"], result["attempts"], keeping)
            result["artifacts"] = str(folder)
        if result["failed"]:
            result["msg"] = failure_text(result["verdict"], lines_of(result), DIAGNOSED)
        return result

    def keep_whole(
        self, folder: Path, verdict: Verdict, history: Sequence[Mapping[str, Any]], keeping: Keeping
    ) -> None:
        """In the folder of the first attempt: what came of all of them."""
        keep_verdict(folder, verdict, keeping)
        path = folder / ATTEMPTS
        if history:
            keeping.surely(path, lambda: write_json(path, {"schema": 1, "attempts": list(history)}))
        keeping.surely(folder, lambda: point_latest(folder))

    def attempt(
        self,
        plan: LaunchPlan,
        redaction: Redaction,
        cluster: dict[str, Any],
        options: dict[str, Any],
        task_vars: Mapping[str, Any],
        earlier: tuple[str, ...] = (),
        whole: Attempts | None = None,
    ) -> tuple[dict[str, Any], LaunchRecord]:
        """earlier: the ids of those before this one. whole: what it is an attempt of; what it left is then fetched once
        the last one is over."""
        folder = cluster_folder(cluster) / plan.launch_id
        progress = self.progress()
        keeping = Keeping(progress.say)
        keeping.surely(folder, lambda: open_run(folder))
        settings = replace(settings_of(options, cluster, self.project, self.image), earlier=earlier)
        logs = LogBook(folder, plan, progress.on_line, redaction, keeping, settings.log_max or ANY_SIZE)
        lost = logs.keep_plan(plan)
        if lost and options["detached"] and not options["attach"] and not options["stop"]:
            raise AnsibleActionFail(
                f"No launch. Without its plan in {folder} a detached launch cannot be found again: {lost}"
            )
        epoch = time.time() - time.monotonic()
        progress.say(headline(plan))
        connections = {entry.node: connect(self, entry.node, task_vars) for entry in plan.nodes}
        supervisor = Supervisor(
            plan,
            connections,
            settings,
            logs,
            lambda text: progress.say(typed(redaction.text(text))),
            self.own_plan,
            whole.interruption if whole else None,
        )
        supervisor.messages.as_root = self.as_root
        if options["stop"]:
            record = supervisor.end()
        elif options["attach"]:
            record = supervisor.attach()
        else:
            record = supervisor.launch()
        if self.last:
            self.last[0].messages.close()
        self.last = (supervisor, record) if whole else None
        fetches = not whole and not logs.others  # one supervisor does
        if fetches and not failed(record):
            record.fetched = supervisor.fetch(record, folder, keeping)
        verdict = redaction.shape(outcome.judge(record, str(folder / "logs")))
        diagnosed = None
        if options["diagnose"] and failed(record):
            diagnosing = Diagnosing(supervisor, redaction, progress.say, self.site)
            diagnosed = diagnosing.diagnose(record, verdict, folder, None if logs.others else keeping)
        verdict = diagnosed.verdict if diagnosed else verdict
        if fetches and failed(record):  # behind the diagnosis, since it may take minutes
            record.fetched = supervisor.fetch(record, folder, keeping)
            verdict = redaction.shape(outcome.with_fetched(verdict, record))
        if supervisor.messages.own and not supervisor.messages.by_root:
            verdict = Terminal(is_somebodys=True).shapes(verdict)
        logs.close()
        if not logs.others:  # whoever keeps the logs there keeps the verdict, too: it knows more of the end
            keep_verdict(folder, verdict, keeping)
        progress.finish()
        if not whole:
            supervisor.messages.close()
        result = {
            "changed": False,
            "failed": verdict["status"] not in ("healthy", "degraded") and not as_requested(record, options),
            "verdict": verdict,
            "plan": masked(record.plan, redaction).as_json(),
            "events": logs.events.kept,
            "artifacts": str(folder),
            "timing": record.timing(epoch),
            **({"diagnosis": diagnosed.said} if diagnosed else {}),
        }
        if result["failed"]:
            result["msg"] = failure_text(verdict, lines_of(result), DIAGNOSED)
        return result, record

    # ------------------------------------------------------------ with a watcher on the head node

    def watched(
        self,
        plan: LaunchPlan,
        redaction: Redaction,
        cluster: dict[str, Any],
        options: dict[str, Any],
        task_vars: Mapping[str, Any],
    ) -> dict[str, Any]:
        """A detached launch with restarts: begun, attached to, or ended."""
        launches = cluster_folder(cluster)
        folder = launches / (plan.watched["launch_id"] if plan.watched else plan.launch_id)
        progress = self.progress()
        keeping = Keeping(progress.say)
        keeping.surely(folder, lambda: open_run(folder))

        def say(text: str) -> None:
            progress.say(typed(redaction.text(text)))

        def quote(text: str) -> None:
            progress.say(redaction.text(text))

        def keep(plan: LaunchPlan) -> str:
            path = folder / "plan.json"
            return keeping.surely(path, lambda: write_json(path, masked(plan, redaction).as_json()))

        progress.say(headline(plan))
        settings = settings_of(options, cluster, self.project, self.image)
        names = list(task_vars["groups"]["gpu_nodes"])
        launch = WatchedLaunch(launches, lambda name: connect(self, name, task_vars), say, quote, settings, names)
        if options["stop"] or options["attach"]:
            came = launch.stop(plan) if options["stop"] else launch.attach(plan)
        else:
            users_root = cluster["cluster_users_root"]
            came = launch.begin(self.request, self.inventory, policy_of(options), plan, users_root, redaction, keep)
        verdict = came.verdict
        if came.running:
            verdict = runs_detached(came.plan)
        elif verdict is None:
            say(f"{plan.watched['node'] if plan.watched else 'the head node'}: {came.why}")
            verdict = self.without_watcher(came, launch, redaction, cluster, options, task_vars)
        elif came.began:
            verdict = self.brought_home(came, verdict, folder, redaction, settings, keeping)
        verdict = redaction.shape(verdict)
        self.keep_whole(folder, verdict, came.attempts, keeping)
        progress.finish()
        well = verdict["status"] in ("healthy", "degraded") or came.running or (options["stop"] and not came.left)
        result = {
            "changed": False,
            "failed": not well,
            "verdict": verdict,
            "plan": masked(came.plan, redaction).as_json(),
            "artifacts": str(folder),
            "attempts": came.attempts,
        }
        return result if well else {**result, "msg": failure_text(verdict)}

    def without_watcher(
        self,
        came: WatchedOutcome,
        launch: WatchedLaunch,
        redaction: Redaction,
        cluster: dict[str, Any],
        options: dict[str, Any],
        task_vars: Mapping[str, Any],
    ) -> Verdict:
        """The watcher is gone, and with it nobody begins an attempt: end the newest one, or see how it ended."""
        if not options["stop"]:
            launch.wait_for_leases(came.plan)
        how = options if options["stop"] else {**options, "attach": came.plan.launch_id}
        result, record = self.attempt(came.plan, redaction, cluster, how, task_vars)
        came.left = bool(record.leftovers or record.unseen)
        verdict: Verdict = result["verdict"]
        return verdict if options["stop"] else gone(verdict, came.plan.head.node, came.why)

    def brought_home(
        self,
        came: WatchedOutcome,
        verdict: Verdict,
        folder: Path,
        redaction: Redaction,
        settings: Settings,
        keeping: Keeping,
    ) -> Verdict:
        """The watcher's verdict, with the logs of all attempts brought here, and what the last one left fetched."""
        for plan in came.plans:
            place = folder.parent / plan.launch_id
            keeping.surely(place, partial(open_run, place))
            logs = LogBook(place, plan, lambda *_line: None, redaction, keeping, settings.log_max or ANY_SIZE)
            logs.keep_plan(plan)
            ways = {entry.node: connect(self, entry.node, self.task_vars) for entry in plan.nodes}
            supervisor = Supervisor(plan, ways, settings, logs, keeping.say)
            record = supervisor.bring_logs()
            if plan is came.plans[-1] and not logs.others:
                record.fetched = supervisor.fetch(record, folder, keeping)
                verdict = outcome.with_fetched(verdict, record)
            logs.close()
            supervisor.messages.close()
        return verdict

    def progress(self) -> Progress:
        rank = self.options["show_rank"]
        return Progress(Display(), show_rank=rank if rank >= 0 else None)


def lines_of(result: Mapping[str, Any]) -> list[str]:
    """What people read of the diagnosis."""
    return list(result["diagnosis"]["lines"]) if "diagnosis" in result else []


def as_requested(record: LaunchRecord, options: dict[str, Any]) -> bool:
    """Whether it was left running, or ended everywhere by the user's own word."""
    if record.decision is None:
        return False  # refused
    if options["stop"]:
        return not record.leftovers and not record.unseen
    return record.decision is not None and record.decision.ending is Ending.DETACHED


def plan_begun_here(folder: Path, name: str, nodes: list[str]) -> LaunchPlan:
    """The plan of a launch that was begun from here. Raises PlanError."""
    plan = kept_plan(folder / name)
    if plan is None:
        known = sorted(path.parent.name for path in folder.glob("2*/plan.json"))[-3:]
        raise PlanError([f"No launch {name!r} was begun from here; the newest are {', '.join(known) or 'none'}."])
    missing = [one for one in plan.names if one not in nodes]
    if missing:
        raise PlanError([f"{', '.join(missing)} took part in {name}, and is not in gpu_nodes any more."])
    return plan
