"""Reads the firewall state of a node, and compares it with the inventory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from muster.firewall import judge, model, services, table
from muster.firewall import plan as firewall_plan
from muster.firewall.forwarding import forwarding_cut_off
from muster.firewall.look import read_look
from muster.verdict.finding import as_lines
from muster_controller.nodes.program import NodeProgram
from muster_controller.playbook.variables import node_variables, project_root

from .guard import GUARD_ROOT

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from muster.firewall.look import FirewallState
    from muster.firewall.model import CutOff, FirewallRequest
    from muster.firewall.plan import FirewallPlan
    from muster.verdict.finding import Finding
    from muster_controller.nodes.connection import NodeConnection

PROGRAM = NodeProgram("firewall")
WHAT = "firewall"
# Failed checks that prevent any change.
BLOCKING = (judge.LAUNCH_BLOCKED.id, judge.SSH_BLOCKED.id)
# The role's paths on a node.
PLACES = {
    "guard": f"{GUARD_ROOT}/{WHAT}",
    "table": table.TABLE,
    "rules": table.RULES_FILE,
    "unit": table.UNIT,
    "sysctl": firewall_plan.SYSCTL_FILE,
    "record": firewall_plan.RECORD,
}
SERVICES = "roles/firewall/files/services.yml"


def look_at(node: NodeConnection) -> FirewallState:
    return read_look(PROGRAM.call(node, "look", PLACES, privileged=True))


def request_of(
    task_vars: Mapping[str, Any], templar: Any, loader: Any, node: str, addresses: Mapping[str, str], options: Any
) -> FirewallRequest:
    own = node_variables(task_vars, templar, loader, node)
    return model.make_request(node, own, addresses, options)


def findings_now(request: FirewallRequest, look: FirewallState) -> list[Finding]:
    """Return findings about the active rules and about the rules that apply after the next boot."""
    return [*judge.judge(request, look, judge.scene_now(look)), *judge.judge_boot(request, look)]


def cut_off(
    loader: Any, request: FirewallRequest, look: FirewallState, plan: FirewallPlan | None = None
) -> Sequence[CutOff]:
    """Return the services and forwarded networks that a run of the role would block."""
    plan = plan or firewall_plan.make_plan(request, look)
    if request.leaves or not (plan.steps or plan.packages):
        return ()
    data = loader.load_from_file(str(project_root() / SERVICES))
    known, planned = services.read_known(data), judge.scene_planned(request, look, plan)
    return [
        *services.services_cut_off(request, look, planned, known),
        *forwarding_cut_off(request, look, plan, data["forwarding"]),
    ]


def blocked_by(findings: list[Finding]) -> list[Finding]:
    return [finding for finding in findings if finding.status == "fail" and finding.id in BLOCKING]


def to_do(request: FirewallRequest, look: FirewallState, mode: str) -> tuple[list[str], list[str]]:
    """Return the reasons to run the role on this node, and the warnings to show if the role does not run."""
    if mode == "verify":
        findings = findings_now(request, look)
        why = as_lines(finding for finding in findings if finding.status == "fail")
        return why, as_lines(finding for finding in findings if finding.status in ("warn", "unknown"))
    plan = firewall_plan.make_plan(request, look)
    findings = judge.judge(request, look, judge.scene_planned(request, look, plan))
    why = as_lines(blocked_by(findings))
    why += [f"{name} is not installed" for name in plan.packages] + (["the rules differ"] if plan.steps else [])
    why += ["a firewall change was not confirmed"] if look.guarded else []
    return why, as_lines(finding for finding in findings if finding.status != "pass")
