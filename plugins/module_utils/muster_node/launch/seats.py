"""What a launch has for itself alone, its seats: a lock of the kernel for each GPU, or for the processors.

/run/muster/reservations/SEAT        root's, a file for each seat; nothing is ever written into it, or read from it
/run/muster/launches/ID/seats/SEAT   the same file by a name that the launch's user comes to, and no other account

Launch users come to the files themselves (role launch_users); the state of their own launches has links to them.

The unit's main process holds them (running.py), and the kernel lets them go when it ends, in whatever way. Who holds
one is read from the kernel's own table.
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
STARTS = "starts"  # a folder beside it, or beside the state of own launches
FOLDER = "seats"
HOLDER_SECONDS = 2.0
HOLDERS_SECONDS = 6.0  # for all that are looked at together
MOST_HOLDERS = 20  # of one thing; a process hands what it has on to as many others as it likes
MOST_LOCKS = 64_000_000  # bytes of the kernel's table, some sixty for each lock of anybody's
MODE = 0o750
# A holder in another container or namespace.
NOT_SEEN: Json = {
    **dict.fromkeys(("command", "user", "unit", "name", "launch_id"), ""),
    **dict.fromkeys(("pid", "seconds", "manager_of")),
    **dict.fromkeys(("begun", "detached", "ours"), False),
}


@contextmanager
def alone() -> Iterator[None]:
    """One start after the other, by a lock that this user alone comes to."""
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
    """Lead the user of a launch to its seats. launch: the folder of its state."""
    files.make_folder(f"{launch}/{FOLDER}", mode=MODE, owner=(os.geteuid(), group))
    if state.is_own():
        for seat in seats:
            os.symlink(f"{ROOT}/{seat}", f"{launch}/{FOLDER}/{seat}")
        return
    with files.folder(ROOT) as there, files.folder(f"{launch}/{FOLDER}") as here:
        for seat in seats:
            # Whoever comes to it may open it: the folders above keep the others out.
            os.close(os.open(seat, os.O_RDONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644, dir_fd=there))
            os.link(seat, seat, src_dir_fd=there, dst_dir_fd=here, follow_symlinks=False)


class Seats:
    """The seats of a launch in its own hands. A shared launch takes what is free, and minds nobody."""

    def __init__(self, launch: str, *, shared: bool) -> None:
        self.shared = shared
        folder = f"{launch}/{FOLDER}"
        # Not for its children: the ranks hold nothing.
        self.handles = [os.open(f"{folder}/{seat}", os.O_RDONLY | os.O_CLOEXEC) for seat in files.names(folder)]
        self.missing = list(self.handles)

    def take(self) -> None:
        """Have all of them, or none."""
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


# ---------------------------------------------------------------- who holds them


def held(seats: Iterable[str] | None = None, *, thorough: bool = False) -> dict[str, list[Json]]:
    """By seat (all that there are) its holders.

    thorough: where the table shows none, look who shares a lock whose own process is gone.
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
            found[seat] = [NOT_SEEN]  # its own process has handed it on, and root alone sees to whom
    return found


def readable() -> list[str]:
    """Return the seats that this user comes to: root to all, launch users to what was made for them."""
    try:
        found = files.names(ROOT)
    except OSError:
        return []
    return [seat for seat in found if os.access(f"{ROOT}/{seat}", os.R_OK)]


def name_of(seen: os.stat_result) -> str:
    """How the kernel names a file in its table of locks."""
    return f"{os.major(seen.st_dev):02x}:{os.minor(seen.st_dev):02x}:{seen.st_ino}"


def locks() -> dict[str, list[int]]:
    """By file, the processes that hold a flock on it; not those that wait for one."""
    found: dict[str, list[int]] = {}
    for line in (files.text("/proc/locks", most=MOST_LOCKS) or "").splitlines():
        words = line.split()
        if len(words) >= 6 and words[1] == "FLOCK":
            found.setdefault(words[5], []).append(int(words[4]))
    return found


def shares(pid: int, name: str) -> bool:
    """Whether a process has a lock on this file through a descriptor that another one has handed to it."""
    try:
        numbers = os.listdir(f"/proc/{pid}/fdinfo")
    except OSError:
        return False
    return any(f" {name} " in process.read(pid, f"fdinfo/{number}") for number in numbers)


def holders(pids: Iterable[int], deadline: float) -> list[Json]:
    """Who these processes are, the first of them; behind the deadline little is said of one."""
    return [holder(pid, deadline - time.monotonic()) for pid in sorted(set(pids))[:MOST_HOLDERS]]


def holder(pid: int, seconds: float = HOLDER_SECONDS) -> Json:
    """Who a process is; see Holder in muster/launch/reservation.py.

    Looked at in a process of its own: one can have it that whoever reads its command line waits for ever.
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
    """Return {launch_id, manager_of, detached}; of others' own launches it is not known whether they are detached."""
    launch = process.launch_at(pid)
    if launch is None:
        return {"launch_id": "", "manager_of": None, "detached": False}
    readable = launch.uid in {None, os.geteuid()}  # root reads nothing that a user may have put there
    detached = readable and state.lease(state.dir_of(launch))[0] == float("inf")
    return {"launch_id": launch.id, "manager_of": launch.uid, "detached": detached}


def reserve(request: Json) -> Json:
    """Have a launch take its seats or let them go, and wait until it has all; see ReserveRequest and Reserved."""
    launch_id = request["launch_id"]
    folder = state.state_dir(launch_id)
    state.renew_lease(folder, request["lease"], state.TAKE if request["take"] else state.LET_GO)
    return reserved(launch_id, request["wait"] if request["take"] else 0.0)


def reserved(launch_id: str, wait: float) -> Json:
    """Wait until a launch has all of its seats here; return who has them."""
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
