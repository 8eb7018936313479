"""Changes the MTU of the training interface.

Works in three steps, because all nodes must have the new MTU before full-size packets can pass between them. step=set
sets the MTU now and for the next boot, and starts a timer on the node that reverts the change. step=try sends full-size
packets that must not be fragmented to other nodes. step=settle keeps the change if all packets arrived and a new
connection works. Otherwise, the node reverts to its previous MTU, and the task fails with the reason.

interface: The training interface.
before: The previous MTU.
paths: For each tested peer, whether a small packet and a full-size packet were returned.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from ansible.errors import AnsibleActionFail

from muster.network import mtu as domain
from muster.verdict.words import few
from muster_controller.network.guard import GUARD_ROOT, Guard, GuardedChange, GuardError, UndoCommand
from muster_controller.nodes.connection import connect
from muster_controller.nodes.program import NodeProgram
from muster_controller.playbook.action import ControllerAction, Options
from muster_controller.playbook.node_error import NodeError
from muster_controller.playbook.variables import node_variables, registered, value_of_nodes

if TYPE_CHECKING:
    from muster_controller.nodes.connection import NodeConnection

PROGRAM = NodeProgram("mtu")
WHAT = "mtu"
FIX = "Check the MTU of the switch ports and interfaces between the nodes (docs/mtu.md)."


class ActionModule(ControllerAction):
    OPTIONS: ClassVar[Options] = {
        # Step to run.
        "step": {"type": "str", "choices": ["set", "try", "settle"], "default": "set"},
        # MTU of the training interface.
        "mtu": {"type": "int", "required": True},
        # verify changes nothing and fails on differences.
        "mode": {"type": "str", "choices": ["manage", "verify"], "default": "manage"},
        # Time in seconds after which a node reverts an unconfirmed change.
        "confirm_seconds": {"type": "int", "default": 120},
        # Name of the variable with the registered first step of each node.
        "changes": {"type": "str", "default": ""},
        # Name of the variable with the registered second step of each node.
        "paths": {"type": "str", "default": ""},
    }

    def work(self) -> dict[str, Any]:
        self.node = self.task_vars["inventory_hostname"]
        self.mtu: int = self.options["mtu"]
        steps = {"set": self.set, "try": self.try_paths, "settle": self.settle}
        try:
            return steps[self.options["step"]]()
        except GuardError as exc:
            raise AnsibleActionFail(str(exc)) from exc

    def set(self) -> dict[str, Any]:
        node = connect(self, self.node, self.task_vars)
        verifies = self.options["mode"] == "verify"
        look = self.look_at(node)
        settled = False
        if look["guarded"] and not verifies and not self._task.check_mode:
            # An unconfirmed change is in force. Its timer would undo it during this run.
            settled = Guard(self, self.node, self.task_vars, WHAT).settle()
            look = self.look_at(node)
        seen = domain.read(look)
        if isinstance(seen, str):
            raise AnsibleActionFail(f"{self.node}: {seen}. Set cluster_interface to the training interface.")
        plan = domain.plan(self.mtu, seen)
        if verifies and plan.differences:
            fix = "To apply the changes, set mtu_mode to manage"
            raise AnsibleActionFail(f"{self.node}: {'; '.join(plan.differences)}. {fix}.")
        if plan.refusal and not verifies:
            raise AnsibleActionFail(f"{self.node}: {plan.refusal}.")
        result: dict[str, Any] = {
            "changed": bool(plan.steps or settled),
            "interface": seen.interface,
            "before": seen.mtu,
            "token": "",
        }
        if plan.steps:
            header = f"{self.node}: MTU of {seen.interface}"
            before, after = (
                f"{now} now, {kept or 'system default'} after the next boot\n"
                for now, kept in ((seen.mtu, seen.kept), (self.mtu, self.mtu))
            )
            result["changes"] = {"mtu": [f"{seen.interface} {seen.mtu} to {self.mtu}"], "file": [*plan.files]}
            result["diff"] = {"before": before, "after": after, "before_header": header, "after_header": header}
        if plan.steps and not self._task.check_mode:
            change = self.begin(node, plan)
            result.update(token=change.token, began=change.began)
        return result

    def begin(self, node: NodeConnection, plan: domain.MtuPlan) -> GuardedChange:
        def apply() -> None:
            failed = PROGRAM.call(node, "apply", {"steps": list(plan.steps)}, privileged=True)["failed"]
            if failed:
                raise NodeError(failed, reachable=True)

        return Guard(self, self.node, self.task_vars, WHAT, self.options["confirm_seconds"]).begin(
            apply=apply, files=plan.files, undo=[UndoCommand(argv) for argv in plan.undo], fix=FIX
        )

    def try_paths(self) -> dict[str, Any]:
        addresses = value_of_nodes(self.task_vars, self._templar, self._loader, "cluster_address")
        nodes = [name for name in addresses if name in self.task_vars["ansible_play_hosts_all"]]
        peers = {peer: addresses[peer] for peer in domain.peers_of(self.node, nodes)}
        own = registered(self.task_vars, self.node, self.options["changes"])
        asked = {"interface": own["interface"], "mtu": self.mtu, "peers": peers}
        try:
            came = PROGRAM.call(connect(self, self.node, self.task_vars), "ping", asked, privileged=True)["came"]
        except NodeError as exc:
            # The step settle handles the error. If the node stays unreachable, its timer reverts the change.
            return {"paths": {}, "why": str(exc)}
        return {"paths": {peer: {**seen, "address": peers[peer]} for peer, seen in came.items()}, "why": ""}

    def settle(self) -> dict[str, Any]:
        paths = []
        whys = {}
        for name in self.task_vars["ansible_play_hosts"]:
            tried = registered(self.task_vars, name, self.options["paths"])
            whys[name] = tried.get("why", "")
            paths += [
                domain.Path(name, peer, seen["address"], seen["small"], seen["full"])
                for peer, seen in tried.get("paths", {}).items()
            ]
        judged = domain.judge(paths, self.mtu)
        own = registered(self.task_vars, self.node, self.options["changes"])
        reasons = [*domain.ended(self.node, judged, interface=own["interface"], changed=bool(own["token"]))]
        # No node keeps the change if another node may not have it.
        if own["token"]:
            reasons += [f"the paths from {name} could not be tested ({why})" for name, why in whys.items() if why]
        guard = Guard(self, self.node, self.task_vars, WHAT, self.options["confirm_seconds"])
        if own["token"]:
            change = GuardedChange(own["token"], own["began"])
            if reasons:
                guard.take_back(change, "; ".join(reasons))
            guard.keep(change, FIX)
        elif reasons:
            raise AnsibleActionFail(f"{self.node}: {'; '.join(reasons)}.")
        silent = judged.silent.get(self.node, ())
        if not silent:
            return {}
        note = f"{self.node}: {few(silent)} did not respond, so the MTU of the path is unknown."
        return {"warnings": [note]}

    def look_at(self, node: NodeConnection) -> dict[str, Any]:
        own = node_variables(self.task_vars, self._templar, self._loader, self.node)
        asked = {
            "interface": own["cluster_interface"],
            "address": own["cluster_address"],
            "guard": f"{GUARD_ROOT}/{WHAT}",
        }
        return PROGRAM.call(node, "look", asked, privileged=True)
