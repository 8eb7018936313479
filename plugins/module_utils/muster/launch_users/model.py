"""Who may launch as themselves on a node, what is there for them, and what must change: shapes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

GROUP = "muster-launch"
RECORD = "/var/lib/muster/launch_users.json"
SEATS = "/run/muster/reservations"
SEATS_MODE = 0o750
CAP_SYS_RESOURCE = 24  # its bit, of linux/capability.h
NO_LIMIT = float("inf")

Limit = tuple[float, float]  # soft and hard


@dataclass(frozen=True)
class LaunchUser:
    """memlock: bytes with K, M, G or T, or infinity. nofile: one number, or soft:hard. tasks: of the account."""

    name: str
    memlock: str = "infinity"
    nofile: str = "65536:1048576"
    tasks: str = "50%"


@dataclass(frozen=True)
class LaunchUsersRequest:
    """The node as described. root: where each has a folder of their own. gpus: as the inventory says."""

    users: tuple[LaunchUser, ...] = ()
    root: str = "/var/lib/muster/users"
    torchrun: str = ""
    gpus: int = 0


@dataclass(frozen=True)
class UserManager:
    """A user manager that runs. started: seconds of the wall clock. unit_nofile: open files that its units may have."""

    started: float
    in_group: bool
    memlock: Limit
    nofile: Limit
    unit_nofile: float = 0.0


@dataclass(frozen=True)
class SeenUser:
    """An account, and what it has. uid: None where there is no such account.

    folder_owner: whose its folder is; empty where there is none. launches: the ids of its launches that run. busy: what
    else of it runs, besides its manager. torchrun: whether it may run torchrun; None where there is none.
    """

    uid: int | None = None
    gid: int = 0
    member: bool = False
    linger: bool = False
    folder_owner: str = ""
    manager: UserManager | None = None
    launches: Sequence[str] = ()
    busy: Sequence[str] = ()
    torchrun: bool | None = None


@dataclass(frozen=True)
class Recorded:
    """What we have done for an account. member, linger: whether that was not there before."""

    user: LaunchUser
    uid: int
    member: bool
    linger: bool


@dataclass(frozen=True)
class LaunchUsersRecord:
    """What is ours on the node, and is undone one day. group: whether we made it."""

    users: Mapping[str, Recorded] = field(default_factory=dict)
    group: bool = False


@dataclass(frozen=True)
class LaunchUsersState:
    """The node as it is.

    files: text by path; what is missing is not in it. changed: when they were, in seconds of the wall clock. link:
    where the link to torchrun leads. seats: how each is kept, as "owner:group mode"; of the folder by an empty name.
    unsafe: why the root of the folders is not to be used.
    """

    users: Mapping[str, SeenUser] = field(default_factory=dict)
    record: LaunchUsersRecord = field(default_factory=LaunchUsersRecord)
    group: bool = False
    files: Mapping[str, str] = field(default_factory=dict)
    changed: Mapping[str, float] = field(default_factory=dict)
    link: str = ""
    seats: Mapping[str, str] = field(default_factory=dict)
    gpus: int = 0
    unsafe: str = ""
    capabilities: int = -1


@dataclass
class LaunchUsersPlan:
    """What to do, in this order. files: a text, or None for one that goes. record: what to note before and after.

    problems are not ours to fix: they fail the node always. notes: what is left as it is, and why.
    """

    before: LaunchUsersRecord = field(default_factory=LaunchUsersRecord)
    after: LaunchUsersRecord = field(default_factory=LaunchUsersRecord)
    make_group: bool = False
    join: list[str] = field(default_factory=list)
    files: dict[str, str | None] = field(default_factory=dict)
    link: str | None = None
    reload: bool = False
    seats: bool = False
    folders: list[str] = field(default_factory=list)
    linger: list[str] = field(default_factory=list)
    restart: list[str] = field(default_factory=list)
    end_linger: list[str] = field(default_factory=list)
    leave: list[str] = field(default_factory=list)
    empty_folders: list[str] = field(default_factory=list)
    drop_group: bool = False
    close_seats: bool = False
    differences: list[str] = field(default_factory=list)
    lines_before: list[str] = field(default_factory=list)
    lines_after: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def needed(self) -> bool:
        return bool(self.differences)

    def differs(self, sentence: str, what: str, before: str, after: str) -> None:
        self.differences.append(sentence)
        self.lines_before.append(f"{what}: {before}")
        self.lines_after.append(f"{what}: {after}")
