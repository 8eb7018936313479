"""Records the changes that tasks made or would make, for the outer run that started this run; see DOCUMENTATION."""

from __future__ import annotations

import json
import os
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parents[1] / room) for room in ("module_utils", "plugin_utils")]

from ansible.plugins.callback import CallbackBase

from muster.drift import results
from muster_controller.artifacts.private_files import append
from muster_controller.drift.steps_run import COLLECT, MOST_OF_A_NODE

DOCUMENTATION = """
    name: collect
    type: notification
    short_description: Write the reported differences of each task to a file
    description:
      - Used in a run of site.yml that was started by another run. The other run enables this plugin, sets the file in
        the environment and reads the file.
    requirements:
      - enable in configuration
"""


class CallbackModule(CallbackBase):
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "notification"
    CALLBACK_NAME = "collect"
    CALLBACK_NEEDS_ENABLED = True

    def __init__(self) -> None:
        super().__init__()
        self._path = os.environ.get(COLLECT, "")
        self._left: dict[str, int] = defaultdict(lambda: MOST_OF_A_NODE)

    def _take(self, result: Any, **more: bool) -> None:
        content = {**result.result, **more}
        if not self._path or not results.says_something(content):
            return
        role = result.task._role
        name = role.get_name() if role else ""
        said = results.taken(result.host.get_name(), name, result.task.name or result.task.action, content)
        line = f"{json.dumps(said)}\n".encode()
        self._left[said["node"]] -= len(line)
        if self._left[said["node"]] >= 0:
            append(Path(self._path), line)

    def v2_runner_on_ok(self, result: Any) -> None:
        self._take(result)

    def v2_runner_on_failed(self, result: Any, ignore_errors: bool = False) -> None:
        self._take(result, failed=not ignore_errors)

    def v2_runner_on_unreachable(self, result: Any) -> None:
        self._take(result, unreachable=True)
