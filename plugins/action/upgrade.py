"""The controller's side of an upgrade.

Used once for each step, with run_once. Contacts all nodes at once, each by the connection that the inventory gives
it, and only looks at them - who is at work there, which environment of PyTorch is in use, and which kernels there
are. What is changed on a node is the work of the roles that are included between the steps.

msg: What it comes to, for people.
kind: What becomes another one, pytorch, driver or kernel.
nodes: What each node gets, by name.
torch: The release of PyTorch that nodes are to have.
batches: Nodes in the order in which they change.
go: Nodes of the batch that nobody works on.
left: Why each other node of the batch is left for later.
red: Why nothing more is changed.
launches: The nodes of each launch.
"""

from __future__ import annotations

from typing import Any, ClassVar

from ansible.errors import AnsibleActionFail

from muster.upgrade.model import UpgradeRequest
from muster_controller.playbook.action import ControllerAction, Options
from muster_controller.upgrade.upgrading import UpgradeError, Upgrading


class ActionModule(ControllerAction):
    """Contacts all nodes from the controller, and looks at them alone."""

    OPTIONS: ClassVar[Options] = {
        # look looks at all nodes, and finds out what is asked for. kernels asks the apt of every node which security
        # fixes its kernel is to have, and how it goes back. drivers finds out which nodes are to have another driver,
        # and what of theirs is kept. plan says what changes where, and in which order.
        "step": {
            "type": "str",
            "choices": [
                "look",
                "kernels",
                "drivers",
                "plan",
                "turn",
                "ready",
                "started",
                "trials",
                "good",
                "red",
                "rest",
                "end",
            ],
            "required": True,
        },
        # Release of PyTorch.
        "torch_version": {"type": "str", "default": ""},
        # Branch or version of the driver.
        "driver": {"type": "str", "default": ""},
        # security for the newest security fixes of each node's kernel.
        "kernel": {"type": "str", "default": ""},
        # Whether the environments go back to those that were kept.
        "rollback": {"type": "bool", "default": False},
        # The node that is the first.
        "canary": {"type": "str", "default": ""},
        # Nodes that change at a time. 0 for a quarter of them.
        "batch": {"type": "int", "default": 0},
        # Seconds to wait for a node that somebody works on.
        "wait": {"type": "int", "default": 0},
        # What the launches try that are made on nodes that have changed. none launches nothing.
        "smoke": {"type": "str", "choices": ["quick", "full", "none"], "default": "quick"},
        # What step=look returned.
        "look": {"type": "dict", "default": {}},
        # What step=plan returned.
        "plan": {"type": "dict", "default": {}},
        # What step=kernels or step=drivers returned.
        "gets": {"type": "dict", "default": {}},
        # What gpu_stack_plan has resolved for all nodes.
        "stack": {"type": "dict", "default": {}},
        # Name of the variable in which node_inspect was registered.
        "looks": {"type": "str", "default": ""},
        # Name of the variable in which pytorch_env was registered.
        "torch_looks": {"type": "str", "default": ""},
        # Why the batch is not good.
        "why": {"type": "str", "default": ""},
    }

    def work(self) -> dict[str, Any]:
        options = self.options
        look = options["look"]
        given = look.get("request") or {
            "torch": options["torch_version"],
            **{name: options[name] for name in ("kernel", "driver", "rollback", "canary", "batch", "wait")},
        }
        work = Upgrading(self, UpgradeRequest(**given), options)
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
