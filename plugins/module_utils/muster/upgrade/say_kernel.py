"""What is shown of an upgrade of the kernel, for people: what apt brings, and which kernel stays."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from ..verdict.words import few

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from .kernel import KernelFix
    from .model import Order


def packages(fixes: Mapping[str, KernelFix], order: Order) -> Iterator[str]:
    """Of the nodes that change: every package that apt brings, and the kernels that stay beside the new one."""
    changed = [name for batch in order.batches for name in batch]
    brought: dict[str, list[str]] = defaultdict(list)
    stays: dict[str, list[str]] = defaultdict(list)
    for name in (name for name in fixes if name in changed):
        fix = fixes[name]
        if fix.installs:
            brought[", ".join(f"{package} {version}" for package, version in fix.installs.items())].append(name)
        if fix.reboot:
            stays[few(fix.stays) if fix.stays else "no other kernel"].append(name)
    for what, names in brought.items():
        yield f"packages {', '.join(names)}: {what}"
    for what, names in stays.items():
        yield f"back     {', '.join(names)}: {what} stays installed"
