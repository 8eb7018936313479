"""Judges on the controller what was looked at on the node; documented in library/nccl_health.py."""

from __future__ import annotations

from typing import Any

from ansible.errors import AnsibleActionFail

from muster.health.node import NodeHealth, judge_looks
from muster.health.subjects import subjects
from muster_controller.playbook.action import OwnAction
from muster_controller.playbook.documentation import documented_options
from muster_controller.playbook.foreign import foreign
from muster_node.tools.transfer import decode

# Ansible imports this once, and then forks for every node: so the judges are imported once.
subjects()


class ActionModule(OwnAction):
    """What was looked at is not kept: the facts hold what matters of it, without secrets."""

    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        _, request = self.validate_argument_spec(documented_options("nccl_health"))
        answer = self._execute_module(module_name="nccl_health", module_args=request, task_vars=task_vars)
        # What is concluded is concluded here: a node that answers with findings of its own has none.
        result.update({name: value for name, value in answer.items() if name not in NodeHealth.__required_keys__})
        if result.get("failed") or result.get("unreachable"):
            return result
        try:
            looks = decode(result.pop("looks"))
        except (KeyError, ValueError) as error:
            raise AnsibleActionFail(f"{request['node']}: the answer cannot be read: {error}") from error
        foreign(looks)
        result.update(judge_looks(looks, request))
        return result
