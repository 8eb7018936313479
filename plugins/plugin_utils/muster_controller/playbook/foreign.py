"""Muster commands in texts that nodes wrote in this run. Does not import Ansible, because watchers use this module
too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from muster.verdict.foreign import commands_in

if TYPE_CHECKING:
    from collections.abc import Callable

FOREIGN: set[str] = set()  # known to this process
TELL: list[Callable[[list[str]], None]] = []  # other receivers, such as the process that shows results


def foreign(value: Any) -> None:
    """Register a text or response of a node, so that commands in the text are shown unchanged."""
    new = commands_in(value) - FOREIGN
    if new:
        FOREIGN.update(new)
        for tell in TELL:
            tell(sorted(new))
