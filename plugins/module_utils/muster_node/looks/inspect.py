"""Collect data on a machine before it becomes a node. muster/inspect/facts.py evaluates the data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..tools.boot import firmware
from . import adapters, bus, clock, disk, environments, listeners, packages, services, stack, users
from . import system as look_system

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


SUBJECTS = (
    *("system", "users", "pci", "boot", "network", "listeners", "clock", "services", "packages", "disk", "stack"),
    *("rdma", "environments"),
)


def look_at(wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Return the data by subject. wanted: options of library/node_inspect.py."""
    subjects = wanted["only"] or SUBJECTS
    system = look_system.look()
    ways: dict[str, Callable[[], Any]] = {
        "users": lambda: users.look(wanted["user"]),
        "pci": bus.look,
        "boot": firmware,
        "network": lambda: adapters.interfaces(wanted["peers"]),
        "listeners": listeners.look,
        "clock": clock.look,
        "services": lambda: services.look(system["root"]),
        "packages": packages.look,
        "disk": lambda: disk.look(wanted["paths"]),
        "stack": stack.look,
        "rdma": adapters.look,
        "environments": lambda: environments.look(wanted["user"], wanted["prefixes"]),
    }
    return {"system": system, **{name: look() for name, look in ways.items() if name in subjects}}
