"""Runs the module nvidia_driver_packages, and shows what apt does; documented in library/nvidia_driver_packages.py."""

from __future__ import annotations

from typing import Any

from muster_controller.nodes.activity import WatchedAction
from muster_controller.playbook.action import FilledIn


class ActionModule(WatchedAction, FilledIn):
    def from_inventory(self) -> dict[str, Any]:
        return {}
