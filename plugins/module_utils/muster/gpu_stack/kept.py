"""Which nodes keep the driver that they have, and one sentence of what happens to each node's driver.

A driver that works is kept, wherever it is from, until its replacement is requested.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from . import packages
from .modules import build_of, modules_of, source_of

if TYPE_CHECKING:
    from .nodes import GpuNode, StackCase
    from .table import Branch

OPTION = "nvidia_driver_replace"
PINNING = "nvidia-driver-pinning-"
REBOOT = "which takes a reboot"


def with_kept(case: StackCase) -> StackCase:
    """Return the case with the nodes that keep their driver."""
    return replace(case, kept=frozenset(node.name for node in case.managed if _keeps(case, node)))


def is_ours(case: StackCase, node: GpuNode) -> bool:
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


def is_maintained(case: StackCase, node: GpuNode, branch: Branch) -> bool:
    """Whether what keeps the driver in order (files, units, modules for new kernels) is ours to do."""
    if node.name not in case.kept:
        return node.seen.managed
    return node.installed_branch == branch.number and is_ours(case, node)


def _keeps(case: StackCase, node: GpuNode) -> bool:
    request = case.request
    if not node.seen.works or node.seen.replaces or not _fits(request.driver, node):
        return False
    return not _asks_whence(case) or is_ours(case, node)


def _fits(requested: str, node: GpuNode) -> bool:
    return not requested or requested in (node.seen.driver, str(node.installed_branch))


def _asks_whence(case: StackCase) -> str:
    """Return the option that says where the driver is to come from, or with which modules; "" for none."""
    request = case.request
    options = (("source", request.source), ("modules", request.modules), ("build", request.build))
    return next((f"gpu_stack_{name} is {value}" for name, value in options if value != "auto"), "")


def becomes(case: StackCase, node: GpuNode, branch: Branch, instead: Branch | None) -> str:
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
