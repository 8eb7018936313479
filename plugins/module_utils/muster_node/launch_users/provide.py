"""What people have on a node who launch as themselves: looked at, and done where it differs."""

from __future__ import annotations

from typing import Any

from ansible.module_utils.muster.launch_users.model import RECORD, LaunchUsersRequest
from ansible.module_utils.muster.launch_users.plan import make_plan
from ansible.module_utils.muster.launch_users.request import faults, limit_faults, users_of
from ansible.module_utils.muster.verdict.commands import playbook

from ..tools import files
from ..tools.result import TaskRefusedError, diff, lines, refuse
from .act import act
from .look import observe, record

FIX = f"To change it, run {playbook('site.yml', tags='launch_users', launch_users_mode='manage')}"


def request_of(params: dict[str, Any]) -> LaunchUsersRequest:
    limits = {key: params[key] for key in ("memlock", "nofile", "tasks")}
    wrong = [*faults(params["users"], ""), *limit_faults(limits)]
    refuse([f"{what}: {fix}" for what, fix in wrong])
    return LaunchUsersRequest(users_of(params["users"], limits), params["root"], params["torchrun"], params["gpus"])


def provide(params: dict[str, Any], *, check: bool) -> dict[str, Any]:
    """Do what differs, unless this is a check. params: the options of library/launch_users.py."""
    request = request_of(params)
    try:
        noted = record()
    except ValueError as problem:
        raise TaskRefusedError(
            f"{RECORD}: {problem}", "Remove it, and take back by hand what it was about"
        ) from problem
    if not request.users and not noted.users and not noted.group:
        return {"changed": False, "differences": [], "notes": []}
    plan = make_plan(request, observe(request, noted))
    refuse(plan.problems, plan.differences if params["mode"] == "verify" else (), FIX)
    shown = [diff("launch users", lines(plan.lines_before), lines(plan.lines_after))]
    shown += [diff(path, files.text(path) or "", text or "") for path, text in plan.files.items()]
    if plan.needed and not check:
        act(plan, request)
    return {"changed": plan.needed, "differences": plan.differences, "diff": shown, "notes": plan.notes}
