"""Passes events of the run to the reporter; see DOCUMENTATION."""

from __future__ import annotations

import atexit
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path[:0] = [str(Path(__file__).parents[1] / room) for room in ("module_utils", "plugin_utils")]

from ansible import context
from ansible.plugins.callback import CallbackBase

from muster_controller.launch.job import refuse_code
from muster_controller.members.onboarding import ONBOARDING
from muster_controller.nodes.claims import CLAIMS
from muster_controller.playbook import way_out
from muster_controller.playbook.foreign import foreign
from muster_controller.playbook.own_actions import is_foreign, is_on_controller
from muster_controller.report.reporter import REPORTER, reason

if TYPE_CHECKING:
    from collections.abc import Callable

DOCUMENTATION = """
    name: report
    type: notification
    short_description: Assign an id to each run and write its report page
    description:
      - A run is one ansible-playbook command that checked nodes, launched a program, or failed. Its artifacts are in
        artifacts/<cluster>/<run>/ with the report page C(report.html).
      - An error of this plugin is shown as one warning and never fails the run.
    requirements:
      - enable in configuration
"""


REASONS = ("msg", "stderr", "results")  # the parts of a module's result that tell why it failed


class CallbackModule(CallbackBase):
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "notification"
    CALLBACK_NAME = "report"
    CALLBACK_NEEDS_ENABLED = True

    def __init__(self) -> None:
        super().__init__()
        way_out.use()
        self._works = True

    def _pass_on(self, report: Callable[[], Any]) -> None:
        """Catches errors in the report, so that they never stop the run."""
        if not self._works:
            return
        try:
            report()
        except Exception as error:
            self._works = False
            self._display.warning(f"The report of this run was not written: {type(error).__name__}: {error}")

    def v2_playbook_on_start(self, playbook: Any) -> None:
        refuse_code(playbook._loader)
        self._pass_on(lambda: REPORTER.begin(playbook._file_name, context.CLIARGS))
        atexit.register(self._interrupted)
        CLAIMS.begin()

    def _interrupted(self) -> None:
        if not REPORTER.ended:
            self._pass_on(REPORTER.interrupted)
            self._pass_on(lambda: REPORTER.record("interrupted", None))
        CLAIMS.end("interrupted")

    def v2_playbook_on_play_start(self, play: Any) -> None:
        self._pass_on(lambda: REPORTER.play(play.get_name(), play.get_variable_manager().extra_vars))

    def v2_runner_on_ok(self, result: Any) -> None:
        self._took(result)

    def _took(self, result: Any) -> None:
        if is_on_controller(result.task):
            self._pass_on(lambda: REPORTER.took(result.result))
        role = result.task._role.get_name() if result.task._role else ""
        host, task = result.host.get_name(), result.task.name or result.task.action
        self._pass_on(lambda: REPORTER.planned_by(host, role, task, result.result))
        if result.task.action == "validate_inventory":
            self._pass_on(lambda: REPORTER.judged(result.result))
        # Results of modules on nodes must not decide which nodes are members.
        if result.task.action.rpartition(".")[2].startswith("onboard_"):
            self._pass_on(lambda: ONBOARDING.took(result.result))

    def v2_runner_on_failed(self, result: Any, ignore_errors: bool = False) -> None:
        self._took(result)
        if not ignore_errors:
            self._failed(result, unreachable=False)

    def v2_runner_on_unreachable(self, result: Any) -> None:
        if not result.task.ignore_unreachable:
            self._failed(result, unreachable=True)

    def _failed(self, result: Any, *, unreachable: bool) -> None:
        once = bool(result.task.run_once) and not unreachable
        content = result.result
        if is_foreign(result.task):
            foreign(content)
            content = {name: content[name] for name in REASONS if name in content}
        self._pass_on(lambda: ONBOARDING.failed(result.host.get_name(), reason(content), content, once=once))
        self._pass_on(
            lambda: REPORTER.failed(
                result.host.get_name(),
                result.task.name or result.task.action,
                content,
                once=once,
                unreachable=unreachable,
            )
        )

    def v2_playbook_on_stats(self, stats: Any) -> None:
        failed = {*stats.failures, *stats.dark}
        self._pass_on(lambda: ONBOARDING.end(check=bool(context.CLIARGS.get("check"))))
        self._pass_on(lambda: REPORTER.end(failed))
        if pruned := REPORTER.tell_pruned():
            self._display.display(pruned)
        self._pass_on(lambda: REPORTER.record("failed" if failed else "ok", [*stats.changed]))
        CLAIMS.end("failed" if failed else "ok")
