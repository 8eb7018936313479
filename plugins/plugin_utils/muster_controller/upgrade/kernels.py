"""Queries the kernels of all nodes, and determines the available kernel security fixes and their result."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from muster.inspect.facts import machine_digest
from muster.nvidia_driver.apt import AptSimulation, parse
from muster.upgrade import kernel
from muster.upgrade.kernel_seen import Kernels, UselessError, read, read_stack
from muster.verdict.printable import printable
from muster_controller.nodes.asking import NodeAnswer, ask_nodes
from muster_controller.nodes.program import NodeProgram
from muster_controller.playbook.own_machine import is_own_machine
from muster_controller.playbook.variables import registered

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from muster_controller.playbook.action import ControllerAction

PROGRAM = NodeProgram("kernel")
SECONDS = 180.0  # for apt on a slow machine and for nvidia-smi
LISTS = "apt could not read its package lists"
MOST_TEXT = 400_000  # characters of apt's output
USELESS = "the node's report of its kernels is invalid"


def look(action: ControllerAction, names: Sequence[str], looks: str) -> tuple[dict[str, Kernels], dict[str, str]]:
    """Return the kernels of each node or, by node, why they are unknown. looks: the variable in which node_inspect is
    registered."""
    found, silent = {}, {}
    looked = {
        name: of["facts"]["stack"] for name in names if "facts" in (of := registered(action.task_vars, name, looks))
    }
    answers = ask_nodes(action, PROGRAM, "look", {name: {} for name in looked}, SECONDS)
    for name in names:
        said = answers.get(name, NodeAnswer(error="could not be inspected"))
        try:
            if said.error:
                silent[name] = said.error
            else:
                found[name] = read(looked[name], said.data)
        except UselessError:
            silent[name] = USELESS
    return found, silent


def as_it_is(action: ControllerAction, name: str, looks: str) -> Kernels:
    """Return the current kernels of one node. Raises UselessError if the report of the node is invalid."""
    return read_stack(registered(action.task_vars, name, looks)["facts"]["stack"])


def resolve(action: ControllerAction, seen: Mapping[str, Kernels]) -> dict[str, kernel.KernelFix]:
    """Return the fixes for each node, from a simulation with apt on the node."""
    fixes, asked = {}, {}
    for name, of in seen.items():
        why = tuple(f"{name}: {one}" for one in kernel.unfit(of))
        if why:
            fixes[name] = kernel.KernelFix(refusals=why)
        else:
            asked[name] = kernel.wanted(of)
    answers = _simulate(action, asked)
    more = {name: words for name in asked if (words := kernel.missing(seen[name], answers[name]))}
    asked.update({name: [*asked[name], *words] for name, words in more.items()})
    answers.update(_simulate(action, {name: asked[name] for name in more}))
    return {**fixes, **{name: kernel.decide(name, seen[name], asked[name], answers[name]) for name in asked}}


def own_machine(seen: Mapping[str, Kernels], fixes: Mapping[str, kernel.KernelFix]) -> dict[str, str]:
    """Return the commands to run manually on a node that is the controller itself, which Muster does not reboot."""
    own = [name for name, of in seen.items() if of.machine and is_own_machine(machine_digest(of.machine))]
    return {name: kernel.by_hand(fixes[name]) for name in own}


def _simulate(action: ControllerAction, asked: Mapping[str, Sequence[str]]) -> dict[str, AptSimulation]:
    payloads = {name: {"words": list(words)} for name, words in asked.items() if words}
    found = {name: AptSimulation() for name in asked}
    for name, said in ask_nodes(action, PROGRAM, "simulate", payloads, SECONDS).items():
        found[name] = AptSimulation(errors=(said.error,)) if said.error else _answer(said.data)
    return found


def _answer(data: Any) -> AptSimulation:
    shaped = isinstance(data, dict) and isinstance(data.get("code"), int)
    if not shaped or not all(isinstance(data.get(one), str) for one in ("out", "err")):
        return AptSimulation(errors=(USELESS,))
    out, err = (printable(data[one][:MOST_TEXT]) for one in ("out", "err"))
    return parse(out, err, data["code"])
