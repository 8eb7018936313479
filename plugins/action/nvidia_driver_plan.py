"""Plans the changes of the NVIDIA driver on a node.

Compares the result of node_inspect with the result of gpu_stack_plan and returns the required changes. On a node whose
driver is not managed by Muster, checks whether the driver works. Fails on the node if a required change is not allowed
(because a GPU is in use, or a driver from a runfile is installed), or if earlier tasks did not make the changes of this
stage. Contacts no node.

needed: Whether changes are required.
differences: The differences, one sentence each.
plan: The required changes. provide is true if there are changes other than a reboot, and reboot contains the reasons
    for a reboot.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any, ClassVar

from ansible.errors import AnsibleActionFail

from muster.nvidia_driver.model import DriverFile, DriverRequest, DriverState
from muster.nvidia_driver.plan import make_plan, settle
from muster_controller.playbook.action import ControllerAction, Options
from muster_controller.playbook.own_machine import is_own_machine

if TYPE_CHECKING:
    from collections.abc import Mapping

    from muster.nvidia_driver.model import DriverPlan

UNKNOWN = "dependencies of the driver, units and a reboot are not known before the driver packages are installed"
PACKAGES = ("pins", "driver", "fabric", "headers")


class ActionModule(ControllerAction):
    OPTIONS: ClassVar[Options] = {
        # State of the node: look (before all changes), settle (packages installed), installed (only a reboot is
        # missing), done.
        "stage": {"type": "str", "choices": ["look", "settle", "installed", "done"], "default": "look"},
        # Name of the variable with the registered node_inspect result.
        "look": {"type": "str", "required": True},
        # stack as returned by gpu_stack_plan.
        "stack": {"type": "dict", "required": True},
        # manage installs the resolved driver. verify only evaluates the installed driver.
        "mode": {"type": "str", "choices": ["manage", "verify"], "required": True},
        # Files of Muster.
        "files": {
            "type": "list",
            "elements": "dict",
            "default": [],
            "options": {
                "path": {"type": "str", "required": True},
                "content": {"type": "str", "required": True},
                "sources": {"type": "list", "elements": "str", "default": []},
            },
        },
        # Whether the node can be rebooted.
        "reboots": {"type": "bool", "default": True},
        # Allows the removal of a driver installed by a runfile.
        "removes_runfile": {"type": "bool", "default": False},
    }

    def work(self) -> dict[str, Any]:
        name = self.task_vars["inventory_hostname"]
        facts = self.task_vars[self.options["look"]]["facts"]
        request = self._request(self.options, name, facts)
        seen = DriverState(facts["stack"], facts["gpus"], facts["secure_boot"], facts["key_enrolled"])
        plan = make_plan(request, seen)
        wrong = settle(plan, request, self.options["stage"])
        if wrong:
            raise AnsibleActionFail(f"{name}: {'. '.join(wrong)}.")
        needed = bool(plan.differences or plan.reboot)
        result = {
            "changed": self._task.check_mode and needed,
            "needed": needed,
            "plan": {
                **asdict(plan),
                "provide": bool(plan.of_kind("disk", "run")),
                "packages": plan.apt or plan.configure or bool(plan.unhold or plan.uninstall),
            },
            "changes": {
                "package": [*request.pins, *request.packages] if plan.apt else [],
                "file": [*(file.path for file in plan.files), *plan.unwanted],
                "unit": [unit["name"] for unit in plan.units],
                "reboot": plan.reboot,
                "unknown": [UNKNOWN] if plan.apt else [],
            },
            "differences": [each.sentence for each in plan.differences if each.sentence],
            "diff": self._diff(plan),
        }
        if plan.remarks:
            result["warnings"] = [f"{name}: {remark}." for remark in plan.remarks]
        return result

    @staticmethod
    def _diff(plan: DriverPlan) -> list[dict[str, str]]:
        """Return the diffs: one for all one-line differences, and one for every file."""
        paths = {file.path for file in plan.files}
        short = [each for each in plan.differences if each.what and each.what not in paths]
        before, after = (
            "".join(f"{each.what}: {getattr(each, side)}\n" for each in short) for side in ("before", "after")
        )
        files = [each for each in plan.differences if each.what in paths]
        return [
            *([{"before": before, "after": after}] if short else []),
            *(
                {"before_header": each.what, "after_header": each.what, "before": each.before, "after": each.after}
                for each in files
            ),
        ]

    def _request(self, given: Mapping[str, Any], name: str, facts: Mapping[str, Any]) -> DriverRequest:
        stack = given["stack"]
        node = stack["nodes"][name]
        manages = given["mode"] == "manage"
        pins, driver, fabric, headers = (
            tuple(package["name"] for package in node[kind] if manages) for kind in PACKAGES
        )
        return DriverRequest(
            source=node["source"],
            build=node["build"],
            branch=stack["branch"],
            exact=stack["driver"],
            files=tuple(DriverFile(**{**each, "sources": tuple(each["sources"])}) for each in given["files"]),
            removes_runfile=given["removes_runfile"],
            reboots=given["reboots"],
            controller=self._is_controller(facts),
            pins=pins,
            driver=driver,
            fabric=fabric,
            headers=headers,
            kept=node["keeps"],
        )

    def _is_controller(self, facts: Mapping[str, Any]) -> bool:
        """Return whether the node is the controller itself, for any type of connection."""
        return self._connection.transport == "local" or is_own_machine(facts["identity"]["machine"])
