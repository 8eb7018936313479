"""Compare a node with a baseline request. Later tasks of the role apply the changes."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ansible.module_utils.muster.baseline import model
from ansible.module_utils.muster.baseline.plan import make_plan

from ..tools.result import diff, lines, refuse
from .idle import wait_until_idle
from .look import observe

if TYPE_CHECKING:
    from collections.abc import Mapping


def compare(given: Mapping[str, Any], *, check: bool) -> dict[str, Any]:
    """Wait for other package tools to end, then return the changes that this node needs. given: options of
    library/node_plan.py."""
    request = request_of(given)
    acts = given["mode"] == "manage" and not check
    if acts:
        wait_until_idle(given["wait"], packages=False)
    seen = observe(request)
    verifies = given["mode"] == "verify"
    plan = make_plan(request, seen, verifies=verifies)
    refuse(plan.problems, plan.differences if verifies else (), given["fix"], left_out=plan.left_out)
    if acts and plan.packages:
        wait_until_idle(given["wait"], packages=True)
    # A dangling link is a trace, too.
    traces = [path for path in given["traces"] if os.path.lexists(path)]
    return {**result_of(plan, seen, changed=check and plan.needed), "traces": traces}


def request_of(given: Mapping[str, Any]) -> model.BaselineRequest:
    return model.BaselineRequest(
        packages=tuple(given["packages"]),
        held=tuple(given["held"]),
        refused=given["refused"],
        files=tuple(shaped(model.BaselineFile, each) for each in given["files"]),
        sysctl=tuple(shaped(model.SysctlKey, each) for each in given["sysctl"]),
        sysctl_file=given["sysctl_file"],
        units=tuple(shaped(model.BaselineUnit, each) for each in given["units"]),
        manager=given["manager"],
        login=given["login"],
        user=shaped(model.BaselineAccount, given["user"]) if given["user"] else None,
    )


def shaped(shape: Any, given: Mapping[str, Any]) -> Any:
    """Build a data class from an option with suboptions."""
    return shape(**{name: tuple(value) if isinstance(value, list) else value for name, value in given.items()})


def result_of(plan: model.BaselinePlan, seen: model.BaselineState, *, changed: bool) -> dict[str, Any]:
    folders = sorted({str(Path(file.path).parent) for file in plan.files if not Path(file.path).parent.is_dir()})
    return {
        "changed": changed,
        "needed": plan.needed,
        "plan": {
            "packages": plan.packages,
            "hold": plan.hold,
            "configure": plan.configure,
            "folders": folders,
            "files": [asdict(file) for file in plan.files],
            "sysctl": plan.sysctl,
            "reexec": plan.reexec,
            "units": plan.units,
            "user": asdict(plan.user) if plan.user else {},
        },
        "changes": plan.changes,
        "differences": plan.differences,
        "left_out": plan.left_out,
        "diff": [
            diff("node", lines(plan.before), lines(plan.after)),
            *(
                diff(file.path, there.content if (there := seen.files.get(file.path)) else "", file.content)
                for file in plan.files
            ),
        ]
        # In a real run, the later tasks show their own diff.
        if changed
        else [],
    }
