"""Observes what a node does while one of the project's long modules runs on the node, over a second connection."""

from __future__ import annotations

import contextvars
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

from muster.road.waiting import node_activity
from muster_controller.playbook.action import OwnAction

from .connection import connect
from .program import NodeProgram

if TYPE_CHECKING:
    from collections.abc import Mapping

    from muster_controller.playbook.way_out import PrintableDisplay

PROGRAM = NodeProgram("activity")
EVERY = 10.0  # seconds before the first observation, and between observations
END = 5.0  # seconds to wait for a running observation at the end of the module


class WatchedAction(OwnAction):
    """An action whose modules run for minutes. Observations never change the result of the action."""

    def _execute_module(self, module_name: Any = None, module_args: Any = None, **more: Any) -> dict[str, Any]:
        stop = threading.Event()
        # Ansible keeps the current task in a context variable, which new threads do not inherit.
        run, given = contextvars.copy_context().run, (self._observe, stop, more["task_vars"], module_args)
        thread = threading.Thread(target=run, args=given, daemon=True)
        thread.start()
        try:
            return super()._execute_module(module_name, module_args, **more)
        finally:
            stop.set()
            # The process must not end while this thread writes to the queue of ansible-playbook.
            thread.join(END)

    def _observe(self, stop: threading.Event, task_vars: Mapping[str, Any], arguments: Mapping[str, Any]) -> None:
        """Report the node's activity until the module has ended or an observation fails."""
        node: str = task_vars["inventory_hostname"]
        display = cast("PrintableDisplay", self._display)
        with suppress(Exception):
            sizes = {str(file["name"]): int(file["size"]) for file in arguments.get("files") or ()}
            wheels = sum(len(section["wheels"]) for section in arguments.get("locked") or ())
            if self._task.delegate_to or stop.wait(EVERY):
                return
            connection = connect(self, node, task_vars)
            while not stop.is_set():
                answer = PROGRAM.call(connection, "look", {}, privileged=True)
                if not stop.is_set():
                    display.note_activity(node, node_activity(answer.get("work"), sizes, wheels))
                stop.wait(EVERY)
        if not stop.is_set():
            display.note_activity(node, None)
