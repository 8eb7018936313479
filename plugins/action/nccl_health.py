"""Evaluates a node's health inspection on the controller; documented in library/nccl_health.py."""

from __future__ import annotations

from typing import Any

from ansible.errors import AnsibleActionFail

from muster.health.node import NodeHealth, judge_looks
from muster.health.subjects import subjects
from muster_controller.playbook.action import OwnAction
from muster_controller.playbook.documentation import documented_options
from muster_controller.playbook.foreign import foreign
from muster_node.tools.transfer import decode

# Ansible imports this module once and then forks for every node, so the checks are imported only once.
subjects()


class ActionModule(OwnAction):
    """Discards the raw inspection. The facts contain its relevant parts, without secrets."""

    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        _, request = self.validate_argument_spec(documented_options("nccl_health"))
        answer = self._execute_module(module_name="nccl_health", module_args=request, task_vars=task_vars)
        # Only the controller draws conclusions. Findings in a node's response are ignored.
        result.update({name: value for name, value in answer.items() if name not in NodeHealth.__required_keys__})
        if result.get("failed") or result.get("unreachable"):
            return result
        try:
            looks = decode(result.pop("looks"))
        except (KeyError, ValueError) as error:
            raise AnsibleActionFail(f"{request['node']}: invalid response from the node: {error}") from error
        foreign(looks)
        result.update(judge_looks(looks, request))
        return result
