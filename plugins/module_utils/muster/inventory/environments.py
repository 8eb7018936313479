"""Whether the environments beside the default one can be built, and whether a launch names one of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..pytorch.environments import DEFAULT
from .job import place
from .model import Problem

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .model import Inventory


def environments_can_be_built(inventory: Inventory) -> Iterator[Problem]:
    yield from inventory.environments


def launches_name_one(inventory: Inventory) -> Iterator[Problem]:
    for node in inventory.nodes[:1]:
        name, declared = node.text("launch_environment"), node.variables.get("cluster_environments")
        known = [DEFAULT, *declared] if isinstance(declared, dict) else [DEFAULT]
        if name and name not in known:
            what = f"launch_environment is {name!r}, which is no environment of this cluster"
            yield Problem(place(inventory, "launch_environment"), what, f"Write one of {', '.join(known)}")
