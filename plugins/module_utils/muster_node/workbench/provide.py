"""What launch users need on this node for notebooks of their own: looked at, and done where it differs."""

from __future__ import annotations

from typing import Any

from ansible.module_utils.muster.verdict.commands import playbook
from ansible.module_utils.muster.workbench.files import is_kernel
from ansible.module_utils.muster.workbench.plan import WorkbenchRequest, make_plan

from ..tools import files, trust
from ..tools.result import TaskRefusedError, diff, refuse
from .act import act
from .look import observe

FIX = f"To change it, run {playbook('site.yml', tags='workbench', workbench_mode='manage')}"


def request_of(params: dict[str, Any]) -> WorkbenchRequest:
    given = {key: params[key] for key in ("root", "users_root", "programs", "environments")}
    refuse([f"the environment {name!r} cannot name a kernel" for name in params["environments"] if not is_kernel(name)])
    return WorkbenchRequest(**given, present=params["state"] == "present")


def provide(params: dict[str, Any], *, check: bool) -> dict[str, Any]:
    """Do what differs, unless this is a check. params: the options of library/workbench.py."""
    request = request_of(params)
    foreign = trust.foreign_writer(request.root)
    if foreign:
        raise TaskRefusedError(
            f"{request.root} is not safe to use: {foreign}", "Set workbench_root to a folder of root's"
        )
    plan = make_plan(request, observe(request))
    refuse((), plan.differences if params["mode"] == "verify" else (), FIX)
    shown = [diff(path, files.text(path) or "", text or "") for path, text in plan.files.items()]
    if plan.needed and not check:
        act(plan, request)
    return {"changed": plan.needed, "differences": plan.differences, "diff": shown, "notes": plan.notes}
