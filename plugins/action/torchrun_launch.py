"""The controller's side of a launch; documented in library/torchrun_launch.py."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ansible.errors import AnsibleActionFail
from ansible.utils.display import Display

sys.path[:0] = [str(Path(__file__).parents[1] / room) for room in ("module_utils", "plugin_utils")]

from muster.launch import outcome as judging
from muster.launch.plan import LaunchRequest, NodeSpec, PlanError, build_plan, masked
from muster.verdict.finding import Finding, as_lines
from muster.verdict.words import plural
from muster_controller.action import ControllerAction
from muster_controller.connection import connect
from muster_controller.logs import LogBook, point_latest
from muster_controller.progress import Progress
from muster_controller.runs import add_verdict, launch_id
from muster_controller.supervisor import Outcome, Settings, Supervisor
from muster_controller.variables import node_variables

if TYPE_CHECKING:
    from collections.abc import Mapping


class ActionModule(ControllerAction):
    def work(self) -> dict[str, Any]:
        try:
            plan, cluster = self.plan(self.options, self.task_vars)
        except PlanError as exc:
            raise AnsibleActionFail("No launch. " + " ".join(exc.problems)) from exc
        if self._task.check_mode:
            Display().display(describe(masked(plan)))
            return {"plan": masked(plan)}
        return self.launch(plan, cluster, self.options, self.task_vars)

    def plan(self, options: dict[str, Any], task_vars: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """The plan, and the head node's reading of the whole cluster's variables."""
        names = list(task_vars["groups"].get("gpu_nodes", []))
        if not names:
            raise PlanError(["The inventory has no gpu_nodes."])
        variables = {name: node_variables(task_vars, self._templar, self._loader, name) for name in names}
        cluster = variables[names[0]]
        if options["detached"] and options["time_limit"] <= 0:
            raise PlanError(["A detached launch needs a time limit in seconds: set launch_time_limit."])
        known = options["attach"] or options["stop"]
        if known:
            return kept_plan(Path(cluster["cluster_artifacts_dir"]) / cluster["cluster_name"], known, names), cluster
        source = options["script_src"]
        if source and not Path(source).is_file():
            raise PlanError([f"{source} is not a file on the controller (script_src)."])
        request = LaunchRequest(
            cluster=cluster["cluster_name"],
            launch_id=launch_id(Path(cluster["cluster_artifacts_dir"]) / cluster["cluster_name"]),
            user=cluster["cluster_user"],
            script=source or options["script"],
            script_is_sent=bool(source),
            args=options["script_args"],
            env={name: str(value) for name, value in options["env"].items()},
            backend=cluster["cluster_backend"],
            port=cluster["cluster_master_port"],
            nodes=cluster["cluster_launch_nodes"],
            chdir=options["chdir"],
            run_root=cluster["cluster_run_root"],
            rendezvous_timeout=options["rendezvous_timeout"],
        )
        inventory = [
            NodeSpec(
                name=name,
                address=own["cluster_address"],
                torchrun=own["cluster_torchrun"],
                interface=own["cluster_interface"],
                gpus=own["cluster_gpus"],
                nproc=own["cluster_nproc_per_node"],
                quarantined=own["cluster_quarantined"],
            )
            for name, own in variables.items()
        ]
        return build_plan(request, inventory), cluster

    def launch(
        self, plan: dict[str, Any], cluster: dict[str, Any], options: dict[str, Any], task_vars: Mapping[str, Any]
    ) -> dict[str, Any]:
        folder = Path(cluster["cluster_artifacts_dir"]) / plan["cluster"] / plan["launch_id"]
        progress = Progress(Display(), show_rank=options["show_rank"] if options["show_rank"] >= 0 else None)
        logs = LogBook(folder, plan, progress.on_line)
        logs.keep_plan(plan)
        point_latest(folder)
        source = Path(options["script_src"]) if options["script_src"] else None
        settings = Settings(
            user=cluster["cluster_user"],
            stop_timeout=options["stop_timeout"],
            stall_timeout=options["stall_timeout"],
            rendezvous_timeout=options["rendezvous_timeout"],
            min_free_bytes=options["min_free_mb"] * 1_000_000,
            keep=cluster["cluster_run_keep"],
            detached=options["detached"] or bool(options["attach"]),
            time_limit=options["time_limit"],
            chdir=options["chdir"],
            script_name=source.name if source else "",
            script_body=source.read_bytes() if source else b"",
        )
        progress.say(headline(plan))
        connections = {entry["node"]: connect(self, entry["node"], task_vars) for entry in plan["nodes"]}
        supervisor = Supervisor(plan, connections, settings, logs, progress.say)
        if options["stop"]:
            ended = supervisor.end()
        elif options["attach"]:
            ended = supervisor.attach()
        else:
            ended = supervisor.launch()
        progress.clear()
        verdict = judge(ended, folder)
        add_verdict(folder, verdict, instead_of=("launch.", "smoke."))
        result = {
            "changed": False,
            # Left running, or ended by the user's own word, is what was asked for.
            "failed": verdict["status"] not in ("healthy", "degraded")
            and not (
                ended.decision.kind == "detached" or (options["stop"] and not ended.leftovers and not ended.unseen)
            ),
            "verdict": verdict,
            "plan": masked(ended.plan),
            "events": logs.events,
            "artifacts": str(folder),
            "timing": {
                "began": ended.began,
                "notices": ended.notices,
                "noticed": ended.noticed,
                "cleaned": ended.cleaned,
            },
        }
        if result["failed"]:
            result["msg"] = failure_text(verdict)
        return result


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


def headline(plan: dict[str, Any]) -> str:
    parts = [f"{entry['node']} {rank_range(entry['ranks'])}" for entry in plan["nodes"]]
    shown = ", ".join(parts[:8]) + (f", and {len(parts) - 8} nodes more" if len(parts) > 8 else "")
    return (
        f"launch {plan['launch_id']}: {plural(plan['world_size'], 'rank')} ({shown}),"
        f" {plan['backend']}, {plan['master_addr']} port {plan['master_port']}"
    )


def rank_range(ranks: list[int]) -> str:
    return f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {ranks[0]}-{ranks[-1]}"


def judge(ended: Outcome, folder: Path) -> dict[str, Any]:
    return judging.judge(
        ended.plan,
        judging.Ending(
            decision=ended.decision,
            preflight=ended.findings,
            reports=ended.reports,
            stop_began=ended.stop_began,
            stalled=ended.stalled,
            leftovers=ended.leftovers,
            unseen=ended.unseen,
            log_dir=str(folder / "logs"),
        ),
    )


def failure_text(verdict: dict[str, Any]) -> str:
    """The summary; below it every reason where there are several, and what proves them."""
    findings = [Finding(**finding) for finding in verdict["findings"] if finding["status"] != "pass"]
    reasons = as_lines(findings)
    parts = [verdict["summary"]] if len(reasons) == 1 else [f"- {reason}" for reason in reasons]
    for finding in findings:
        parts += [f"\n{proof['source']}:\n{proof['text']}" for proof in finding.evidence]
    return "\n".join(parts)


def describe(plan: dict[str, Any]) -> str:
    """The plan for people: each node's environment and command, as they could be typed there."""
    lines = [headline(plan)]
    for entry in plan["nodes"]:
        lines += [
            "",
            f"{entry['node']}  (node rank {entry['node_rank']}, {rank_range(entry['ranks'])}, unit {entry['unit']})",
        ]
        lines += [f"  {name}={shlex.quote(value)} \\" for name, value in sorted(entry["env"].items())]
        lines += [f"  {name}=<{how}> \\" for name, how in sorted(entry["from_node"].items())]
        lines.append("  " + " \\\n    ".join(shlex.quote(word) for word in entry["argv"]))
    return "\n".join(lines) + "\n"
