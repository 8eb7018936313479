"""The unit and the state of a launch on a node. The state is in memory, so that a full disk does not affect it.

/run/muster/launches/ID            the state of an administrator launch
/run/user/UID/muster/launches/ID   the state of a user launch, whose unit is in the user's systemd instance
RUN_ROOT/ID                        logs

`use` sets the type of the launch once per run of the program. The type alone determines the state folder and the
systemd instance.
"""

from __future__ import annotations

import math
import os
import pwd
import socket
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..tools import files, process, trees
from ..tools.as_user import become
from ..tools.run import CLEAN
from ..tools.run import run as command

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..tools.run import CommandResult

    Json = dict[str, Any]

STATE_ROOT = "/run/muster/launches"
OWN_ROOT = "/run/user/{}/muster/launches"
# The deadline, and the action until then; of fixed width, so that a single write overwrites it in place.
LEASE_FORMAT = "{:>20.3f} {:<6}\n"
TAKE, LET_GO, BEGIN = "take", "let-go", "begin"  # take or release its slots; start the ranks
MOST_LEASE = 100  # bytes
SYSTEMCTL_SECONDS = 30
FORGET_SECONDS = 5.0
TALKS = "systemd/private"  # the socket of a user's systemd instance, in the runtime folder
TALK_SECONDS = 5.0
NO_MANAGER = "no-manager"  # in addition to the results of systemd
OVER = ("inactive", "failed")  # of ActiveState
PROPERTIES = (
    *("LoadState", "ActiveState", "SubState", "Result", "ExecMainCode", "ExecMainStatus"),
    # These distinguish a unit that reached its time limit from one that took too long to stop.
    *("RuntimeMaxUSec", "ActiveEnterTimestampMonotonic", "ActiveExitTimestampMonotonic"),
)


@dataclass
class Manager:
    """The systemd instance that runs the launches. uid: user of the instance; None for the system instance."""

    uid: int | None = None


MANAGER = Manager()


def use(*, own: bool) -> None:
    """Use this user's systemd instance for launches, or the system instance."""
    MANAGER.uid = os.getuid() if own else None


def in_its_manager(work: Callable[[Json], Json]) -> Callable[[Json], Json]:
    """Wrap a verb to use the systemd instance that the request selects. Fields of the request: own: whether it is a
    user launch; as: the launch's user, if known."""

    def done(request: Json) -> Json:
        own = request.get("own") is True
        if own and request.get("as"):
            be(request["as"])
        use(own=own)
        return work(request)

    return done


def be(name: str) -> None:
    """Permanently switch from root to this user, so that no file is opened as root."""
    user = pwd.getpwnam(name)
    if os.geteuid() == 0 and user.pw_uid:
        become(user)
        os.chdir("/")
    if os.getuid() != user.pw_uid or not user.pw_uid:
        raise PermissionError(f"uid {os.getuid()} cannot act as {name}")


def is_own() -> bool:
    return MANAGER.uid is not None


def runtime_dir() -> str:
    """Return the runtime folder of the user's systemd instance; ssh without PAM does not set its variable."""
    return f"/run/user/{MANAGER.uid}"


def root() -> str:
    return OWN_ROOT.format(MANAGER.uid) if is_own() else STATE_ROOT


def state_dir(launch_id: str) -> str:
    return root() + "/" + launch_id


def dir_of(launch: process.LaunchUnit) -> str:
    """Return the state folder of a launch of any type and user."""
    return f"{STATE_ROOT if launch.uid is None else OWN_ROOT.format(launch.uid)}/{launch.id}"


def launch(launch_id: str) -> process.LaunchUnit:
    return process.LaunchUnit(launch_id, MANAGER.uid)


def systemctl(*words: str, seconds: float = SYSTEMCTL_SECONDS) -> CommandResult:
    return ask_systemd("systemctl", *words, seconds=seconds)


def ask_systemd(program: str, *words: str, seconds: float = SYSTEMCTL_SECONDS) -> CommandResult:
    """Run one of systemd's programs on the selected systemd instance."""
    if not is_own():
        return command(program, *words, seconds=seconds)
    return command(program, "--user", *words, seconds=seconds, env={**CLEAN, "XDG_RUNTIME_DIR": runtime_dir()})


def unit_name(launch_id: str) -> str:
    return process.LAUNCH_UNIT.format(launch_id)


def unit_state(unit: str) -> dict[str, str]:
    done = systemctl("show", unit, "--property", ",".join(PROPERTIES))
    state = dict.fromkeys(PROPERTIES, "")
    if done.code != 0 and is_own() and not manager_listens():
        # Without the instance there are no units: the kernel has ended all processes in its control group.
        state.update(LoadState="not-found", ActiveState="inactive", Result=NO_MANAGER)
    for line in done.text.splitlines():
        name, _, value = line.partition("=")
        state[name] = value
    return state


def manager_listens() -> bool:
    """Return whether this user's systemd instance is running. The socket file can still exist after the instance has
    ended."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
            sock.settimeout(TALK_SECONDS)
            sock.connect(f"{runtime_dir()}/{TALKS}")
    except (FileNotFoundError, ConnectionRefusedError):
        return False
    except OSError:
        return True  # no answer does not prove that it has ended
    return True


def forget(launch_id: str) -> None:
    """Remove the unit and the state of a finished launch."""
    systemctl("reset-failed", unit_name(launch_id))
    with suppress(OSError), files.folder(root()) as there:
        trees.remove(there, launch_id, time.monotonic() + FORGET_SECONDS)


def is_over(launch_id: str) -> bool:
    """Return whether the launch's unit has ended or does not exist; False if systemd did not respond."""
    return unit_state(unit_name(launch_id))["ActiveState"] in OVER


def lease(state: str, last: tuple[float, str] = (0.0, "")) -> tuple[float, str]:
    """Return the deadline of a lease, and the action at its end. The deadline is on the monotonic clock, which is
    independent of wall clock changes.

    last: result of the previous call, returned if the file cannot be read, for example in a unit at its memory limit.
    If the file is missing, the launch was removed.
    """
    try:
        text = files.part(state + "/lease", 0, MOST_LEASE).decode("ascii", "replace")
        until, _, word = text.strip().partition(" ")
        seconds = float(until)
    except FileNotFoundError:
        return 0.0, ""
    except (OSError, ValueError):
        return last
    return last if math.isnan(seconds) else (seconds, word)


def new_lease(seconds: float, word: str) -> bytes:
    return LEASE_FORMAT.format(time.monotonic() + seconds, word).encode()


def renew_lease(state: str, seconds: float, word: str = BEGIN) -> None:
    try:
        files.overwrite(state + "/lease", new_lease(seconds, word))
    except OSError:
        return  # the launch has ended and was removed; the report shows that
