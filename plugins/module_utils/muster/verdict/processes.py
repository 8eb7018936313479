"""How a process of others is ended by hand: by its unit where it has one of its own, else once it is seen again.

The kernel gives a PID to another process later. Who reads a finding an hour after the look, and types a kill, may end
somebody else's work: the command that is printed for a PID shows whose it is now.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .commands import shell

if TYPE_CHECKING:
    from collections.abc import Sequence

WAYS_IN = ("ssh", "user@", "getty", "serial-getty", "systemd-", "dbus", "init", "cron")
LOOK = "ps -o pid,lstart,user,args -p {pids}"


def may_be_stopped(unit: str) -> bool:
    """Not what everybody logs in by: without logind, what was started in a session belongs to the unit of sshd."""
    return unit.endswith(".service") and not unit.startswith(WAYS_IN)


def look(pids: Sequence[int]) -> str:
    return shell(LOOK, pids=listed(pids))


def listed(pids: Sequence[int]) -> str:
    return ",".join(map(str, pids))


def advice(pids: Sequence[int], kill: str) -> str:
    """What to do, before the command of `look`. kill: such as "sudo kill"."""
    same = "it is still the same process" if len(pids) == 1 else "they are still the same processes"
    return f"A PID can be reused: check that {same}, then {kill} {' '.join(map(str, pids))}. Check with"
