"""Extends Ansible's default output for long runs; see DOCUMENTATION."""

from __future__ import annotations

import sys
import textwrap
import threading
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path[:0] = [str(Path(__file__).parents[1] / room) for room in ("module_utils", "plugin_utils")]

from ansible import constants, context
from ansible.plugins.callback.default import CallbackModule as DefaultCallback

from muster.report.last_line import RunEnding, Stop, last_line
from muster.road.changes import table
from muster.verdict.commands import COMMAND
from muster.verdict.printable import printable_parts
from muster_controller.members.onboarding import ONBOARDING
from muster_controller.playbook import way_out
from muster_controller.playbook.command_line import short
from muster_controller.playbook.foreign import foreign
from muster_controller.playbook.json_output import JSON_OUTPUT
from muster_controller.playbook.own_actions import is_foreign, is_on_controller
from muster_controller.playbook.screens import end_gently
from muster_controller.playbook.terminal import typed
from muster_controller.playbook.waiting import Waiting
from muster_controller.report.reporter import FIRST_CONTACT, REPORTER, UNTRUSTED, reason

if TYPE_CHECKING:
    from collections.abc import Mapping

DOCUMENTATION = """
    name: road
    type: stdout
    short_description: Compact default output with the outcome of the run in the last line
    description:
      - Hides skipped plays and tasks, and successful checks of role arguments.
      - Shows the nodes that a slow task waits for, what these nodes do, and the duration of slow tasks.
      - Shows the essential part of a failure, and the complete result with C(-v).
      - Prints the outcome in the last line, either the verdict of the launch, or where and why the run stopped.
    extends_documentation_fragment:
      - default_callback
      - result_format_callback
    requirements:
      - set as stdout in configuration
"""

LONG = 5.0  # seconds from which the duration of a task is shown
QUIET_ACTIONS = ("ansible.builtin.validate_argument_spec", "validate_argument_spec")
# Actions with a message for people. Only the message is shown.
SPEAKING_ACTIONS = (
    "ansible.builtin.fail",
    "inspect_verdict",
    "gpu_stack_plan",
    "torchrun_launch",
    "ddp_smoke_verdict",
    "launch_comparison",
    "validate_inventory",
    "claim_nodes",
    "pytorch_env",
    "host_keys",
    "ssh_mesh_key",
    "ssh_mesh_files",
    "ssh_mesh_proof",
    "firewall",
    "health_verdict",
    "net_probe",
    "rdma_rails",
    "launch_users",
    "share_inventory",
    "import_inventory",
    "drift",
    "upgrade",
    "onboard_request",
    "onboard_contact",
    "onboard_health",
    "onboard_verdict",
    "quarantine_nodes",
    "retire_nodes",
    "remove_cluster",
    "wipe_node",
)
# Actions whose message is the requested result, so it is also shown on success.
ANSWERS = (
    "inspect_verdict",
    "gpu_stack_plan",
    "health_verdict",
    "launch_comparison",
    "drift",
    "upgrade",
    "fresh_login",
    "import_inventory",
)
# Actions that show their own progress or wait for input.
OWN_PROGRESS = ("torchrun_launch", "host_keys", "cluster_status", "onboard_contact", "ansible.builtin.pause")
TRUE = ("true", "yes", "on", "1")
# Playbooks that only show a screen and the last line.
SCREENS = ("status",)
# Parts of a result that contain instructions written by Muster.
SAID = ("msg", "fix", "fail_msg", "success_msg")
# Parts of a result that are for programs, or that repeat the message.
FOR_PROGRAMS = (
    "verdict",
    "plan",
    "events",
    "smoke",
    "timing",
    "findings",
    "facts",
    "reminder",
    "traits",
    "network",
    "metrics",
    "stack",
    "pip_output",
    "changed",
    "changes",
    "artifacts",
    "status",
    "closing",
    "drift",
    "onboarding",
)


class CallbackModule(DefaultCallback):
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "stdout"
    CALLBACK_NAME = "road"

    def __init__(self) -> None:
        super().__init__()
        way_out.use()
        self._banner_lock = threading.RLock()
        self._play_to_show: Any = None
        self._waiting = Waiting(self._display)
        self._task_began = 0.0
        self._last_result = 0.0
        self._verdict: Mapping[str, Any] | None = None
        self._artifacts = ""
        self._reminder = ""
        self._outcome = self._unfinished = ""
        self._kept: list[str] = []  # sentences about what a removal leaves on nodes
        self._failures: dict[str, Stop] = {}
        self._is_screen = False
        self._status = ""
        self._closing: Mapping[str, Any] = {}

    def v2_playbook_on_start(self, playbook: Any) -> None:
        self._is_screen = Path(playbook._file_name).stem in SCREENS and self._display.verbosity < 1
        super().v2_playbook_on_start(playbook)

    # ------------------------------------------------------------ titles

    def v2_playbook_on_play_start(self, play: Any) -> None:
        self._end_of_task()
        self._play = play
        self._play_to_show = play

    def _task_start(self, task: Any, prefix: str | None = None) -> None:
        self._end_of_task()
        super()._task_start(task, prefix)
        self._task_began = self._last_result = time.monotonic()
        if task.action in QUIET_ACTIONS:
            return
        if task.action in OWN_PROGRESS and self._watches():
            end_gently()
        if not task.when:
            self._print_task_banner(task)
        self._waiting.begin(
            partial(self._print_task_banner, task),
            shown=task.action not in OWN_PROGRESS and not self._is_screen,
            names=not task.run_once,
        )

    def _watches(self) -> bool:
        """Return whether the run shows a screen until the user interrupts the run."""
        return self._is_screen and str(self._play.get_variable_manager().extra_vars.get("watch")).lower() in TRUE

    def _print_task_banner(self, task: Any) -> None:
        if self._is_screen:
            return
        # The timer's thread and the thread that handles results may both print the title of a task.
        with self._banner_lock:
            if self._last_task_banner == task._uuid:
                return
            play, self._play_to_show = self._play_to_show, None
            if play is not None:
                super().v2_playbook_on_play_start(play)
            super()._print_task_banner(task)

    def _end_of_task(self) -> None:
        """Show the duration of the finished task if the task was slow."""
        self._waiting.end()
        seconds = self._last_result - self._task_began
        if self._task_began and seconds >= LONG and not self._is_screen:
            self._display.display(f"  took {seconds:.0f} s", color=constants.COLOR_VERBOSE)
        self._task_began = 0.0

    # ------------------------------------------------------------ results

    def v2_runner_on_start(self, host: Any, task: Any) -> None:
        self._waiting.add(host.get_name())
        super().v2_runner_on_start(host, task)

    def v2_runner_on_ok(self, result: Any) -> None:
        self._take(result)
        if result.task.action in QUIET_ACTIONS:
            return
        if self._is_screen:
            self._handle_warnings(result.result)
            return
        message = _message(result.result)
        if result.task.action in ANSWERS and message and self._display.verbosity < 1:
            self._print_task_banner(result.task)
            self._show(message)
            return
        super().v2_runner_on_ok(result)

    def _show(self, report: str) -> None:
        """Show a report line by line, each in the colour of its first word."""
        colors = {"FAIL": constants.COLOR_ERROR, "????": constants.COLOR_WARN, "warn": constants.COLOR_WARN}
        for line in report.splitlines():
            self._display.display(line, color=colors.get(line.partition(" ")[0], constants.COLOR_OK))

    def v2_runner_on_skipped(self, result: Any) -> None:
        self._finished(result)
        super().v2_runner_on_skipped(result)

    def v2_runner_on_failed(self, result: Any, ignore_errors: bool = False) -> None:
        self._take(result)
        if not ignore_errors:
            self._note_failure(result)
        if self._closing and self._is_screen:
            return  # the screen already shows the failure
        message = _message(result.result)
        # A message with a command is for people as well, and YAML output would break the command into lines.
        speaks = result.task.action in SPEAKING_ACTIONS or COMMAND.search(str(result.result.get("msg")))
        if speaks and message and self._display.verbosity < 1:
            self._print_task_banner(result.task)
            self._handle_warnings(result.result)
            self._display.display(f"fatal: [{self.host_label(result)}]: FAILED!", color=constants.COLOR_ERROR)
            self._display.display(textwrap.indent(message, "  "), color=constants.COLOR_ERROR)
            return
        super().v2_runner_on_failed(result, ignore_errors)

    def v2_runner_on_unreachable(self, result: Any) -> None:
        self._take(result)
        if not result.task.ignore_unreachable:
            self._note_failure(result)
        super().v2_runner_on_unreachable(result)
        if UNTRUSTED in str(result.result.get("msg", "")):
            self._display.display(f"  {self.host_label(result)}: {typed(FIRST_CONTACT)}", color=constants.COLOR_ERROR)

    def v2_runner_item_on_ok(self, result: Any) -> None:
        _note(result)
        super().v2_runner_item_on_ok(result)

    def v2_runner_item_on_failed(self, result: Any) -> None:
        _note(result)
        super().v2_runner_item_on_failed(result)

    def v2_runner_retry(self, result: Any) -> None:
        _note(result)
        super().v2_runner_retry(result)

    def _finished(self, result: Any) -> None:
        self._last_result = time.monotonic()
        self._waiting.remove(result.host.get_name())

    def _take(self, result: Any) -> None:
        self._finished(result)
        content = result.result
        _note(result)
        if result.task.action == "wipe_node" and content.get("msg"):
            node = f"{result.host.get_name()}: "
            self._kept += [f"{node}{line.removeprefix(node)}" for line in str(content["msg"]).splitlines()]
        if not is_on_controller(result.task):
            return
        self._reminder = str(content.get("reminder") or self._reminder)
        self._closing = content.get("closing") or self._closing
        JSON_OUTPUT.take(content)
        self._outcome = str(content.get("outcome") or self._outcome)
        self._unfinished = str(content.get("unfinished") or self._unfinished)
        if isinstance(content.get("verdict"), dict):
            self._verdict = content["verdict"]
            self._artifacts = content.get("artifacts", "")

    def _note_failure(self, result: Any) -> None:
        name = self._last_task_name or result.task.get_name().strip()
        why = reason(result.result, quoted=is_foreign(result.task))
        for_all = (result.task.run_once and not is_foreign(result.task)) or result.host.get_name() == "localhost"
        self._failures[result.host.get_name()] = Stop(name, why, for_all)

    def _dump_results(self, result: Mapping[str, Any], *args: Any, **kwargs: Any) -> str:
        shown = {
            key: typed(value, result) if key in SAID and isinstance(value, str) else value
            for key, value in result.items()
        }
        if self._display.verbosity < 1:
            shown = {key: value for key, value in shown.items() if key not in FOR_PROGRAMS}
        return str(super()._dump_results(shown, *args, **kwargs))

    def _get_diff(self, difflist: Any) -> str:
        return way_out.Drawn(super()._get_diff(printable_parts(difflist)))

    def _handle_warnings(self, res: dict[str, Any]) -> None:
        warnings = [str(warning) for warning in res.get("warnings") or ()]
        if any(typed(warning) != warning for warning in warnings):
            # Ansible would show the warnings without adapting their commands.
            res.pop("warnings")
            for warning in warnings:
                self._display.warning(typed(warning))
        super()._handle_warnings(res)

    def _handle_exception(self, result: dict[str, Any], use_stderr: bool = False) -> None:
        message = str(result.get("msg", ""))
        if typed(message, result) != message:
            # Ansible's own text contains the unchanged message. The adapted message is shown after it.
            result.pop("exception", None)
        super()._handle_exception(result, use_stderr)

    # ------------------------------------------------------------ the end

    def v2_playbook_on_stats(self, stats: Any) -> None:
        self._end_of_task()
        if not self._is_screen:
            with way_out.own_colors():
                super().v2_playbook_on_stats(stats)
        if self._kept:
            self._display.display("\n".join(["\nKept, besides installed packages:", *dict.fromkeys(self._kept)]))
        # Failures that were rescued do not count.
        ended = {**stats.failures, **stats.dark}
        self._failures = {host: why for host, why in self._failures.items() if host in ended}
        try:
            page = REPORTER.end(ended.keys())
        except Exception as error:
            page = None
            self._display.warning(f"The report of this run was not written: {type(error).__name__}: {error}")
        aside = bool(self._closing.get("aside"))
        if pruned := REPORTER.tell_pruned():
            self._display.display(f"\n{pruned}", stderr=aside)
        if "planned" in REPORTER.run:
            JSON_OUTPUT.results["changes"] = REPORTER.planned
            for text in table(REPORTER.planned):
                self._display.display(typed(text), color=constants.COLOR_CHANGED, stderr=aside)
        line, color = self._of_onboarding(str(page) if page else "") or self._last_line(
            stats, str(page) if page else ""
        )
        JSON_OUTPUT.end(self._status, line, short(str(page)) if page else "", self._failures)
        if line:
            # If a program reads standard output, the last line goes to standard error.
            self._display.display(f"\n{line}", color=color, stderr=aside)
        if warning := REPORTER.tell_others(self._status, line, self._verdict):
            self._display.warning(warning)

    def _of_onboarding(self, page: str) -> tuple[str, str] | None:
        """Return the last line of a run that onboards nodes. Shows the lines about each node first."""
        try:
            end = ONBOARDING.end(check=bool(context.CLIARGS.get("check")))
        except Exception as error:
            self._display.warning(
                f"The reasons for rejected nodes could not be written to the inventory: {type(error).__name__}: {error}"
            )
            return None
        if end is None:
            return None
        for line in end.lines:
            self._display.display(typed(line))
        where = f" ({short(page)})" if page else ""
        self._status = "stopped" if end.red else "done"
        return f"{typed(end.last)}{where}", constants.COLOR_ERROR if end.red else constants.COLOR_OK

    def _last_line(self, stats: Any, page: str) -> tuple[str, str]:
        """Return the last line and its color, or ('', '') if there is nothing to report."""
        where = page or (f"{self._artifacts}/verdict.json" if self._artifacts and self._verdict else "")
        known = REPORTER.of_a_cluster
        verdict = self._verdict
        status, line = last_line(
            RunEnding(
                book=REPORTER.run["playbook"] if known else "",
                contacts=not known or REPORTER.contacts_nodes,
                check=bool(context.CLIARGS.get("check")),
                nodes=len(REPORTER.run.get("nodes", ())),
                changed=[node for node in REPORTER.run.get("nodes", ()) if stats.changed.get(node)],
                failures=self._failures,
                verdict=verdict and {**verdict, "summary": typed(str(verdict["summary"]), verdict)},
                where=short(where) if where else "",
                reminder=self._reminder,
                closing=self._closing,
                outcome=typed(self._outcome),
                unfinished=self._unfinished,
            )
        )
        self._status = status
        return line, {
            "done": constants.COLOR_OK,
            "healthy": constants.COLOR_OK,
            "degraded": constants.COLOR_WARN,
            "unknown": constants.COLOR_WARN,
        }.get(status, constants.COLOR_ERROR)


def _note(result: Any) -> None:
    """Mark text from a module on a node as foreign before any text is shown."""
    if is_foreign(result.task):
        foreign(result.result)


def _message(result: Mapping[str, Any]) -> str:
    return typed(str(result.get("msg") or ""), result)
