"""Whether the folders of a file server can be mounted as they are requested."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..shared_data.request import faults
from .model import Problem

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .model import Inventory


def mounts_can_be_had(inventory: Inventory) -> Iterator[Problem]:
    for node in inventory.nodes:
        mounts = node.variables.get("shared_data_mounts", ())
        for what, fix in faults(mounts, node.text("shared_data_scratch")):
            yield Problem(node.name, f"shared_data: {what}", fix)
