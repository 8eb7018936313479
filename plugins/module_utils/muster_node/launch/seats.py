"""The exclusive slots of a launch: one kernel lock for each GPU slot, or one for the CPU slot.

/run/muster/reservations/SEAT        a file for each slot, owned by root and always empty
/run/muster/launches/ID/seats/SEAT   the same file at a path that only the launch's user can access

Launch users have access to the files (role launch_users); the state of user launches has links to the files.

The unit's main process (running.py) holds the locks, and the kernel releases them when the process ends. Holders are
read from the kernel's lock table.
"""

from __future__ import annotations

import fcntl
import os
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ..tools import files, process
from ..tools.as_user import SilentError, as_user
from . import state

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

Json = dict[str, Any]

ROOT = "/run/muster/reservations"
STARTS = "starts"  # a folder next to ROOT, or in the state of user launches
FOLDER = "seats"
HOLDER_SECONDS = 2.0
HOLDERS_SECONDS = 6.0  # for all holders of one request
MOST_HOLDERS = 20  # of one resource; a process can pass its lock to any number of others
MOST_LOCKS = 64_000_000  # bytes of the kernel's table, about sixty for each lock on the node
MODE = 0o750
# A holder in another container or namespace.
NOT_SEEN: Json = {
    **dict.fromkeys(("command", "user", "unit", "name", "launch_id"), ""),
    **dict.fromkeys(("pid", "seconds", "manager_of")),
    **dict.fromkeys(("begun", "detached", "ours"), False),
}


@contextmanager
def alone() -> Iterator[None]:
    """Serialize starts with a lock that only this user can access."""
    above = state.root()
    if not state.is_own():
        above = os.path.dirname(ROOT)
        os.makedirs(above, mode=0o755, exist_ok=True)
        os.makedirs(ROOT, mode=0o700, exist_ok=True)
    lock = f"{above}/{STARTS}"
    os.makedirs(lock, mode=0o700, exist_ok=True)
    with files.folder(lock, owner=os.geteuid()) as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def offer(launch: str, seats: Iterable[str], group: int) -> None:
    """Give the user of a launch access to the launch's slots. launch: the launch's state folder."""
    files.make_folder(f"{launch}/{FOLDER}", mode=MODE, owner=(os.geteuid(), group))
    if state.is_own():
        for seat in seats:
            os.symlink(f"{ROOT}/{seat}", f"{launch}/{FOLDER}/{seat}")
        return
    with files.folder(ROOT) as there, files.folder(f"{launch}/{FOLDER}") as here:
        for seat in seats:
            # The file is readable for all; the folders above restrict the access.
            os.close(os.open(seat, os.O_RDONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644, dir_fd=there))
            os.link(seat, seat, src_dir_fd=there, dst_dir_fd=here, follow_symlinks=False)


class Seats:
    """The locks of a launch, held in the launch's main process. A shared launch takes shared locks on all free
    slots."""

    def __init__(self, launch: str, *, shared: bool) -> None:
        self.shared = shared
        folder = f"{launch}/{FOLDER}"
        # Not inherited: the ranks hold no locks.
        self.handles = [os.open(f"{folder}/{seat}", os.O_RDONLY | os.O_CLOEXEC) for seat in files.names(folder)]
        self.missing = list(self.handles)

    def take(self) -> None:
        """Take all slots, or none."""
        for handle in list(self.missing):
            try:
                fcntl.flock(handle, (fcntl.LOCK_SH if self.shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
                self.missing.remove(handle)
            except BlockingIOError:
                if not self.shared:
                    self.let_go()
                    return

    def let_go(self) -> None:
        for handle in self.handles:
            fcntl.flock(handle, fcntl.LOCK_UN)
        self.missing = list(self.handles)


# ---------------------------------------------------------------- holders


def held(seats: Iterable[str] | None = None, *, thorough: bool = False) -> dict[str, list[Json]]:
    """Return the holders of these slots (default: all slots) by slot.

    thorough: if the table shows no holder, search for processes that share a lock whose original holder has ended.
    """
    if seats is None:
        seats = readable()
    table = locks()
    deadline = time.monotonic() + HOLDERS_SECONDS
    found = {}
    for seat in seats:
        try:
            seen = os.stat(f"{ROOT}/{seat}", follow_symlinks=False)
        except FileNotFoundError:
            continue
        pids = [pid for pid in table.get(name_of(seen), []) if process.runs(pid)]
        if not pids and (thorough or name_of(seen) in table):
            pids = [pid for pid in process.ids() if shares(pid, name_of(seen))]
        found[seat] = holders(pids, deadline)
        if not pids and name_of(seen) in table and os.geteuid():
            found[seat] = [NOT_SEEN]  # the lock was passed on, and only root can see to which process
    return found


def readable() -> list[str]:
    """Return the slots that this user can access. Root can access all slots, launch users only the slots made for
    them."""
    try:
        found = files.names(ROOT)
    except OSError:
        return []
    return [seat for seat in found if os.access(f"{ROOT}/{seat}", os.R_OK)]


def name_of(seen: os.stat_result) -> str:
    """Return the name by which the kernel's lock table identifies a file."""
    return f"{os.major(seen.st_dev):02x}:{os.minor(seen.st_dev):02x}:{seen.st_ino}"


def locks() -> dict[str, list[int]]:
    """Return the processes that hold a flock, by file. Processes that wait for a flock are excluded."""
    found: dict[str, list[int]] = {}
    for line in (files.text("/proc/locks", most=MOST_LOCKS) or "").splitlines():
        words = line.split()
        if len(words) >= 6 and words[1] == "FLOCK":
            found.setdefault(words[5], []).append(int(words[4]))
    return found


def shares(pid: int, name: str) -> bool:
    """Return whether a process holds a lock on this file through an inherited descriptor."""
    try:
        numbers = os.listdir(f"/proc/{pid}/fdinfo")
    except OSError:
        return False
    return any(f" {name} " in process.read(pid, f"fdinfo/{number}") for number in numbers)


def holders(pids: Iterable[int], deadline: float) -> list[Json]:
    """Describe the first of these processes as holders. After the deadline, the descriptions have few details."""
    return [holder(pid, deadline - time.monotonic()) for pid in sorted(set(pids))[:MOST_HOLDERS]]


def holder(pid: int, seconds: float = HOLDER_SECONDS) -> Json:
    """Describe a process as a Holder (muster/launch/reservation.py).

    The command line is read in a separate process, because reading it can block forever.
    """
    try:
        seen: Json = as_user(None, lambda: _holder(pid), seconds=max(0.0, min(seconds, HOLDER_SECONDS)))
    except SilentError:
        return {**NOT_SEEN, "pid": pid, "user": process.owner(pid), **launch_facts(pid)}
    return seen


def _holder(pid: int) -> Json:
    return {
        **process.who(pid),
        "name": process.read(pid, "comm").strip(),
        "seconds": process.age(pid),
        "begun": bool(process.children(pid)),
        "ours": False,
        **launch_facts(pid),
    }


def launch_facts(pid: int) -> Json:
    """Return {launch_id, manager_of, detached}. For other users' launches, `detached` is unknown and therefore
    False."""
    launch = process.launch_at(pid)
    if launch is None:
        return {"launch_id": "", "manager_of": None, "detached": False}
    readable = launch.uid in {None, os.geteuid()}  # root does not read files that a user can replace
    detached = readable and state.lease(state.dir_of(launch))[0] == float("inf")
    return {"launch_id": launch.id, "manager_of": launch.uid, "detached": detached}


def reserve(request: Json) -> Json:
    """Let a launch take or release its slots, and wait until the launch holds all of them; see ReserveRequest and
    Reserved."""
    launch_id = request["launch_id"]
    folder = state.state_dir(launch_id)
    state.renew_lease(folder, request["lease"], state.TAKE if request["take"] else state.LET_GO)
    return reserved(launch_id, request["wait"] if request["take"] else 0.0)


def reserved(launch_id: str, wait: float) -> Json:
    """Wait until a launch holds all of its slots on this node. Return the holders."""
    seats = files.names(f"{state.state_dir(launch_id)}/{FOLDER}")
    launch = state.launch(launch_id)

    def has_all() -> bool:
        table = locks()
        return all(
            any(process.launch_at(pid) == launch for pid in table.get(name_of(os.stat(f"{ROOT}/{seat}")), []))
            for seat in seats
        )

    deadline = time.monotonic() + wait
    while not (ours := has_all()) and time.monotonic() < deadline:
        time.sleep(0.05)
    over = state.unit_state(state.unit_name(launch_id))["ActiveState"] in ("inactive", "failed")
    found = held(seats, thorough=not ours)
    for one in (one for holders in found.values() for one in holders):
        one["ours"] = (one["launch_id"], one["manager_of"]) == launch
    return {"held": found, "over": over}
