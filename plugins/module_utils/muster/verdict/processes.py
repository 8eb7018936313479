"""Advice on how to end another user's process. If the process has a unit, stop the unit; otherwise check the PID again
before killing the process.

The kernel reuses PIDs, so a kill an hour after the check could end a different process. Therefore the command printed
for a PID shows the process that has it now.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .commands import shell

if TYPE_CHECKING:
    from collections.abc import Sequence

WAYS_IN = ("ssh", "user@", "getty", "serial-getty", "systemd-", "dbus", "init", "cron")
LOOK = "ps -o pid,lstart,user,args -p {pids}"


def may_be_stopped(unit: str) -> bool:
    """Return whether a unit can be stopped safely. Without logind, processes of ssh sessions belong to the unit of
    sshd."""
    return unit.endswith(".service") and not unit.startswith(WAYS_IN)


def look(pids: Sequence[int]) -> str:
    return shell(LOOK, pids=listed(pids))


def listed(pids: Sequence[int]) -> str:
    return ",".join(map(str, pids))


def advice(pids: Sequence[int], kill: str) -> str:
    """Return the advice that is shown before the command of `look`. kill: the kill command, such as "sudo kill"."""
    same = "this is still the same process" if len(pids) == 1 else "these are still the same processes"
    return f"PIDs can be reused. Before you run {kill} {' '.join(map(str, pids))}, check that {same}"
