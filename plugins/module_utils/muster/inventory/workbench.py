"""Whether the nodes and the packages of the workbench make sense."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

from ..pytorch.request import EnvironmentRequestError, make_plain_request
from .model import Problem

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .model import Inventory

ANY_PYTHON = "3.12"  # whether a pin can be read does not depend on it


def nodes_exist(inventory: Inventory) -> Iterator[Problem]:
    nodes = [node.name for node in inventory.nodes]
    for node in inventory.nodes:
        chosen = node.variables.get("workbench_nodes")
        for name in chosen if isinstance(chosen, list) else ():
            if name not in nodes:
                close = difflib.get_close_matches(str(name), nodes, n=1)
                hint = f"Write {close[0]}, if that is meant" if close else "Add it to gpu_nodes, or take it out"
                yield Problem(node.name, f"workbench_nodes names {name}, which is not in gpu_nodes", hint)


def packages_are_pins(inventory: Inventory) -> Iterator[Problem]:
    for node in inventory.nodes:
        packages, version = node.variables.get("workbench_packages", []), node.text("workbench_jupyterlab") or "1"
        try:
            if isinstance(packages, list):
                make_plain_request("jupyterlab", version=version, packages=[*map(str, packages)], python=ANY_PYTHON)
        except EnvironmentRequestError as problem:
            what, _, fix = str(problem).rpartition(". ")
            yield Problem(node.name, what, fix)
