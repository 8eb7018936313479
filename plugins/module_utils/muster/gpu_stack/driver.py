"""Which driver: one branch for all nodes, and the nodes that keep the driver that they have."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from . import packages
from .model import Refusal
from .modules import build_of, modules_of, source_of
from .table import Branch, numbers

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .nodes import StackCase, StackNode

# One of two ways out: a release of PyTorch for the driver that is there is the other.
REPLACE = "Set nvidia_driver_replace to true to have the driver replaced"
OPTION = "nvidia_driver_replace"
PINNING = "nvidia-driver-pinning-"
REBOOT = "which takes a reboot"


def choose_branch(case: StackCase, floor: str) -> tuple[Branch | None, list[Refusal]]:
    """Return the branch that drives every GPU at this floor of CUDA's, or what stands against the first choice.

    A driver that is not ours to install, or that works and is kept, is judged as it is; where all are such, the oldest
    of them is returned.
    """
    given = case.given
    judged = [node for node in case.nodes if not node.seen.managed or node.name in case.kept]
    refusals = [refusal for node in judged for refusal in _judge_theirs(node, floor)]
    if not given:
        return _oldest(case), refusals
    first: list[Refusal] = []
    for number in _branches_to_try(case):
        against = [refusal for node in given for refusal in _against(case, number, node, floor)]
        if not against:
            return case.table.branches[number], refusals
        first = first or against
    return None, refusals + first


def _oldest(case: StackCase) -> Branch | None:
    """Return the oldest branch that is there; one that the table does not have is known by its number alone."""
    node = min(case.nodes, key=lambda node: numbers(node.seen.driver or "0"), default=None)
    if node is None or not node.installed_branch:
        return None
    unknown = Branch(node.installed_branch, "not in the table", "", False, False, True, node.seen.driver)
    return case.table.branches.get(unknown.number, unknown)


def ended(branch: Branch, month: str) -> bool:
    """Whether NVIDIA has stopped fixing it."""
    return bool(branch.until) and branch.until < month


def _judge_theirs(node: StackNode, floor: str) -> Iterator[Refusal]:
    theirs = node.seen.driver
    if not theirs and node.seen.container:
        yield Refusal(node.name, "it is a container, and its host has no driver", "Install one on the host")
    elif not theirs:
        why = "its driver is not ours to install (nvidia_driver_mode), and it has none"
        yield Refusal(node.name, why, "Set nvidia_driver_mode to manage")
    elif numbers(theirs) < numbers(floor):
        fix = REPLACE if node.seen.managed else ""
        yield Refusal(node.name, f"its driver is {theirs}, and this CUDA needs {floor} or newer", fix)


def _branches_to_try(case: StackCase) -> list[int]:
    """Return what is requested; else what the first node's source has, without a step back from what is installed."""
    if case.request.driver:
        return [int(case.request.driver.partition(".")[0])]
    node = case.given[0]
    there = node.system.branches[source_of(case, node)]
    installed = max(other.installed_branch for other in case.managed)

    def rank(number: int) -> tuple[bool, bool, bool]:
        return (number < installed, ended(case.table.branches[number], case.month), number != installed)

    # Python sorts stably: among equals, the source's own order stays.
    return sorted(there, key=rank)


def _against(case: StackCase, number: int, node: StackNode, floor: str) -> Iterator[Refusal]:
    source = source_of(case, node)
    there = node.system.branches[source]
    if number not in there:
        fix = f"Set gpu_stack_driver to one of {', '.join(map(str, sorted(there)))}"
        yield Refusal(node.name, f"{source} has no driver {number} for {node.system.name}", fix)
        return
    branch = case.table.branches[number]
    for why in _unfit(case, branch, node, floor):
        yield Refusal(node.name, f"driver {number} does not fit: {why}", "")


def _unfit(case: StackCase, branch: Branch, node: StackNode, floor: str) -> Iterator[str]:
    exact = case.request.driver if "." in case.request.driver else ""
    if numbers(exact or branch.newest) < numbers(floor):
        yield f"its CUDA needs {floor} or newer"
    for chip in node.chips:
        architecture = chip.architecture
        if architecture.newest and branch.number > architecture.newest:
            yield f"{node.gpu(chip)} is driven up to branch {architecture.newest}"
        if branch.number < architecture.oldest:
            yield f"{node.gpu(chip)} is driven from branch {architecture.oldest} on"
    if modules_of(case, node) == "proprietary" and not branch.proprietary:
        newest = max(number for number, row in case.table.branches.items() if row.proprietary)
        yield f"proprietary kernel modules end with branch {newest}"


def with_kept(case: StackCase) -> StackCase:
    """Return the case with the nodes that keep their driver."""
    return replace(case, kept=frozenset(node.name for node in case.managed if _keeps(case, node)))


def is_ours(case: StackCase, node: StackNode) -> bool:
    """Whether its driver is what would be installed there at that branch, so that nothing moves when it is managed."""
    branch = case.table.branches.get(node.installed_branch)
    if branch is None:
        return False
    source = source_of(case, node)
    names = [
        package.name
        for package in packages.driver(node, source, branch, modules_of(case, node), build_of(case, node))
        # They follow the kernels that are installed, and one may have come since.
        if not package.name.startswith("linux-")
    ]
    pinned = source != "nvidia" or any(name.startswith(PINNING) for name in node.seen.packages)
    return pinned and set(names) <= set(node.seen.packages)


def is_maintained(case: StackCase, node: StackNode, branch: Branch) -> bool:
    """Whether what keeps the driver in order (files, units, modules for new kernels) is ours to do."""
    if node.name not in case.kept:
        return node.seen.managed
    return node.installed_branch == branch.number and is_ours(case, node)


def _keeps(case: StackCase, node: StackNode) -> bool:
    request = case.request
    if not node.seen.works or node.seen.replaces or not _fits(request.driver, node):
        return False
    return not _asks_whence(case) or is_ours(case, node)


def _fits(requested: str, node: StackNode) -> bool:
    return not requested or requested in (node.seen.driver, str(node.installed_branch))


def _asks_whence(case: StackCase) -> str:
    """Return the option that says where the driver is to come from, or with which modules; "" for none."""
    request = case.request
    options = (("source", request.source), ("modules", request.modules), ("build", request.build))
    return next((f"gpu_stack_{name} is {value}" for name, value in options if value != "auto"), "")


def becomes(case: StackCase, node: StackNode, branch: Branch, instead: Branch | None) -> str:
    """Say what happens to a node's driver. branch: of all nodes; instead: what would replace a driver that is kept."""
    seen = node.seen
    new = f"{case.request.driver or branch.number} from {source_of(case, node)}"
    if not seen.managed:
        return ""
    if not seen.looked:
        return f"{new}, unless one that works is there: that is kept while {OPTION} is false"
    if not seen.driver:
        return f"it has none, and gets {new}, {REBOOT}"
    has = f"its {seen.driver}"
    right = node.installed_branch == branch.number and _fits(case.request.driver, node)
    if seen.works and right and is_ours(case, node):
        return f"{has} works and stays; gpu_stack_driver names another one"
    if node.name in case.kept:
        by = f"{instead.number} from {source_of(case, node)}" if instead else "what fits the GPUs"
        return f"{has} works and is kept; with {OPTION}: true it is replaced by {by}, {REBOOT}"
    if not seen.works:
        return f"{has} does not run, and {new} is installed, {REBOOT}"
    driver = "" if _fits(case.request.driver, node) else f"gpu_stack_driver is {case.request.driver}"
    why = f"{seen.replaces} is true" if seen.replaces else driver or _asks_whence(case)
    return f"{has} works and is replaced by {new}, {REBOOT}, because {why}"
