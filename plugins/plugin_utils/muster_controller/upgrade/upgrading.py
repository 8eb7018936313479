"""Controls an upgrade: queries all nodes at once, and decides when each node is upgraded.

For nodes that were already upgraded in this run, the variables that their tasks registered contain the state. Nothing
is stored for later runs, which query the nodes again.
"""

from __future__ import annotations

import time
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from muster.nvidia_driver.model import DriverState as DriverSeen
from muster.pytorch.request import EnvironmentRequestError, make_request
from muster.upgrade import driver, kernel, say
from muster.upgrade.model import UpgradeNode, UpgradeRequest, VersionChange, problems
from muster.upgrade.order import put_in_order, trials
from muster.upgrade.previous import going_back, release_of
from muster.upgrade.seen import UpgradeNodeFacts, read
from muster_controller.inventory.inventory_values import keep_values
from muster_controller.nodes.asking import ask_nodes
from muster_controller.nodes.program import NodeProgram
from muster_controller.playbook.node_error import one_line
from muster_controller.playbook.own_machine import is_own_machine
from muster_controller.playbook.variables import load_roles, read_node, registered

from . import kernels

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from muster_controller.playbook.action import ControllerAction

PROGRAM = NodeProgram("at_work")
BROUGHT = "__nvidia_driver_look"  # inspection of the role nvidia_driver after the installation
AGAIN = 5.0  # seconds between two probes of a busy node
LIMITED = "excluded by --limit"
OF_A_NODE = (
    *("pytorch_root", "cluster_torch_version", "cluster_quarantined"),
    *("gpu_stack_driver", "nvidia_driver_mode", "nvidia_driver_reboot"),
)
# Variables of the role with the result of each node's turn
TURNS = ("__upgrade_turn", "__upgrade_turn_again")
TRIALS, GOOD, RED = "__upgrade_trials", "__upgrade_good", "__upgrade_red"


class UpgradeError(Exception):
    """The upgrade stops. The message is for the user."""


class Upgrading:
    def __init__(self, action: ControllerAction, request: UpgradeRequest, options: Mapping[str, Any]) -> None:
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
                raise UpgradeError(f"No rollback is possible. {why}.")
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
        """Return the kernel security fixes for each node that responds."""
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
        """Return the driver change of each inspected node."""
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
                [say.planned(nodes, order, self.request, launches=launches), *say.kernel_packages(self._fixes(), order)]
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
        lines = [f"{name} is postponed: {why}." for name, why in left.items()]
        return {"go": go, "left": left, "red": "", **({"msg": "\n".join(lines)} if lines else {})}

    def trials(self) -> dict[str, Any]:
        if self.options["smoke"] == "none" or self.request.rollback:
            return {"launches": []}
        batch = list(self.vars["ansible_play_batch"])
        plan = self.options["plan"]
        good = [*self.turns.good(), *plan["proved"]]
        idle, _ = self._idle(good, 0) if good else ([], {})
        nodes = [UpgradeNode(one["name"], quarantined=one["quarantined"]) for one in plan["nodes"]]
        first = bool(plan["batches"]) and batch[0] in plan["batches"][0]
        return {"launches": trials(batch, idle, nodes, first=first)}

    def ready(self) -> dict[str, Any]:
        """Raise UpgradeError if this node would not boot correctly with its newest kernel."""
        name = self.vars["inventory_hostname"]
        seen = kernels.as_it_is(self.action, name, self.options["looks"])
        facts = registered(self.vars, name, self.options["looks"])["facts"]
        boot = DriverSeen(facts["stack"], facts["gpus"], facts["secure_boot"], facts["key_enrolled"]).next_boot
        if why := kernel.unready(seen, self._fixes()[name], boot):
            raise UpgradeError(f"{name} is not rebooted: {why}")
        return {}

    def started(self) -> dict[str, Any]:
        """Raise UpgradeError if this node has not booted correctly."""
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
        """If all nodes are upgraded, return a launch on all nodes, unless such a launch has already succeeded."""
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
        except EnvironmentRequestError as problem:
            return [f"{str(problem).replace('cluster_torch_version', 'torch_version')}."]
        return []

    def _values(self) -> dict[str, str]:
        asked = {"cluster_torch_version": self.request.torch, "gpu_stack_driver": self.request.driver}
        return {name: value for name, value in asked.items() if value}

    def _is_news(self) -> bool:
        """Return whether a node was upgraded or the inventory does not contain the new version yet."""
        changed = bool(self.options["plan"]["batches"])
        return changed or any(self._listed(name) != value for name, value in self._values().items())

    def _read(self, name: str) -> Mapping[str, Any]:
        roles = load_roles(self.action._loader, "cluster", "pytorch", "gpu_stack", "nvidia_driver")
        return read_node(self.vars, self.action._templar, roles, name, OF_A_NODE).values

    def _listed(self, option: str) -> str:
        return str(self._read(self.names[0]).get(option, ""))

    def _node(self, name: str) -> UpgradeNode:
        look = self.options["look"]
        quarantined = bool(self._read(name).get("cluster_quarantined"))
        silent = look["silent"].get(name, "") or self._failed(name)
        gets = self.options["gets"]
        if self.request.kind != "pytorch" and not silent:
            silent = gets["silent"].get(name, "") or ("" if name in gets["nodes"] else "could not be inspected")
        changes = () if silent else tuple(self._changes(name))
        return UpgradeNode(name, changes, tuple(look["busy"].get(name, ())), silent, quarantined)

    def _failed(self, name: str) -> str:
        """Return why the inspection of the node failed, which excludes it from later steps."""
        look = registered(self.vars, name, self.options["torch_looks"])
        if look.get("failed") or look.get("unreachable"):
            return one_line(str(look.get("msg", ""))).removeprefix(f"{name}: ") or "could not be inspected"
        return ""

    def _gets(self) -> dict[str, kernel.KernelFix | driver.Turn]:
        """Return the kernel fixes or driver changes of each node, from the options or else from the plan."""
        given = self.options["gets"] or self.options["plan"].get("gets", {})
        shapes = given.get("nodes", {})
        if self.request.kind == "kernel":
            return {name: kernel.fix_of(shape) for name, shape in shapes.items()}
        return {name: driver.turn_from(shape) for name, shape in shapes.items()}

    def _fixes(self) -> dict[str, kernel.KernelFix]:
        return {name: one for name, one in self._gets().items() if isinstance(one, kernel.KernelFix)}

    def _going_back(self, name: str) -> Sequence[str]:
        """Return the rollback commands for an upgraded node."""
        one = self._gets().get(name)
        if isinstance(one, driver.Turn):
            looked = registered(self.vars, name, BROUGHT).get("facts", {}).get("stack", {})
            return driver.going_back(name, one, looked.get("packages", {}))
        return one.back if one else ()

    def _changes(self, name: str) -> list[VersionChange]:
        if self.request.kind != "pytorch":
            return list(gets[name].changes) if name in (gets := self._gets()) else []
        plan = registered(self.vars, name, self.options["torch_looks"]).get("plan", {})
        if not (plan.get("build") or plan.get("switch")):
            return []
        before = self.options["look"]["releases"][name]
        why = f" ({plan['reasons'][0]})" if before == self.request.torch and plan["reasons"] else ""
        return [VersionChange("PyTorch", f"{before}{why}", self.request.torch)]

    def _not_kept(self, nodes: Sequence[UpgradeNode]) -> list[str]:
        """Return messages about nodes on which a rollback would have to build an environment."""
        found = []
        for node in nodes if self.request.rollback else ():
            plan = registered(self.vars, node.name, self.options["torch_looks"]).get("plan", {})
            if node.changes and plan.get("build"):
                release = release_of(plan["build"])
                found.append(
                    f"{node.name}: the kept environment with PyTorch {release} does not match the inventory. "
                    f"To build one, set -e torch_version={release} without rollback=true"
                )
        return found

    # ------------------------------------------------------------ asking the nodes

    def _idle(self, names: Sequence[str], wait: float) -> tuple[list[str], dict[str, str]]:
        """Wait up to this time in seconds. Return the nodes that become idle, and for each other node, why it is
        busy."""
        deadline = time.monotonic() + wait
        while True:
            seen = self._ask(names)
            busy = {name: one.silent or "; ".join(one.busy) for name, one in seen.items() if one.silent or one.busy}
            waits = any(seen[name].busy for name in busy) and time.monotonic() < deadline
            if not waits:
                return [name for name in names if name not in busy], busy
            time.sleep(min(AGAIN, max(0.1, deadline - time.monotonic())))

    def _ask(self, names: Sequence[str]) -> dict[str, UpgradeNodeFacts]:
        played = self.vars["ansible_play_hosts_all"]
        asked = [name for name in names if name in played or name in self.options["look"].get("busy", {})]
        restart = self.request.kind != "pytorch"
        payloads = {name: {"root": str(self._read(name)["pytorch_root"]), "restart": restart} for name in asked}
        answers = ask_nodes(self.action, PROGRAM, "look", payloads)
        found = {name: UpgradeNodeFacts(silent=LIMITED) for name in names}
        for name, said in answers.items():
            found[name] = UpgradeNodeFacts(silent=said.error) if said.error else read(said.data)
        return found


class Turns:
    """The progress of all nodes in the upgrade. plan: the result of the step plan. names: all nodes."""

    def __init__(self, task_vars: Mapping[str, Any], plan: Mapping[str, Any], names: Sequence[str]) -> None:
        self.vars = task_vars
        self.plan = plan
        self.names = names

    def good(self) -> list[str]:
        return [name for name in self.names if registered(self.vars, name, GOOD).get("good")]

    def left(self) -> dict[str, str]:
        found = {}
        for name in self.names:
            for left in (registered(self.vars, name, turn).get("left", {}) for turn in TURNS):
                if name in left:
                    found[name] = str(left[name])
        return found

    def tried(self, names: Sequence[str]) -> list[set[str]]:
        """Return the nodes of each test launch that included one of these nodes."""
        launches = (registered(self.vars, name, TRIALS).get("launches", ()) for name in names)
        return [set(one) for those in launches for one in those]

    def red_before(self, batch: Sequence[str]) -> str:
        """If the upgrade of an earlier node failed, return why no more nodes are changed."""
        good, left = self.good(), self.left()
        for earlier in self.plan["batches"]:
            if set(batch) & set(earlier):
                break
            for name in earlier:
                if name not in good and name not in left:
                    return self._why_red(name, earlier)
        return ""

    def _why_red(self, name: str, batch: Sequence[str]) -> str:
        """Return why a node failed. If a batch failed, only one node of the batch has the reason."""
        said = [str(registered(self.vars, one, RED).get("red", "")) for one in (name, *batch)]
        return next(filter(None, said), "connection lost during the upgrade")

    def state(self) -> dict[str, Any]:
        """Return the nodes by state: done, red, left, untouched, silent."""
        good, left = self.good(), self.left()
        red: dict[str, str] = {}
        untouched: list[str] = []
        for batch in self.plan["batches"]:
            missing = [name for name in batch if name not in good and name not in left]
            if red:
                untouched += [name for name in batch if name not in good]
                continue
            red.update({name: self._why_red(name, batch) for name in missing})
        done = [name for name in self.names if name in good or name in self.plan["proved"]]
        if red:
            left = {}
        return {"done": done, "red": red, "left": left, "untouched": untouched, "silent": self.plan["silent"]}
