"""The controller's side of an upgrade; documented in library/upgrade.py."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parents[1] / room) for room in ("module_utils", "plugin_utils")]

from ansible.errors import AnsibleActionFail

from muster.upgrade.model import Request
from muster_controller.playbook.action import ControllerAction
from muster_controller.upgrade.upgrading import UpgradeError, Upgrading


class ActionModule(ControllerAction):
    """Contacts all nodes from the controller, and looks at them alone."""

    def work(self) -> dict[str, Any]:
        options = self.options
        look = options["look"]
        given = look.get("request") or {
            "torch": options["torch_version"],
            **{name: options[name] for name in ("kernel", "driver", "rollback", "canary", "batch", "wait")},
        }
        work = Upgrading(self, Request(**given), options)
        steps = {
            "look": work.look,
            "kernels": work.kernels,
            "drivers": work.drivers,
            "plan": work.plan,
            "turn": work.turn,
            "ready": work.ready,
            "started": work.started,
            "trials": work.trials,
            "good": work.good,
            "red": work.red,
            "rest": work.rest,
            "end": work.end,
        }
        try:
            return steps[options["step"]]()
        except UpgradeError as problem:
            raise AnsibleActionFail(str(problem)) from None
