"""Units of systemd: which do not run, do not start with the system, or have not read what was changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .model import may
from .packages import chosen

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .model import BaselinePlan, BaselineRequest, BaselineState, BaselineUnit, BaselineUnitStep, UnitState

# As `systemctl show` has it for a unit that starts with the system, or that another one starts.
_ENABLED = frozenset({"enabled", "enabled-runtime", "static", "alias", "indirect", "generated", "linked"})
_RUNS = frozenset({"active", "activating", "reloading"})


def plan_units(plan: BaselinePlan, request: BaselineRequest, seen: BaselineState) -> None:
    logind_differs = [name for name, wanted in request.login.items() if seen.login.get(name, wanted) != wanted]
    for unit in request.units:
        name = unit_name(unit, request, seen.packages)
        if not name or not may(plan, seen, unit.needs, name):
            continue
        state = seen.units.get(name, {})
        if unit.optional and state.get("LoadState") == "not-found":
            plan.skip(name, "this machine does not have it")
            continue
        if state.get("LoadState") == "masked":
            plan.skip(name, f"somebody has masked it. To have it run: systemctl unmask {name}")
            continue
        todo: BaselineUnitStep = {"name": name, "enabled": unit.enabled, "active": unit.active, "restart": False}
        why = []
        if unit.enabled and state.get("UnitFileState") not in _ENABLED:
            why.append("does not start with the system")
        if unit.active and state.get("ActiveState") not in _RUNS:
            why.append("does not run")
        elif unit.active:
            older = [path for path in unit.restart_if_older_than if _is_older(state, path, plan, seen)]
            why.extend(f"has not read {path} since it was changed" for path in older)
            if name == "systemd-logind.service":
                why.extend(
                    f"goes by {each}={seen.login[each]} and not {request.login[each]}" for each in logind_differs
                )
                older.extend(logind_differs)
            todo["restart"] = bool(older)
        if why:
            plan.units.append(todo)
            shown = {True: "started anew", False: "enabled and running" if unit.active else "enabled"}[todo["restart"]]
            plan.differs(f"{name} {' and '.join(why)}", name, ", ".join(why), shown)


def _is_older(state: UnitState, path: str, plan: BaselinePlan, seen: BaselineState) -> bool:
    """Whether the unit was started before the file was changed, or is going to be."""
    if path in {file.path for file in plan.files}:
        return True
    changed = seen.changed.get(path)
    # A time in the future is that of a clock which was wrong then: it says nothing.
    return changed is not None and state.get("Started", 0.0) < changed <= seen.now


def unit_name(unit: BaselineUnit, request: BaselineRequest, installed: Iterable[str]) -> str:
    """The unit's name: the one that comes with the package that is there, or will be."""
    if not unit.of:
        return unit.name
    there = {*installed, *(chosen(entry, installed)[0] for entry in request.packages)}
    return next((name for package, name in unit.of.items() if package in there), "")
