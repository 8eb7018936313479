"""The controller's side of a launch; documented in library/torchrun_launch.py."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ansible.errors import AnsibleActionFail
from ansible.utils.display import Display

sys.path[:0] = [str(Path(__file__).parents[1] / room) for room in ("module_utils", "plugin_utils")]

from muster.launch import attempts, launchers, outcome
from muster.launch.attempts import Policy
from muster.launch.endings import Ending
from muster.launch.manager import SELF, as_own
from muster.launch.plan import LaunchRequest, NodeSpec, PlanError, build_plan, carried, masked
from muster.launch.text import NAME, describe, failure_text, headline, not_asked_yet
from muster_controller.action import ControllerAction
from muster_controller.artifacts import point_latest
from muster_controller.attempts import Attempts
from muster_controller.connection import connect
from muster_controller.diagnosing import Diagnosing, failed
from muster_controller.elsewhere import find, opened
from muster_controller.given import read_given
from muster_controller.keeping import Keeping
from muster_controller.logs import ANY_SIZE, LogBook
from muster_controller.progress import Progress
from muster_controller.project import read_project
from muster_controller.record import operator
from muster_controller.runs import add_verdict, launch_id, open_run, read_json
from muster_controller.sent_script import sent_body, sent_name, unsendable
from muster_controller.settings import Settings
from muster_controller.supervisor import Supervisor
from muster_controller.terminal import typed
from muster_controller.variables import node_variables

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from muster.launch.outcome import Record
    from muster.verdict.finding import Verdict
    from muster.verdict.redaction import Redaction
    from muster_controller.given import Given
    from muster_controller.project import Project

# How often -v counts here: with one more, Ansible's ssh shows what nodes answer as it comes, and that is logs.
MOST_VERBOSE = 2


class ActionModule(ControllerAction):
    """own_plan: the plan of the launch as this user's own, once the request has been read. as_root: whether somebody's
    own launch is dealt with as root. project: what is sent of it."""

    own_plan: Callable[[str], dict[str, Any]] | None = None
    as_root = False
    project: Project | None = None

    def work(self) -> dict[str, Any]:
        # For this process alone, which Ansible has made for this task.
        Display().verbosity = min(Display().verbosity, MOST_VERBOSE)
        try:
            given, warnings = read_given(self.options)
            plan, cluster = self.plan(given, self.options, self.task_vars)
        except PlanError as exc:
            raise AnsibleActionFail("No launch. " + " ".join(exc.problems)) from exc
        brought = launchers.warnings_of(self.options["command"], len(plan["nodes"]))
        left_out = self.project.warnings if self.project else ()
        for warning in (*warnings, *given.warnings(plan), *brought, *left_out):
            Display().warning(warning)
        if self._task.check_mode:
            if self.options["run_as"] == SELF and self.own_plan:
                plan = self.own_plan(NAME)
            shown = masked(plan, given.redaction)
            Display().display(describe(shown) + not_asked_yet(self.options["run_as"], cluster["cluster_users_root"]))
            return {"plan": shown}
        return self.launch(plan, given.redaction, cluster, self.options, self.task_vars)

    def plan(
        self, given: Given, options: dict[str, Any], task_vars: Mapping[str, Any]
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """The plan, and the head node's reading of the whole cluster's variables. Raises PlanError."""
        names = list(task_vars["groups"].get("gpu_nodes", []))
        if not names:
            raise PlanError(["The inventory has no gpu_nodes."])
        variables = {name: node_variables(task_vars, self._templar, self._loader, name) for name in names}
        cluster = variables[names[0]]
        if options["detached"] and options["time_limit"] <= 0:
            raise PlanError(["A detached launch needs a time limit in seconds: set launch_time_limit."])
        known = options["attach"] or options["stop"]
        if known:
            return self.known_plan(known, names, cluster), cluster
        self.inventory = [NodeSpec.read(name, own) for name, own in variables.items()]
        if options["project"]:
            self.project = read_project(options["project"], options["project_max_mb"])
        self.request = request_of(given, options, cluster, self.project)
        plan = self.planned(self.request, self.inventory, cluster)
        usable = [node.name for node in self.inventory if not node.quarantined]
        taking_part = [entry["node"] for entry in plan["nodes"]]
        if problems := attempts.problems(policy_of(options), taking_part, usable, detached=options["detached"]):
            raise PlanError(problems)
        return plan, cluster

    def planned(self, request: LaunchRequest, inventory: Sequence[NodeSpec], cluster: dict[str, Any]) -> dict[str, Any]:
        """The plan, and what makes of it that of an own launch. Raises PlanError."""
        nodes = list(inventory)
        self.own_plan = lambda user: build_plan(as_own(request, user, cluster["cluster_users_root"]), nodes)
        return build_plan(request, nodes)

    def known_plan(self, name: str, nodes: list[str], cluster: dict[str, Any]) -> dict[str, Any]:
        """The plan of a launch that was begun from here, or that its nodes have kept. Raises PlanError."""
        folder = cluster_folder(cluster)
        if (folder / name / "plan.json").is_file() or self._task.check_mode:
            return kept_plan(folder, name, nodes)
        messages = opened({node: connect(self, node, self.task_vars) for node in nodes})
        found = find(messages, nodes, name, cluster)
        self.as_root = found.as_root
        return found.plan

    def launch(
        self,
        plan: dict[str, Any],
        redaction: Redaction,
        cluster: dict[str, Any],
        options: dict[str, Any],
        task_vars: Mapping[str, Any],
    ) -> dict[str, Any]:
        """One attempt, or as many as help."""
        policy = policy_of(options)
        if options["stop"] or options["attach"] or not (policy.restarts or policy.checkpoints):
            return self.attempt(plan, redaction, cluster, options, task_vars)[0]

        def one(plan: dict[str, Any], earlier: tuple[str, ...], left: int) -> tuple[dict[str, Any], Record]:
            return self.attempt(plan, redaction, cluster, {**options, "time_limit": left}, task_vars, earlier)

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
        )
        result = whole.see_through(plan)
        if whole.went_on or result["verdict"]["status"] == "failed":
            folder = cluster_folder(cluster) / plan["launch_id"]
            keeping = Keeping(whole.say)
            keep_verdict(folder, redaction.shape(result["verdict"]), keeping)
            keeping.surely(folder, lambda: point_latest(folder))
            result["artifacts"] = str(folder)
        if result["failed"]:
            result["msg"] = failure_text(result["verdict"], lines_of(result))
        return result

    def attempt(
        self,
        plan: dict[str, Any],
        redaction: Redaction,
        cluster: dict[str, Any],
        options: dict[str, Any],
        task_vars: Mapping[str, Any],
        earlier: tuple[str, ...] = (),
    ) -> tuple[dict[str, Any], Record]:
        """earlier: the ids of those before this one."""
        folder = cluster_folder(cluster) / plan["launch_id"]
        progress = Progress(Display(), show_rank=options["show_rank"] if options["show_rank"] >= 0 else None)
        keeping = Keeping(progress.say)
        keeping.surely(folder, lambda: open_run(folder))
        settings = replace(settings_of(options, cluster, self.project), earlier=earlier)
        logs = LogBook(folder, plan, progress.on_line, redaction, keeping, settings.log_max or ANY_SIZE)
        lost = logs.keep_plan(plan)
        if lost and options["detached"] and not options["attach"] and not options["stop"]:
            raise AnsibleActionFail(
                f"No launch. Without its plan in {folder} a detached launch cannot be found again: {lost}"
            )
        epoch = time.time() - time.monotonic()
        progress.say(headline(plan))
        connections = {entry["node"]: connect(self, entry["node"], task_vars) for entry in plan["nodes"]}
        supervisor = Supervisor(
            plan, connections, settings, logs, lambda text: progress.say(typed(redaction.text(text))), self.own_plan
        )
        supervisor.messages.as_root = self.as_root
        if options["stop"]:
            record = supervisor.end()
        elif options["attach"]:
            record = supervisor.attach()
        else:
            record = supervisor.launch()
        verdict = redaction.shape(outcome.judge(record, str(folder / "logs")))
        diagnosed = None
        if options["diagnose"] and failed(record):
            diagnosing = Diagnosing(supervisor, redaction, progress.say)
            diagnosed = diagnosing.diagnose(record, verdict, folder, None if logs.others else keeping)
        verdict = diagnosed.verdict if diagnosed else verdict
        logs.close()
        if not logs.others:  # whoever keeps the logs there keeps the verdict, too: it knows more of the end
            keep_verdict(folder, verdict, keeping)
        progress.finish()
        supervisor.messages.close()
        result = {
            "changed": False,
            "failed": verdict["status"] not in ("healthy", "degraded") and not as_requested(record, options),
            "verdict": verdict,
            "plan": masked(record.plan, redaction),
            "events": logs.events.kept,
            "artifacts": str(folder),
            "timing": record.timing(epoch),
            **({"diagnosis": diagnosed.said} if diagnosed else {}),
        }
        if result["failed"]:
            result["msg"] = failure_text(verdict, lines_of(result))
        return result, record


def lines_of(result: Mapping[str, Any]) -> list[str]:
    """What people read of the diagnosis."""
    return list(result["diagnosis"]["lines"]) if "diagnosis" in result else []


def keep_verdict(folder: Path, verdict: Verdict, keeping: Keeping) -> None:
    """Keep it, or say that it is lost, where it was to go, and what it is."""
    path = folder / "verdict.json"
    if outcome.knows_less(verdict, read_json(path)):
        keeping.say(f"The verdict in {path} stays as it is: it says how the launch ended, which is not to be seen now")
        return
    lost = keeping.surely(path, lambda: add_verdict(folder, verdict, instead_of=("launch.", "smoke.")))
    if lost:
        keeping.say(f"The verdict is not in {path}: {lost}. It is: {verdict['status']}: {verdict['summary']}")


def cluster_folder(cluster: dict[str, Any]) -> Path:
    """Where the controller keeps the runs of the cluster."""
    return Path(cluster["cluster_artifacts_dir"], cluster["cluster_name"])


def request_of(
    given: Given, options: dict[str, Any], cluster: dict[str, Any], project: Project | None = None
) -> LaunchRequest:
    """What is to be launched. Raises PlanError."""
    source = options["script_src"]
    if source and (problem := unsendable(Path(source))):
        raise PlanError([problem])
    if project and not source and (problem := project.script_problem(options["script"])):
        raise PlanError([problem])
    return LaunchRequest(
        cluster=cluster["cluster_name"],
        launch_id=launch_id(cluster_folder(cluster)),
        user=cluster["cluster_user"],
        script=sent_name(Path(source)) if source else options["script"],
        script_is_sent=bool(source),
        args=given.args,
        env=given.env,
        env_from=given.env_from,
        backend=cluster["cluster_backend"],
        port=cluster["cluster_master_port"],
        nodes=cluster["cluster_launch_nodes"],
        first_nodes=options["first_nodes"],
        nproc=options["nproc_per_node"],
        chdir=options["chdir"],
        run_root=cluster["cluster_run_root"],
        work_root=cluster["cluster_work_root"],
        rendezvous_timeout=options["rendezvous_timeout"],
        spares=options["spares"],
        more=carried(
            options["fetch"],
            options["fetch_max_mb"] * 1_000_000,
            options["chdir"],
            Path(source or options["script"]).name,
            operator(),
            time.time(),
        ),
        module=options["module"],
        command=options["command"],
        project=project.in_plan if project else None,
        data=options["data"],
    )


def policy_of(options: dict[str, Any]) -> Policy:
    return Policy(options["restarts"], tuple(options["spares"]), options["min_nodes"], options["checkpoints"])


def settings_of(options: dict[str, Any], cluster: dict[str, Any], project: Project | None = None) -> Settings:
    source = Path(options["script_src"]) if options["script_src"] else None
    return Settings(
        user=cluster["cluster_user"],
        stop_timeout=options["stop_timeout"],
        stall_timeout=options["stall_timeout"],
        rendezvous_timeout=options["rendezvous_timeout"],
        min_free_bytes=options["min_free_mb"] * 1_000_000,
        keep=cluster["cluster_run_keep"],
        keep_bytes=cluster["cluster_run_keep_mb"] * 1_000_000,
        log_max=options["log_max_mb"] * 1_000_000,
        detached=options["detached"] or bool(options["attach"]),
        time_limit=options["time_limit"],
        chdir=options["chdir"],
        script_name=sent_name(source) if source else "",
        script_body=sent_body(source) if source else b"",
        wait=options["wait"],
        wait_timeout=options["wait_timeout"],
        shared=options["shared"],
        begun_here=frozenset(path.parent.name for path in cluster_folder(cluster).glob("2*/plan.json")),
        run_as=options["run_as"],
        failure_timeout=options["failure_timeout"],
        probe=options["probe"],
        observe=options["observe"],
        notice_timeout=options["notice_timeout"],
        project=project,
    )


def as_requested(record: Record, options: dict[str, Any]) -> bool:
    """Whether it was left running, or ended everywhere by the user's own word."""
    if record.decision is None:
        return False  # refused
    if options["stop"]:
        return not record.leftovers and not record.unseen
    return record.decision is not None and record.decision.ending is Ending.DETACHED


def kept_plan(folder: Path, name: str, nodes: list[str]) -> dict[str, Any]:
    """The plan of a launch that was begun from here. Raises PlanError."""
    try:
        plan: dict[str, Any] = json.loads((folder / name / "plan.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as exc:
        known = sorted(path.parent.name for path in folder.glob("2*/plan.json"))[-3:]
        raise PlanError(
            [f"No launch {name!r} was begun from here; the newest are {', '.join(known) or 'none'}."]
        ) from exc
    missing = [entry["node"] for entry in plan["nodes"] if entry["node"] not in nodes]
    if missing:
        raise PlanError([f"{', '.join(missing)} took part in {name}, and is not in gpu_nodes any more."])
    return plan
