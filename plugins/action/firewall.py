"""Controller side of a node's firewall; documented in library/firewall.py."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ansible.utils.display import Display

from muster.firewall import judge, services
from muster.firewall import plan as firewall_plan
from muster.firewall.model import FirewallError, FirewallRequest
from muster.verdict.finding import Finding, as_lines
from muster_controller.network.firewall_look import (
    PROGRAM,
    WHAT,
    blocked_by,
    cut_off,
    findings_now,
    look_at,
    request_of,
)
from muster_controller.network.guard import Guard, GuardError, UndoCommand
from muster_controller.nodes.connection import NodeConnection, connect
from muster_controller.playbook.action import ControllerAction
from muster_controller.playbook.node_error import NodeError
from muster_controller.playbook.terminal import typed
from muster_controller.playbook.variables import value_of_nodes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from muster.firewall.look import FirewallState
    from muster.firewall.plan import FirewallPlan
    from muster.verdict.finding import FindingShape

NO_RECORD = (
    "{node}: ufw stays active, because the state of the firewall before Muster is not recorded on the node. To"
    " deactivate it, run on the node: ufw disable"
)
FIX = "Check the node for firewall rules that Muster does not manage (docs/ports.md) and run the command again."


class ActionModule(ControllerAction):
    def work(self) -> dict[str, Any]:
        node = self.task_vars["inventory_hostname"]
        try:
            request = self.request(node, self.options, self.task_vars)
            return self.manage(request, self.options, self.task_vars)
        except (FirewallError, GuardError) as exc:
            message = str(exc)
            return {"failed": True, "msg": message if message.startswith(f"{node}: ") else f"{node}: {message}"}
        except NodeError as exc:
            if not exc.reachable:
                raise
            return {"failed": True, "msg": f"{node}: {exc}"}

    def request(self, node: str, options: dict[str, Any], task_vars: Mapping[str, Any]) -> FirewallRequest:
        addresses = value_of_nodes(task_vars, self._templar, self._loader, "cluster_address")
        return request_of(task_vars, self._templar, self._loader, node, addresses, options)

    def verify(self, request: FirewallRequest, look: FirewallState) -> dict[str, Any]:
        findings = findings_now(request, look)
        failed = [finding for finding in findings if finding.status == "fail"]
        result = {"changed": False, "packages": [], "findings": as_dicts(findings)}
        if failed:
            lines = as_lines(failed)
            return {
                **result,
                "failed": True,
                "msg": lines[0] if len(lines) == 1 else "\n".join(f"- {x}" for x in lines),
            }
        return {
            **result,
            "warnings": as_lines(one for one in findings if one.status in ("warn", "unknown")),
        }

    def manage(self, request: FirewallRequest, options: dict[str, Any], task_vars: Mapping[str, Any]) -> dict[str, Any]:
        node = connect(self, request.node, task_vars)
        look = look_at(node)
        if options["mode"] == "verify":
            return self.verify(request, look)
        settled = False
        if look.guarded and not self._task.check_mode:
            # An unconfirmed change is in force. Its timer would undo it during this run.
            settled = Guard(self, request.node, task_vars, WHAT).settle()
            look = look_at(node)
        plan = firewall_plan.make_plan(request, look)
        planned = judge.scene_planned(request, look, plan)
        findings = judge.judge(request, look, planned)
        blocked = blocked_by(findings)
        if blocked:
            lines = [*as_lines(blocked), f"{request.node}: nothing was changed."]
            return {"changed": settled, "failed": True, "msg": "\n".join(lines), "findings": as_dicts(blocked)}
        lost = cut_off(self._loader, request, look, plan)
        findings += services.findings_of(request.node, lost)
        stop = "" if self._task.check_mode else services.refusal({request.node: lost})
        if stop:
            return {"changed": settled, "failed": True, "msg": stop, "findings": as_dicts(findings)}
        if request.leaves:
            findings = []  # the ports that others may reach are no longer managed by Muster
        notes = as_lines([finding for finding in findings if finding.status != "pass"])
        if request.leaves and plan.steps and look.before is None and look.ufw_runs:
            notes.append(NO_RECORD.format(node=request.node))
        result: dict[str, Any] = {
            "changed": bool(plan.steps or plan.packages or settled or look.guarded),
            "backend": plan.backend,
            "packages": plan.packages,
            "findings": as_dicts(findings),
            "changes": {"package": plan.packages, "firewall": plan.changed_lines},
        }
        if notes:
            result["msg"] = "\n".join(notes)
        if plan.before != plan.after:
            result["diff"] = {
                "before": "".join(f"{line}\n" for line in plan.before),
                "after": "".join(f"{line}\n" for line in plan.after),
                "before_header": f"{request.node}: allowed incoming traffic",
                "after_header": f"{request.node}: allowed incoming traffic",
            }
        if plan.packages and not self._task.check_mode:
            # The role installs the packages and runs this action again.
            return {**result, "changed": settled}
        for note in notes:
            # Immediately, so that a user sees what is cut off while there is time to interrupt the run.
            Display().warning(typed(note))
        if plan.steps and not self._task.check_mode:
            self.carry_out(plan, request, node, Guard(self, request.node, task_vars, WHAT, options["confirm_seconds"]))
        return result

    def carry_out(self, plan: FirewallPlan, request: FirewallRequest, node: NodeConnection, guard: Guard) -> None:
        def apply() -> None:
            failed = PROGRAM.call(node, "apply", {"steps": plan.steps}, privileged=True)["failed"]
            if failed:
                raise NodeError(failed, reachable=True)

        guard.change(
            apply=apply,
            files=list(dict.fromkeys(plan.files)),
            texts=plan.texts,
            undo=[UndoCommand(command["argv"], command["text"]) for command in plan.undo],
            fix=FIX,
        )
        after = firewall_plan.make_plan(request, look_at(node))
        if after.steps:
            step = after.steps[0]
            what = step.get("write") or step.get("remove") or " ".join(step["run"])
            raise FirewallError(f"the firewall was changed, but not completely (next step: {what}). Run it again.")


def as_dicts(findings: list[Finding]) -> list[FindingShape]:
    return [finding.as_dict() for finding in findings]
