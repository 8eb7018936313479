"""What nodes wrote in this run that looks like a command of ours. Without Ansible: a watcher on a node needs it too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from muster.verdict.foreign import commands_in

if TYPE_CHECKING:
    from collections.abc import Callable

FOREIGN: set[str] = set()  # as far as this process knows
TELL: list[Callable[[list[str]], None]] = []  # who else has to know, such as the process that shows results


def foreign(value: Any) -> None:
    """Take note of a text or an answer of a node: no command in it is completed."""
    new = commands_in(value) - FOREIGN
    if new:
        FOREIGN.update(new)
        for tell in TELL:
            tell(sorted(new))
