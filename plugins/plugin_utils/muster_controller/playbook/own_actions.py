"""Determines the origin of a result: the project's action on the controller, Ansible, or a module on the node."""

from __future__ import annotations

from functools import cache
from typing import Any

from ansible.plugins.loader import action_loader

from .action import ControllerAction, OwnAction

# Ansible's actions that return what the playbook or the role gives them.
OF_PLAYBOOKS = ("assert", "debug", "fail", "include_role", "pause", "set_fact", "validate_argument_spec")


def is_on_controller(task: Any) -> bool:
    """Return whether the task runs entirely on the controller, so that its verdict and last line are trusted."""
    return issubclass(_class_of(task.action), ControllerAction)


def is_foreign(task: Any) -> bool:
    """Return whether the task's result comes from a module, in which case a node might have written the result."""
    name = task.action.rpartition(".")[2]
    return name not in OF_PLAYBOOKS and not issubclass(_class_of(task.action), OwnAction)


@cache
def _class_of(action: str) -> type:
    return action_loader.get(action, class_only=True) or object
