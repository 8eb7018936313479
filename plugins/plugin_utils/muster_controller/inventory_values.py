"""Values of options of the whole cluster, in the inventory of this run."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .variables import load_roles, read_node

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .action import ControllerAction


@dataclass
class Kept:
    """diffs: as Ansible shows them. by_hand: what somebody has to write."""

    diffs: list[dict[str, str]] = field(default_factory=list)
    by_hand: list[str] = field(default_factory=list)

    @property
    def changed(self) -> bool:
        return bool(self.diffs)


def keep_values(action: ControllerAction, values: Mapping[str, Any], *, check: bool) -> Kept:
    kept = Kept()
    roles = load_roles(action._loader)
    nodes = action.task_vars["groups"]["gpu_nodes"]
    for name, value in values.items():
        read = [read_node(action.task_vars, action._templar, roles, node, [name]).values.get(name) for node in nodes]
        if any(one != value for one in read):
            kept.by_hand.append(f'Write into the inventory, for all nodes:\n\n{name}: "{value}"\n')
    return kept
