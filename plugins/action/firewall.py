"""The controller's side of a node's firewall; documented in library/firewall.py."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ansible.errors import AnsibleActionFail, AnsibleConnectionFailure
from ansible.plugins.action import ActionBase

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(Path(__file__).parents[1] / room) for room in ("module_utils", "plugin_utils")]

from muster import firewall
from muster.firewall import Look, Plan, Wish, WishError
from muster_connection import NodeConnection, NodeError, connect
from muster_guard import GUARD_ROOT, Command, Guard, GuardError
from muster_vars import node_variables, value_of_nodes

if TYPE_CHECKING:
    from collections.abc import Mapping

PROGRAM = ROOT / "roles/firewall/files/firewall_node.py"
WHAT = "firewall"
MEND = "Compare the rules of others on the node (docs/ports.md) and run again."


class ActionModule(ActionBase):
    _supports_check_mode = True
    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: Mapping[str, Any] | None = None) -> dict[str, Any]:
        task_vars = task_vars or {}
        result: dict[str, Any] = super().run(tmp, task_vars)
        _, options = self.validate_argument_spec(
            argument_spec={
                "mode": {"type": "str", "choices": ["manage", "verify"], "default": "manage"},
                "backend": {"type": "str", "choices": ["auto", "ufw", "nftables"], "default": "auto"},
                "allow": {"type": "list", "elements": "dict", "default": []},
                "tight": {"type": "bool", "default": False},
                "ephemeral_range": {"type": "str", "default": "32768-40959"},
                "launch_ports": {"type": "str", "default": "29400-29599"},
                "confirm_seconds": {"type": "int", "default": 40},
            }
        )
        node = task_vars["inventory_hostname"]
        try:
            wish = self.wish(node, options, task_vars)
            result.update(self.manage(wish, options, task_vars))
        except (WishError, GuardError) as exc:
            message = str(exc)
            raise AnsibleActionFail(message if message.startswith(f"{node}: ") else f"{node}: {message}") from exc
        except NodeError as exc:
            if not exc.reachable:
                raise AnsibleConnectionFailure(str(exc)) from exc
            raise AnsibleActionFail(f"{node}: {exc}") from exc
        return result

    def wish(self, node: str, options: dict[str, Any], task_vars: Mapping[str, Any]) -> Wish:
        own = node_variables(task_vars, self._templar, self._loader, node)
        addresses = value_of_nodes(task_vars, self._templar, self._loader, "cluster_address")
        return firewall.make_wish(node, own, addresses, options)

    def manage(self, wish: Wish, options: dict[str, Any], task_vars: Mapping[str, Any]) -> dict[str, Any]:
        node = connect(self, wish.node, task_vars, PROGRAM.read_text(encoding="utf-8"))
        look = look_at(node)
        settled = False
        if look.guarded and not self._task.check_mode and options["mode"] == "manage":
            # A change that nobody confirmed: what is in force now would be undone under the feet of this run.
            settled = Guard(self, wish.node, task_vars, WHAT).settle()
            look = look_at(node)
        plan = firewall.make_plan(wish, look)
        if options["mode"] == "verify":
            if plan.before != plan.after or plan.steps or plan.packages or look.guarded:
                missing = [line for line in plan.after if line not in plan.before]
                raise WishError(f"its firewall is not as it shall be; it lacks: {'; '.join(missing) or 'a restart'}.")
            return {"changed": False, "backend": plan.backend, "packages": []}
        result: dict[str, Any] = {
            "changed": bool(plan.steps or plan.packages or settled or look.guarded),
            "backend": plan.backend,
            "packages": plan.packages,
        }
        if plan.before != plan.after:
            result["diff"] = {
                "before": "".join(f"{line}\n" for line in plan.before),
                "after": "".join(f"{line}\n" for line in plan.after),
                "before_header": f"{wish.node}: what may come in",
                "after_header": f"{wish.node}: what may come in",
            }
        if plan.packages and not self._task.check_mode:
            # The role installs them and asks again.
            return {**result, "changed": settled}
        if plan.steps and not self._task.check_mode:
            self.carry_out(plan, wish, node, options["confirm_seconds"], task_vars)
        return result

    def carry_out(
        self, plan: Plan, wish: Wish, node: NodeConnection, seconds: int, task_vars: Mapping[str, Any]
    ) -> None:
        def apply() -> None:
            failed = node.call("apply", {"steps": plan.steps}, privileged=True)["failed"]
            if failed:
                raise NodeError(failed, reachable=True)

        Guard(self, wish.node, task_vars, WHAT, seconds).change(
            apply=apply,
            files=list(dict.fromkeys(plan.files)),
            texts=plan.texts,
            undo=[Command(command["argv"], command["text"]) for command in plan.undo],
            mend=MEND,
        )
        after = firewall.make_plan(wish, look_at(node))
        if after.steps:
            step = after.steps[0]
            what = step.get("write") or step.get("remove") or " ".join(step["run"])
            raise WishError(f"the firewall was changed, but is not yet as it shall be: next is {what}. Run again.")


def look_at(node: NodeConnection) -> Look:
    places = {
        "guard": f"{GUARD_ROOT}/{WHAT}",
        "table": firewall.TABLE,
        "rules": firewall.RULES_FILE,
        "unit": firewall.UNIT,
        "sysctl": firewall.SYSCTL_FILE,
    }
    return firewall.read_look(node.call("look", places, privileged=True))
