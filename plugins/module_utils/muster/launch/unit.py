"""The systemd unit that a launch runs in: what holds in it for every process of the job.

Whoever wants to know what a launch will meet (limits, environment, room in shared memory) looks from inside a unit
with the same properties: a login shell has others.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

# As muster_node/tools/process.py has them, which a node cannot share with what judges it.
LAUNCH_UNIT = "muster-launch-{}.service"
LAUNCH_UNITS = LAUNCH_UNIT.partition("{")[0]  # how the name of every such unit begins
LAUNCH_ID = re.compile(r"\d{8}-\d{6}-[0-9a-f]{4}\Z")
_A_LAUNCH_UNIT = re.compile(re.escape(LAUNCH_UNIT).replace(r"\{\}", f"({LAUNCH_ID.pattern[:-2]})"))
LAUNCH_MARK = "MUSTER_LAUNCH_ID"  # what every process of a launch has in its environment
# A span of time as systemctl show prints it, such as "1min 15s"; in seconds (systemd.time(7)).
SPAN = re.compile(r"(\d+(?:\.\d+)?)(y|month|w|d|h|min|s|ms|us)\b")
SECONDS = {
    "y": 31557600,
    "month": 2629800,
    "w": 604800,
    "d": 86400,
    "h": 3600,
    "min": 60,
    "s": 1,
    "ms": 1e-3,
    "us": 1e-6,
}


def is_launch_id(value: object) -> bool:
    """Whether it is the id of a launch: what a node gives as one becomes part of paths, names and commands."""
    return isinstance(value, str) and LAUNCH_ID.match(value) is not None


def launch_of(unit: str) -> str:
    """The id of the launch that a unit belongs to; "" for any other unit."""
    found = _A_LAUNCH_UNIT.fullmatch(unit)
    return found[1] if found else ""


def unit_properties(
    user: str, working_directory: str, stop_timeout: int, *, own: bool = False, in_image: bool = False
) -> dict[str, str]:
    """Properties for systemd-run. stop_timeout: seconds from SIGTERM to SIGKILL. own: in the user's own manager, which
    has no other user, and lowers what is more than it has itself. in_image: root's podman starts in the unit, and makes
    the rest that user's, without a way to gain more (container.CLOSED on the node)."""
    return {
        **({} if own or in_image else {"User": user}),
        "WorkingDirectory": "/" if in_image else working_directory,
        "KillMode": "control-group",
        "TimeoutStopSec": f"{stop_timeout}s",
        "LimitCORE": "0",
        # What the adapter reads and writes by itself must stay in memory (NCCL troubleshooting guide, memlock).
        "LimitMEMLOCK": "infinity",
        # No process of a job gains what its user has not, by sudo or any program with the set-user-ID bit.
        **({} if in_image else {"NoNewPrivileges": "yes"}),
        "RestrictSUIDSGID": "yes",
        "TasksMax": "50%",  # of what the system can have; the other half is there to look and to end it
        "UMask": "0022",
        "OOMPolicy": "stop",
    }


class UnitEnd(NamedTuple):
    """How systemd reports a unit. result: its Result. failed: whether it is in that state. status: the signal, or the
    exit code, of its main process. at_limit: whether it ran until RuntimeMaxSec."""

    result: str = ""
    failed: bool = False
    status: int = 0
    at_limit: bool = False

    @classmethod
    def read(cls, unit: Mapping[str, str]) -> UnitEnd:
        """unit: the properties that a node reports."""
        return cls(
            unit.get("Result", ""),
            unit.get("ActiveState") == "failed",
            int(unit.get("ExecMainStatus", "0")),
            reached_its_limit(unit),
        )

    @property
    def signal(self) -> int | None:
        return self.status if self.result == "signal" else None


def reached_its_limit(unit: Mapping[str, str]) -> bool:
    """Whether systemd ended it since RuntimeMaxSec was over; Result is "timeout" as well where a stop took too long."""
    limit = sum(float(count) * SECONDS[word] for count, word in SPAN.findall(unit.get("RuntimeMaxUSec", "")))
    begun, left = (unit.get(f"Active{moment}TimestampMonotonic", "") for moment in ("Enter", "Exit"))
    if not limit or not begun.isdecimal() or not left.isdecimal():
        return False
    return int(left) - int(begun) >= limit * 1e6
