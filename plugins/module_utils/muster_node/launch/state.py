"""What a launch has on a node: its unit, and its state in memory, so that a full disk cannot hide what happened.

/run/muster/launches/ID   the state
RUN_ROOT/ID               logs, and whatever the job writes into its working directory
"""

from __future__ import annotations

import math
import time
from contextlib import suppress

from ..tools import files, process, trees
from ..tools.run import run as command

STATE_ROOT = "/run/muster/launches"
# Until when, and what the launch does until then; of one width, so that it is overwritten in place by a single write.
LEASE_FORMAT = "{:>20.3f} {:<6}\n"
TAKE, LET_GO, BEGIN = "take", "let-go", "begin"  # its seats; and: start the ranks, once for all
MOST_LEASE = 100  # bytes
SYSTEMCTL_SECONDS = 30
FORGET_SECONDS = 5.0


def state_dir(launch_id: str) -> str:
    return STATE_ROOT + "/" + launch_id


def unit_name(launch_id: str) -> str:
    return process.LAUNCH_UNIT.format(launch_id)


def unit_state(unit: str) -> dict[str, str]:
    names = ("LoadState", "ActiveState", "SubState", "Result", "ExecMainCode", "ExecMainStatus")
    done = command("systemctl", "show", unit, "--property", ",".join(names), seconds=SYSTEMCTL_SECONDS)
    state = dict.fromkeys(names, "")
    for line in done.text.splitlines():
        name, _, value = line.partition("=")
        state[name] = value
    return state


def forget(launch_id: str) -> None:
    """Clear away the unit and the state of a launch that is over."""
    command("systemctl", "reset-failed", unit_name(launch_id), seconds=SYSTEMCTL_SECONDS)
    with suppress(OSError), files.folder(STATE_ROOT) as root:
        trees.remove(root, launch_id, time.monotonic() + FORGET_SECONDS)


def is_over(launch_id: str) -> bool:
    """Whether its unit was seen to have ended, or not to be there; not so where systemd did not say."""
    return unit_state(unit_name(launch_id))["ActiveState"] in ("inactive", "failed")


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
