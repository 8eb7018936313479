"""Read the table of security floors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from muster.inspect.floors import SecurityFloor
from muster_controller.playbook.variables import project_root

if TYPE_CHECKING:
    from ansible.parsing.dataloader import DataLoader

FLOORS = "roles/gpu_stack/files/floors.yml"


def security_floors(loader: DataLoader) -> tuple[SecurityFloor, ...]:
    return tuple(SecurityFloor(**row) for row in loader.load_from_file(str(project_root() / FLOORS))["floors"])
