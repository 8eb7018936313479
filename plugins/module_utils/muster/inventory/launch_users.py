"""Whether those who are to launch as themselves, and their limits, make sense."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..launch_users.request import KEYS, faults, limit_faults
from .model import Problem

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .model import Inventory


def users_are_accounts(inventory: Inventory) -> Iterator[Problem]:
    for node in inventory.nodes:
        for what, fix in faults(node.variables.get("launch_users"), node.text("cluster_user")):
            yield Problem(node.name, what, fix)


def limits_can_be_set(inventory: Inventory) -> Iterator[Problem]:
    for node in inventory.nodes:
        limits = {key: node.variables.get(f"launch_users_{key}") for key in KEYS}
        for what, fix in limit_faults(limits):
            yield Problem(node.name, f"launch_users_{what} is no limit that can be set", fix)


def users_root_is_a_path(inventory: Inventory) -> Iterator[Problem]:
    for node in inventory.nodes:
        root = node.text("cluster_users_root")
        if "cluster_users_root" in node.variables and not (root.startswith("/") and root.strip("/")):
            yield Problem(
                node.name, f"cluster_users_root is {root!r}, which is no folder of its own", "Write an absolute path"
            )
