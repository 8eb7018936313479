"""Format the resolved stack as text: every choice with its reason, and the packages.

Nodes with equal packages are grouped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..verdict.words import few
from .model import Refusal, StackChoice

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from .model import NodeStack, ResolvedStack, StackPackage

PARTS = (
    ("cuda", "CUDA toolkits"),
    ("nccl", "system NCCL"),
    ("containers", "containers"),
    ("dcgm", "DCGM"),
)


def report(stack: ResolvedStack) -> str:
    """Return the lines to print. If there are refusals, only these are returned."""
    if stack.refusals:
        reasons = list(_together(stack.refusals))
        count = f" ({len(reasons)} reasons)" if len(reasons) > 1 else ""
        head = f"No driver/CUDA combination fits these nodes{count}:"
        return "\n".join([head, *(f"- {why}" for why in reasons), *_warnings(stack)])
    lines = list(_aligned(stack.choices))
    for names, node in _alike(stack):
        said = [StackChoice("driver", "", node.becomes)] if node.becomes else []
        lines += ["", few(names), *_aligned([*said, *node.choices]), *_packages(node)]
    return "\n".join([*lines, *_warnings(stack)])


def _together(refusals: Sequence[Refusal]) -> Iterator[Refusal]:
    """Yield the refusals; equal refusals of several nodes are combined."""
    nodes: dict[tuple[str, str], list[str]] = {}
    for refusal in refusals:
        nodes.setdefault((refusal.why, refusal.fix), []).append(refusal.node)
    for (why, fix), names in nodes.items():
        yield Refusal(few(names), why, fix)


def _warnings(stack: ResolvedStack) -> list[str]:
    return [f"warn  {warning}" for warning in stack.warnings]


def _alike(stack: ResolvedStack) -> list[tuple[list[str], NodeStack]]:
    groups: dict[str, tuple[list[str], NodeStack]] = {}
    for name, node in stack.nodes.items():
        groups.setdefault(repr(node).replace(repr(name), ""), ([], node))[0].append(name)
    return list(groups.values())


def _aligned(choices: Sequence[StackChoice]) -> Iterator[str]:
    for choice in choices:
        value = f"{choice.value:<17} " if choice.value else ""
        yield f"  {choice.what:<15} {value}{choice.why}"


def drivers(stack: ResolvedStack) -> str:
    """Return one line for each driver that is kept or installed. The lines are shown before anything is changed."""
    nodes: dict[str, list[str]] = {}
    for name, node in stack.nodes.items():
        nodes.setdefault(node.becomes, []).append(name)
    return "\n".join(f"driver  {few(names)}: {sentence}" for sentence, names in nodes.items() if sentence)


def _packages(node: NodeStack) -> Iterator[str]:
    driver = [*node.headers, *node.driver, *node.fabric]
    if driver:
        first = f"{_listed(node.pins)}, then " if node.pins else ""
        yield f"  {'packages':<15} {first}{_listed(driver)}"
    for part, title in PARTS:
        packages = getattr(node, part)
        if packages:
            yield f"  {title:<15} {_listed(packages)}"


def _listed(packages: Sequence[StackPackage]) -> str:
    return " ".join(map(str, packages))
