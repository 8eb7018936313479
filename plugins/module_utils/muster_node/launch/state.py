"""What a launch has on a node: its unit, and its state in memory, so that a full disk cannot hide what happened.

/run/muster/launches/ID            the state
/run/user/UID/muster/launches/ID   that of somebody's own launch, whose unit is in that user's own manager
RUN_ROOT/ID                        logs

Which of both it is, is said once for a run of the program (use); nothing else decides where state lies, or which
systemd is asked.
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
# Until when, and what the launch does until then; of one width, so that it is overwritten in place by a single write.
LEASE_FORMAT = "{:>20.3f} {:<6}\n"
TAKE, LET_GO, BEGIN = "take", "let-go", "begin"  # its seats; and: start the ranks, once for all
MOST_LEASE = 100  # bytes
SYSTEMCTL_SECONDS = 30
FORGET_SECONDS = 5.0
TALKS = "systemd/private"  # the socket of a user's manager, in the runtime folder
TALK_SECONDS = 5.0
NO_MANAGER = "no-manager"  # beside the results that systemd itself knows
OVER = ("inactive", "failed")  # of ActiveState
PROPERTIES = (
    *("LoadState", "ActiveState", "SubState", "Result", "ExecMainCode", "ExecMainStatus"),
    # These tell a unit that has reached its limit from one that took too long to stop.
    *("RuntimeMaxUSec", "ActiveEnterTimestampMonotonic", "ActiveExitTimestampMonotonic"),
)


@dataclass
class Manager:
    """uid: of the user whose own manager has the launches; None for the system's."""

    uid: int | None = None


MANAGER = Manager()


def use(*, own: bool) -> None:
    """Deal with launches in this user's own manager, or in the system's."""
    MANAGER.uid = os.getuid() if own else None


def in_its_manager(work: Callable[[Json], Json]) -> Callable[[Json], Json]:
    """Every request says whether it is about somebody's own launch. as: whose, where that is settled."""

    def done(request: Json) -> Json:
        own = request.get("own") is True
        if own and request.get("as"):
            be(request["as"])
        use(own=own)
        return work(request)

    return done


def be(name: str) -> None:
    """Go on as this user alone: root becomes it once for all, so that it comes to nothing but what is that user's, and
    opens no file as root."""
    user = pwd.getpwnam(name)
    if os.geteuid() == 0 and user.pw_uid:
        become(user)
        os.chdir("/")
    if os.getuid() != user.pw_uid or not user.pw_uid:
        raise PermissionError(f"uid {os.getuid()} may not act as {name}")


def is_own() -> bool:
    return MANAGER.uid is not None


def runtime_dir() -> str:
    """Return where the user's manager is talked to; a login over ssh without PAM has it in no variable."""
    return f"/run/user/{MANAGER.uid}"


def root() -> str:
    return OWN_ROOT.format(MANAGER.uid) if is_own() else STATE_ROOT


def state_dir(launch_id: str) -> str:
    return root() + "/" + launch_id


def dir_of(launch: process.LaunchUnit) -> str:
    """Return where the state of anybody's launch lies."""
    return f"{STATE_ROOT if launch.uid is None else OWN_ROOT.format(launch.uid)}/{launch.id}"


def launch(launch_id: str) -> process.LaunchUnit:
    return process.LaunchUnit(launch_id, MANAGER.uid)


def systemctl(*words: str, seconds: float = SYSTEMCTL_SECONDS) -> CommandResult:
    return ask_systemd("systemctl", *words, seconds=seconds)


def ask_systemd(program: str, *words: str, seconds: float = SYSTEMCTL_SECONDS) -> CommandResult:
    """Run one of systemd's programs on the manager that has the launches."""
    if not is_own():
        return command(program, *words, seconds=seconds)
    return command(program, "--user", *words, seconds=seconds, env={**CLEAN, "XDG_RUNTIME_DIR": runtime_dir()})


def unit_name(launch_id: str) -> str:
    return process.LAUNCH_UNIT.format(launch_id)


def unit_state(unit: str) -> dict[str, str]:
    done = systemctl("show", unit, "--property", ",".join(PROPERTIES))
    state = dict.fromkeys(PROPERTIES, "")
    if done.code != 0 and is_own() and not manager_listens():
        # No manager, no units: the kernel has ended all that was in its control group.
        state.update(LoadState="not-found", ActiveState="inactive", Result=NO_MANAGER)
    for line in done.text.splitlines():
        name, _, value = line.partition("=")
        state[name] = value
    return state


def manager_listens() -> bool:
    """Whether this user's manager is there; its socket's file may outlive it."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
            sock.settimeout(TALK_SECONDS)
            sock.connect(f"{runtime_dir()}/{TALKS}")
    except (FileNotFoundError, ConnectionRefusedError):
        return False
    except OSError:
        return True  # it does not answer, which proves nothing
    return True


def forget(launch_id: str) -> None:
    """Clear away the unit and the state of a launch that is over."""
    systemctl("reset-failed", unit_name(launch_id))
    with suppress(OSError), files.folder(root()) as there:
        trees.remove(there, launch_id, time.monotonic() + FORGET_SECONDS)


def is_over(launch_id: str) -> bool:
    """Whether its unit was seen to have ended, or not to be there; not so where systemd did not say."""
    return unit_state(unit_name(launch_id))["ActiveState"] in OVER


def lease(state: str, last: tuple[float, str] = (0.0, "")) -> tuple[float, str]:
    """A deadline on the monotonic clock: a stepped wall clock neither ends nor prolongs a launch. And what to do.

    last: what was read before. It holds while the file cannot be read, as in a unit that is at its limit of memory;
    where there is none any more, the launch was cleared away.
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
        return  # ended and cleared away meanwhile: the report says so
