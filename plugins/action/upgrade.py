"""Controller side of an upgrade.

Each step of an upgrade uses this action once, with run_once. Contacts all nodes at once, with the connection settings
of the inventory. Only reads the state of the nodes: running launches and processes, the active PyTorch environment, and
the installed kernels. Roles that run between the steps change the nodes.

msg: The result of the step, as text.
kind: The component to upgrade: pytorch, driver or kernel.
nodes: The target of each node, by name.
torch: The target PyTorch version.
batches: Nodes in the order of their upgrade.
go: The idle nodes of the batch, which can be upgraded now.
left: For each other node of the batch, why its upgrade is postponed.
red: Why the upgrade stops before other nodes are changed.
launches: The nodes of each launch.
"""

from __future__ import annotations

from typing import Any, ClassVar

from ansible.errors import AnsibleActionFail

from muster.upgrade.model import UpgradeRequest
from muster_controller.playbook.action import ControllerAction, Options
from muster_controller.upgrade.upgrading import UpgradeError, Upgrading


class ActionModule(ControllerAction):
    """Contacts all nodes from the controller, and only reads their state."""

    OPTIONS: ClassVar[Options] = {
        # look inspects all nodes and determines the request. kernels queries apt on each node for kernel security fixes
        # and for the rollback. drivers finds the nodes that need another driver and the packages to keep. plan reports
        # the changes per node and their order.
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
        # PyTorch version.
        "torch_version": {"type": "str", "default": ""},
        # Driver branch or version.
        "driver": {"type": "str", "default": ""},
        # security selects the newest kernel security fixes of each node.
        "kernel": {"type": "str", "default": ""},
        # Switches back to the previous environments.
        "rollback": {"type": "bool", "default": False},
        # First node to upgrade.
        "canary": {"type": "str", "default": ""},
        # Number of nodes per batch. 0 means a quarter of all nodes.
        "batch": {"type": "int", "default": 0},
        # Time in seconds to wait for a busy node.
        "wait": {"type": "int", "default": 0},
        # Scope of the test launches on upgraded nodes. none launches nothing.
        "smoke": {"type": "str", "choices": ["quick", "full", "none"], "default": "quick"},
        # Result of step=look.
        "look": {"type": "dict", "default": {}},
        # Result of step=plan.
        "plan": {"type": "dict", "default": {}},
        # Result of step=kernels or step=drivers.
        "gets": {"type": "dict", "default": {}},
        # Stack that gpu_stack_plan resolved for all nodes.
        "stack": {"type": "dict", "default": {}},
        # Name of the variable with the registered node_inspect result.
        "looks": {"type": "str", "default": ""},
        # Name of the variable with the registered pytorch_env result.
        "torch_looks": {"type": "str", "default": ""},
        # Reason why the batch failed.
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
