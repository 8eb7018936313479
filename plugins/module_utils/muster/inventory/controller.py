"""Check the controller: the versions of ansible-core and Python, the number of forks, and that the inventory is not
empty.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .model import OLDEST_PYTHON, Problem

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .model import Inventory

CONTROLLER = "controller"
OLDEST_ANSIBLE = (2, 19)


def is_recent(ansible: tuple[int, ...], python: tuple[int, ...]) -> Iterator[Problem]:
    if ansible < OLDEST_ANSIBLE:
        have, need = _dotted(ansible), _dotted(OLDEST_ANSIBLE)
        what = f"ansible-core {have} is too old; Muster requires {need} or newer"
        fix = "Run script/setup, then use .venv/bin/ansible-playbook"
        yield Problem(CONTROLLER, what, fix)
    if python < OLDEST_PYTHON:
        have, need = _dotted(python), _dotted(OLDEST_PYTHON)
        what = f"Ansible uses Python {have}, which is too old; Muster requires {need} or newer"
        fix = "Run script/setup to create .venv with a newer Python, then use .venv/bin/ansible-playbook"
        yield Problem(CONTROLLER, what, fix)


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


def versions_are_recent(inventory: Inventory) -> Iterator[Problem]:
    yield from is_recent(inventory.ansible_version, inventory.python_version)


def enough_forks(inventory: Inventory) -> Iterator[Problem]:
    count = len(inventory.nodes)
    if inventory.forks < count:
        what = f"forks is {inventory.forks}, but Muster works on all {count} nodes in parallel"
        fix = f"Set forks to at least {count} in ansible.cfg, or add --forks {count} to the command"
        yield Problem(CONTROLLER, what, fix)


def there_are_nodes(inventory: Inventory) -> Iterator[Problem]:
    if not inventory.nodes:
        what = "the group gpu_nodes is empty"
        fix = "List all nodes in gpu_nodes (see inventory/lab/hosts.yml), and pass the inventory with -i"
        yield Problem("inventory", what, fix)
