"""Whether the controller can work on this inventory at all."""

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
        yield Problem(
            CONTROLLER,
            f"ansible-core {have} is older than {need}, the oldest that Muster works with",
            "Run script/setup, then .venv/bin/ansible-playbook",
        )
    if python < OLDEST_PYTHON:
        have, need = _dotted(python), _dotted(OLDEST_PYTHON)
        yield Problem(
            CONTROLLER,
            f"Ansible runs with Python {have}, which is older than {need}, the oldest that Muster works with",
            "Run script/setup, which looks for a newer one, then .venv/bin/ansible-playbook",
        )


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


def versions_are_recent(inventory: Inventory) -> Iterator[Problem]:
    yield from is_recent(inventory.ansible_version, inventory.python_version)


def enough_forks(inventory: Inventory) -> Iterator[Problem]:
    count = len(inventory.nodes)
    if inventory.forks < count:
        yield Problem(
            CONTROLLER,
            f"forks is {inventory.forks}, but all {count} nodes are worked on at once",
            f"Set forks to {count} or more in ansible.cfg, or add --forks {count} to the command",
        )


def there_are_nodes(inventory: Inventory) -> Iterator[Problem]:
    if not inventory.nodes:
        yield Problem(
            "inventory",
            "the group gpu_nodes has no nodes",
            "List every node there, as inventory/lab/hosts.yml does, and name that inventory with -i",
        )
