"""An upgrade as the controller sees it through: it looks at all nodes at once, and says who changes when.

What is known of the nodes that changed before is what their tasks registered in this run; nothing is kept for another
run, which looks again.
"""

from __future__ import annotations

import time
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from muster.nvidia_driver.model import Seen as DriverSeen
from muster.pytorch.request import RequestError, make_request
from muster.upgrade import driver, kernel, say, say_kernel
from muster.upgrade.asked import problems
from muster.upgrade.model import Change, Node, Request
from muster.upgrade.order import put_in_order, trials
from muster.upgrade.previous import going_back, release_of
from muster.upgrade.seen import WorkSeen, read
from muster_controller.inventory.inventory_values import keep_values
from muster_controller.nodes.asking import ask_nodes
from muster_controller.nodes.program import Program
from muster_controller.playbook.node_error import one_line
from muster_controller.playbook.own_machine import is_own_machine
from muster_controller.playbook.variables import load_roles, read_node, registered

from . import kernels
from .turns import Turns

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from muster_controller.playbook.action import ControllerAction

PROGRAM = Program("at_work")
BROUGHT = "__nvidia_driver_look"  # what the role nvidia_driver saw once the packages had come
AGAIN = 5.0  # seconds between two looks at a node that is waited for
LIMITED = "--limit leaves it out"
OF_A_NODE = (
    *("pytorch_root", "cluster_torch_version", "cluster_quarantined"),
    *("gpu_stack_driver", "nvidia_driver_mode", "nvidia_driver_reboot"),
)


class UpgradeError(Exception):
    """Nothing goes on. The message is for the user."""


class Upgrading:
    def __init__(self, action: ControllerAction, request: Request, options: Mapping[str, Any]) -> None:
        self.action = action
        self.request = request
        self.options = options
        self.vars = action.task_vars
        self.names = list(self.vars["groups"].get("gpu_nodes", []))
        self.turns = Turns(self.vars, options["plan"], self.names)

    # ------------------------------------------------------------ the steps

    def look(self) -> dict[str, Any]:
        wrong = [*problems(self.request), *self._unusable()]
        if wrong:
            raise UpgradeError("\n".join(wrong))
        seen = self._ask(self.names)
        request = self.request
        if request.rollback:
            there = {name: one.environments for name, one in seen.items() if not one.silent}
            release, why = going_back(there, self._listed("cluster_torch_version"), request.torch)
            if why:
                raise UpgradeError(f"Nothing can be gone back to. {why}.")
            request = replace(request, torch=release)
        silent = {name: one.silent for name, one in seen.items() if one.silent}
        return {
            "request": asdict(request),
            "kind": request.kind,
            "torch": request.torch,
            "silent": silent,
            "busy": {name: list(one.busy) for name, one in seen.items()},
            "releases": {name: one.environments.release for name, one in seen.items()},
        }

    def kernels(self) -> dict[str, Any]:
        """Which security fixes each node that can be asked gets of its kernel."""
        known, played = self.options["look"]["silent"], self.vars["ansible_play_hosts"]
        asked = [name for name in played if name in self.names and name not in known]
        seen, silent = kernels.look(self.action, asked, self.options["looks"])
        fixes = kernels.resolve(self.action, seen)
        silent.update({name: kernels.LISTS for name in self.names if name not in (*known, *seen, *silent)})
        own = {name: why for name, why in kernels.own_machine(seen, fixes).items() if fixes[name].changes}
        return {
            "nodes": {name: asdict(fix) for name, fix in fixes.items()},
            "loaded": {name: one.loaded for name, one in seen.items()},
            "silent": {**silent, **own},
        }

    def drivers(self) -> dict[str, Any]:
        """Whether each node that could be looked at is to have another driver."""
        names, stack = self.vars["ansible_play_hosts"], self.options["stack"]
        turns, silent = {}, {}
        for name in names:
            facts = registered(self.vars, name, self.options["looks"])["facts"]
            own = self._read(name)
            seen = DriverSeen(facts["stack"], facts["gpus"], facts["secure_boot"])
            reboots = own["nvidia_driver_reboot"] == "auto"
            turns[name] = driver.turn_of(name, stack, seen, mode=own["nvidia_driver_mode"], reboots=reboots)
            if turns[name].changes and is_own_machine(facts["identity"]["machine"]):
                silent[name] = driver.by_hand(self.request.driver, name)
        return {"nodes": {name: asdict(turn) for name, turn in turns.items()}, "silent": silent}

    def plan(self) -> dict[str, Any]:
        nodes = [self._node(name) for name in self.names]
        order = put_in_order(nodes, self.request)
        gets = self._gets()
        cannot = [why for name, one in gets.items() for why in one.refusals if name not in order.silent]
        refusals = [*cannot] if cannot else [*order.refusals, *self._not_kept(nodes)]
        if refusals:
            raise UpgradeError("\n".join(f"{one.rstrip('. ')}." for one in refusals))
        launches = self.options["smoke"] != "none" and not self.request.rollback
        return {
            "msg": "\n".join(
                [say.planned(nodes, order, self.request, launches=launches), *say_kernel.packages(self._fixes(), order)]
            ),
            "changed": self.action._task.check_mode and bool(order.batches),
            "batches": [list(batch) for batch in order.batches],
            "order": [name for batch in order.batches for name in batch],
            "sizes": [len(batch) for batch in order.batches] or [1],
            "proved": list(order.proved),
            "silent": dict(order.silent),
            "nodes": [asdict(node) for node in nodes],
            "gets": self.options["gets"],
        }

    def turn(self) -> dict[str, Any]:
        batch = list(self.vars["ansible_play_batch"])
        red = self.turns.red_before(batch)
        if red:
            return {"go": [], "left": {}, "red": red}
        go, left = self._idle(batch, self.request.wait)
        lines = [f"{name} is left for later: {why}." for name, why in left.items()]
        return {"go": go, "left": left, "red": "", **({"msg": "\n".join(lines)} if lines else {})}

    def trials(self) -> dict[str, Any]:
        if self.options["smoke"] == "none" or self.request.rollback:
            return {"launches": []}
        batch = list(self.vars["ansible_play_batch"])
        plan = self.options["plan"]
        good = [*self.turns.good(), *plan["proved"]]
        idle, _ = self._idle(good, 0) if good else ([], {})
        nodes = [Node(one["name"], quarantined=one["quarantined"]) for one in plan["nodes"]]
        first = bool(plan["batches"]) and batch[0] in plan["batches"][0]
        return {"launches": trials(batch, idle, nodes, first=first)}

    def ready(self) -> dict[str, Any]:
        """Fails where this node would not come up as it was, with its newest kernel."""
        name = self.vars["inventory_hostname"]
        seen = kernels.as_it_is(self.action, name, self.options["looks"])
        if why := kernel.unready(seen, self._fixes()[name]):
            raise UpgradeError(f"{name} is not started anew: {why}")
        return {}

    def started(self) -> dict[str, Any]:
        """Fails where it has not come up so."""
        name = self.vars["inventory_hostname"]
        seen = kernels.as_it_is(self.action, name, self.options["looks"])
        before = self.options["plan"]["gets"]["loaded"].get(name, "")
        if why := kernel.wrong_after(seen, self._fixes()[name], before):
            raise UpgradeError(f"{name}: {why}")
        return {}

    def good(self) -> dict[str, Any]:
        return {"good": True}

    def red(self) -> dict[str, Any]:
        why = self.options["why"].strip().removeprefix(f"{self.vars['inventory_hostname']}: ")
        return {"red": why}

    def rest(self) -> dict[str, Any]:
        """Launch on all nodes where all have it, unless a launch of all of them was good already."""
        state = self.turns.state()
        launches = []
        wanted = self.options["smoke"] != "none" and not self.request.rollback and not state["red"]
        if wanted and not state["left"] and self._is_news():
            plan = self.options["plan"]
            launched = [n["name"] for n in plan["nodes"] if n["name"] in state["done"] and not n["quarantined"]]
            tried = self.turns.tried(state["done"])
            busy = self._idle(launched, 0)[1] if launched else {}
            if launched and not busy and not any(set(launched) <= one for one in tried):
                launches = [launched]
        return {"launches": launches, "state": state}

    def end(self) -> dict[str, Any]:
        state = self.turns.state()
        why = self.options["why"].strip()
        if why:
            state["red"] = {", ".join(state["done"]): why}
        if state["red"]:
            touched = [name for name in self.names if name in (*state["red"], *self.turns.good())]
            back = [line for name in touched for line in self._going_back(name)]
            raise UpgradeError(say.ended_red(self.request, state["red"], state["untouched"], back))
        if state["left"]:
            raise UpgradeError(say.left_for_later(self.request, state["left"], state["done"]))
        kept = keep_values(self.action, self._values(), check=self.action._task.check_mode)
        text = say.complete(self.request, state["done"], state["silent"])
        said = {"msg": "\n".join([text, *kept.by_hand]), "outcome": text.rstrip(".")}
        return {**said, "changed": kept.changed, "diff": kept.diffs}

    # ------------------------------------------------------------ what is known

    def _unusable(self) -> list[str]:
        try:
            if self.request.torch:
                make_request(torch_version=self.request.torch, variant="cpu", gpus=0, packages=[], python="3.10")
        except RequestError as problem:
            return [f"{str(problem).replace('cluster_torch_version', 'torch_version')}."]
        return []

    def _values(self) -> dict[str, str]:
        asked = {"cluster_torch_version": self.request.torch, "gpu_stack_driver": self.request.driver}
        return {name: value for name, value in asked.items() if value}

    def _is_news(self) -> bool:
        """Whether the inventory does not have it yet, or something was changed."""
        changed = bool(self.options["plan"]["batches"])
        return changed or any(self._listed(name) != value for name, value in self._values().items())

    def _read(self, name: str) -> Mapping[str, Any]:
        roles = load_roles(self.action._loader, "cluster", "pytorch", "gpu_stack", "nvidia_driver")
        return read_node(self.vars, self.action._templar, roles, name, OF_A_NODE).values

    def _listed(self, option: str) -> str:
        return str(self._read(self.names[0]).get(option, ""))

    def _node(self, name: str) -> Node:
        look = self.options["look"]
        quarantined = bool(self._read(name).get("cluster_quarantined"))
        silent = look["silent"].get(name, "") or self._failed(name)
        gets = self.options["gets"]
        if self.request.kind != "pytorch" and not silent:
            silent = gets["silent"].get(name, "") or ("" if name in gets["nodes"] else "it could not be looked at")
        changes = () if silent else tuple(self._changes(name))
        return Node(name, changes, tuple(look["busy"].get(name, ())), silent, quarantined)

    def _failed(self, name: str) -> str:
        """Why a look at the node failed, which leaves it out of what comes behind."""
        look = registered(self.vars, name, self.options["torch_looks"])
        if look.get("failed") or look.get("unreachable"):
            return one_line(str(look.get("msg", ""))).removeprefix(f"{name}: ") or "it could not be looked at"
        return ""

    def _gets(self) -> dict[str, kernel.Fix | driver.Turn]:
        """What was found out for each node: given to the plan, and by it to all that comes behind."""
        given = self.options["gets"] or self.options["plan"].get("gets", {})
        shapes = given.get("nodes", {})
        if self.request.kind == "kernel":
            return {name: kernel.fix_of(shape) for name, shape in shapes.items()}
        return {name: driver.turn_from(shape) for name, shape in shapes.items()}

    def _fixes(self) -> dict[str, kernel.Fix]:
        return {name: one for name, one in self._gets().items() if isinstance(one, kernel.Fix)}

    def _going_back(self, name: str) -> Sequence[str]:
        """What is typed for a node that has changed."""
        one = self._gets().get(name)
        if isinstance(one, driver.Turn):
            looked = registered(self.vars, name, BROUGHT).get("facts", {}).get("stack", {})
            return driver.going_back(name, one, looked.get("packages", {}))
        return one.back if one else ()

    def _changes(self, name: str) -> list[Change]:
        if self.request.kind != "pytorch":
            return list(gets[name].changes) if name in (gets := self._gets()) else []
        plan = registered(self.vars, name, self.options["torch_looks"]).get("plan", {})
        if not (plan.get("build") or plan.get("switch")):
            return []
        before = self.options["look"]["releases"][name]
        why = f" ({plan['reasons'][0]})" if before == self.request.torch and plan["reasons"] else ""
        return [Change("PyTorch", f"{before}{why}", self.request.torch)]

    def _not_kept(self, nodes: Sequence[Node]) -> list[str]:
        """Going back builds nothing."""
        found = []
        for node in nodes if self.request.rollback else ():
            plan = registered(self.vars, node.name, self.options["torch_looks"]).get("plan", {})
            if node.changes and plan.get("build"):
                release = release_of(plan["build"])
                found.append(
                    f"{node.name}: its kept environment with PyTorch {release} is not what the inventory asks for. "
                    f"Without rollback=true, -e torch_version={release} builds it"
                )
        return found

    # ------------------------------------------------------------ asking the nodes

    def _idle(self, names: Sequence[str], wait: float) -> tuple[list[str], dict[str, str]]:
        """Who is idle, at once or within so many seconds, and why each other one is not."""
        deadline = time.monotonic() + wait
        while True:
            seen = self._ask(names)
            busy = {name: one.silent or "; ".join(one.busy) for name, one in seen.items() if one.silent or one.busy}
            waits = any(seen[name].busy for name in busy) and time.monotonic() < deadline
            if not waits:
                return [name for name in names if name not in busy], busy
            time.sleep(min(AGAIN, max(0.1, deadline - time.monotonic())))

    def _ask(self, names: Sequence[str]) -> dict[str, WorkSeen]:
        played = self.vars["ansible_play_hosts_all"]
        asked = [name for name in names if name in played or name in self.options["look"].get("busy", {})]
        restart = self.request.kind != "pytorch"
        payloads = {name: {"root": str(self._read(name)["pytorch_root"]), "restart": restart} for name in asked}
        answers = ask_nodes(self.action, PROGRAM, "look", payloads)
        found = {name: WorkSeen(silent=LIMITED) for name in names}
        for name, said in answers.items():
            found[name] = WorkSeen(silent=said.error) if said.error else read(said.data)
        return found
