"""The systemd unit of a launch and its properties, which apply to all processes of the launch.

The preflight checks of limits, environment and shared memory run inside a unit with the same properties, because its
settings differ from those of a login session.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

# As in muster_node/tools/process.py; the two packages cannot import each other.
LAUNCH_UNIT = "muster-launch-{}.service"
LAUNCH_UNITS = LAUNCH_UNIT.partition("{")[0]  # the prefix of the names of all these units
LAUNCH_ID = re.compile(r"\d{8}-\d{6}-[0-9a-f]{4}\Z")
_A_LAUNCH_UNIT = re.compile(re.escape(LAUNCH_UNIT).replace(r"\{\}", f"({LAUNCH_ID.pattern[:-2]})"))
LAUNCH_MARK = "MUSTER_LAUNCH_ID"  # in the environment of all processes of a launch
# A time span in the output of systemctl show, such as "1min 15s" (systemd.time(7)).
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
    """Return whether the value is a valid launch ID. IDs from nodes are used in paths, names and commands."""
    return isinstance(value, str) and LAUNCH_ID.match(value) is not None


def launch_of(unit: str) -> str:
    """Return the ID of the launch that a unit belongs to; "" for any other unit."""
    found = _A_LAUNCH_UNIT.fullmatch(unit)
    return found[1] if found else ""


def unit_properties(
    user: str, working_directory: str, stop_timeout: int, *, own: bool = False, in_image: bool = False
) -> dict[str, str]:
    """Return the properties for systemd-run. stop_timeout: seconds from SIGTERM to SIGKILL.

    own: whether the unit runs in the user's systemd instance, which cannot change users and lowers limits that exceed
    its own. in_image: whether root's Podman runs in the unit and starts the container as the training user, who cannot
    gain privileges (container.CLOSED on the node).
    """
    return {
        **({} if own or in_image else {"User": user}),
        "WorkingDirectory": "/" if in_image else working_directory,
        "KillMode": "control-group",
        "TimeoutStopSec": f"{stop_timeout}s",
        "LimitCORE": "0",
        # Memory for RDMA must be locked (NCCL troubleshooting guide, memlock).
        "LimitMEMLOCK": "infinity",
        # No process can gain privileges, by sudo or another program with the set-user-ID bit.
        **({} if in_image else {"NoNewPrivileges": "yes"}),
        "RestrictSUIDSGID": "yes",
        "TasksMax": "50%",  # of the system's limit; the rest is needed to inspect and stop the launch
        "UMask": "0022",
        "OOMPolicy": "stop",
    }


class UnitEnd(NamedTuple):
    """How a unit ended.

    result: its property Result. failed: whether its state is failed. status: signal or exit code of its main process.
    at_limit: whether it ran until RuntimeMaxSec.
    """

    result: str = ""
    failed: bool = False
    status: int = 0
    at_limit: bool = False

    @classmethod
    def read(cls, unit: Mapping[str, str]) -> UnitEnd:
        """Return how the unit ended. unit: the unit's properties as reported by the node."""
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
    """Return whether systemd ended the unit at RuntimeMaxSec.

    The property Result alone does not prove this: it is "timeout" also after a stop that took too long.
    """
    limit = sum(float(count) * SECONDS[word] for count, word in SPAN.findall(unit.get("RuntimeMaxUSec", "")))
    begun, left = (unit.get(f"Active{moment}TimestampMonotonic", "") for moment in ("Enter", "Exit"))
    if not limit or not begun.isdecimal() or not left.isdecimal():
        return False
    return int(left) - int(begun) >= limit * 1e6
