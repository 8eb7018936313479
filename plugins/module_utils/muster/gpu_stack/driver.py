"""Choose one driver branch for all nodes, and the nodes that keep their installed driver."""

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

# One of two solutions; the other is a PyTorch release for the installed driver.
REPLACE = "Set nvidia_driver_replace to true to replace the driver"
OPTION = "nvidia_driver_replace"
PINNING = "nvidia-driver-pinning-"
REBOOT = "which requires a reboot"


def choose_branch(case: StackCase, floor: str) -> tuple[Branch | None, list[Refusal]]:
    """Return the driver branch that supports every GPU and the required CUDA version. If there is none, return the
    refusals for the preferred branch.

    Drivers that Muster does not install, and working drivers that are kept, are checked but not chosen. If no node gets
    a driver, the oldest installed branch is returned.
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
    """Return the oldest installed branch. For a branch that is not in the table, only the number is filled in."""
    node = min(case.nodes, key=lambda node: numbers(node.seen.driver or "0"), default=None)
    if node is None or not node.installed_branch:
        return None
    unknown = Branch(node.installed_branch, "not in the table", "", False, False, True, node.seen.driver)
    return case.table.branches.get(unknown.number, unknown)


def ended(branch: Branch, month: str) -> bool:
    """Return whether NVIDIA has ended support of the branch."""
    return bool(branch.until) and branch.until < month


def _judge_theirs(node: StackNode, floor: str) -> Iterator[Refusal]:
    theirs = node.seen.driver
    if not theirs and node.seen.container:
        yield Refusal(node.name, "the node is a container, and its host has no driver", "Install a driver on the host")
    elif not theirs and node.seen.dgx:
        yield Refusal(node.name, "no driver is installed, and DGX OS maintains it", "Install the driver of DGX OS")
    elif not theirs:
        why = "no driver is installed, and nvidia_driver_mode does not allow Muster to install one"
        yield Refusal(node.name, why, "Set nvidia_driver_mode to manage")
    elif numbers(theirs) < numbers(floor):
        fix = REPLACE if node.seen.managed else ""
        yield Refusal(node.name, f"driver {theirs} is installed, but this CUDA version requires {floor} or newer", fix)


def _branches_to_try(case: StackCase) -> list[int]:
    """Return the requested branch, or else the branches offered by the first node's source.

    Branches older than an installed one come last.
    """
    if case.request.driver:
        return [int(case.request.driver.partition(".")[0])]
    node = case.given[0]
    there = node.system.branches[source_of(case, node)]
    installed = max(other.installed_branch for other in case.managed)

    def rank(number: int) -> tuple[bool, bool, bool]:
        return (number < installed, ended(case.table.branches[number], case.month), number != installed)

    # The sort is stable: equal branches stay in the order of the source.
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
        yield Refusal(node.name, f"driver {number} cannot be used: {why}", "")


def _unfit(case: StackCase, branch: Branch, node: StackNode, floor: str) -> Iterator[str]:
    version = case.request.driver if "." in case.request.driver else branch.newest
    if numbers(version) < numbers(floor):
        yield f"CUDA requires {floor} or newer"
    for kernel in node.seen.releases if build_of(case, node) == "dkms" else ():
        if fails := case.table.cannot_build(version, kernel, node.system.name):
            yield f"dkms cannot build its module for the kernel {kernel}, up to version {fails}"
    for chip in node.chips:
        architecture = chip.architecture
        if architecture.newest and branch.number > architecture.newest:
            yield f"{node.gpu(chip)} is supported up to branch {architecture.newest}"
        if branch.number < architecture.oldest:
            yield f"{node.gpu(chip)} requires branch {architecture.oldest} or newer"
    if modules_of(case, node) == "proprietary" and not branch.proprietary:
        newest = max(number for number, row in case.table.branches.items() if row.proprietary)
        yield f"branch {newest} is the last branch with proprietary kernel modules"


def with_kept(case: StackCase) -> StackCase:
    """Return the case with `kept` set to the nodes that keep their driver."""
    return replace(case, kept=frozenset(node.name for node in case.managed if _keeps(case, node)))


def is_ours(case: StackCase, node: StackNode) -> bool:
    """Return whether the installed packages are those that Muster would install. Muster can then manage the driver
    without changing it.
    """
    branch = case.table.branches.get(node.installed_branch)
    if branch is None:
        return False
    source = source_of(case, node)
    names = [
        package.name
        for package in packages.driver(node, source, branch, modules_of(case, node), build_of(case, node))
        # These packages depend on the installed kernels, which may have changed since.
        if not package.name.startswith("linux-")
    ]
    pinned = source != "nvidia" or any(name.startswith(PINNING) for name in node.seen.packages)
    return pinned and set(names) <= set(node.seen.packages)


def is_maintained(case: StackCase, node: StackNode, branch: Branch) -> bool:
    """Return whether Muster maintains the driver: its files, its units, and modules for new kernels."""
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
    """Return the option that requests a driver source, module flavour or module build; "" if none is set."""
    request = case.request
    options = (("source", request.source), ("modules", request.modules), ("build", request.build))
    return next((f"gpu_stack_{name} is {value}" for name, value in options if value != "auto"), "")


def becomes(case: StackCase, node: StackNode, branch: Branch, instead: Branch | None) -> str:
    """Describe what will happen to the driver of a node.

    branch: the branch chosen for all nodes. instead: the driver that would replace a kept one.
    """
    seen = node.seen
    new = f"{case.request.driver or branch.number} from {source_of(case, node)}"
    if not seen.managed:
        return ""
    if not seen.looked:
        return f"{new}, unless a working driver is installed: Muster keeps it while {OPTION} is false"
    if not seen.driver:
        return f"no driver is installed; {new} will be installed, {REBOOT}"
    has = f"{seen.driver}"
    right = node.installed_branch == branch.number and _fits(case.request.driver, node)
    if seen.works and right and is_ours(case, node):
        return f"{has} works and is kept; to change it, set gpu_stack_driver"
    if node.name in case.kept:
        by = f"{instead.number} from {source_of(case, node)}" if instead else "a driver for the GPUs"
        return f"{has} works and is kept; if {OPTION} is true, it is replaced by {by}, {REBOOT}"
    if not seen.works:
        return f"{has} does not work; {new} will be installed, {REBOOT}"
    driver = "" if _fits(case.request.driver, node) else f"gpu_stack_driver is {case.request.driver}"
    why = f"{seen.replaces} is true" if seen.replaces else driver or _asks_whence(case)
    return f"{has} works, but will be replaced by {new}, {REBOOT}, because {why}"
