"""Who wrote a result: an action of ours on the controller, Ansible there, or a module on the node."""

from __future__ import annotations

from functools import cache
from typing import Any

from ansible.plugins.loader import action_loader

from .action import ControllerAction, OwnAction

# Of Ansible: what they return is what the playbook or the role gives them.
OF_PLAYBOOKS = ("assert", "debug", "fail", "include_role", "pause", "set_fact", "validate_argument_spec")


def is_on_controller(task: Any) -> bool:
    """Whether all of the task's work is done on the controller, so that its verdict and last line are our own."""
    return issubclass(_class_of(task.action), ControllerAction)


def is_foreign(task: Any) -> bool:
    """Whether the task's result is that of a module, which a node may have written as it likes."""
    name = task.action.rpartition(".")[2]
    return name not in OF_PLAYBOOKS and not issubclass(_class_of(task.action), OwnAction)


@cache
def _class_of(action: str) -> type:
    return action_loader.get(action, class_only=True) or object
