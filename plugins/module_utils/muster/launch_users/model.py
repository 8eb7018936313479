"""Data types: the launch users of a node, the node's state, and the planned changes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

GROUP = "muster-launch"
RECORD = "/var/lib/muster/launch_users.json"
SEATS = "/run/muster/reservations"
SEATS_MODE = 0o750
CAP_SYS_RESOURCE = 24  # bit number, from linux/capability.h
NO_LIMIT = float("inf")

Limit = tuple[float, float]  # soft and hard


@dataclass(frozen=True)
class LaunchUser:
    """A launch user.

    memlock: bytes with the suffix K, M, G or T, or "infinity". nofile: one number, or soft:hard. tasks: task limit of
    the account.
    """

    name: str
    memlock: str = "infinity"
    nofile: str = "65536:1048576"
    tasks: str = "50%"


@dataclass(frozen=True)
class LaunchUsersRequest:
    """The requested state. root: parent folder of the users' folders. gpus: number of GPUs in the inventory."""

    users: tuple[LaunchUser, ...] = ()
    root: str = "/var/lib/muster/users"
    torchrun: str = ""
    gpus: int = 0


@dataclass(frozen=True)
class UserManager:
    """A running user manager.

    started: when it was started, in seconds since the epoch. unit_nofile: limit of open files for its units.
    """

    started: float
    in_group: bool
    memlock: Limit
    nofile: Limit
    unit_nofile: float = 0.0


@dataclass(frozen=True)
class SeenUser:
    """The state of an account. uid: None if the account does not exist.

    folder_owner: owner of the account's folder; "" if the folder does not exist. launches: IDs of the account's running
    launches. busy: its other processes, except the user manager. torchrun: whether it may run torchrun; None if
    torchrun does not exist.
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
    """What Muster changed for an account. member, linger: whether Muster added the membership, or enabled lingering."""

    user: LaunchUser
    uid: int
    member: bool
    linger: bool


@dataclass(frozen=True)
class LaunchUsersRecord:
    """What Muster changed on the node, so that the changes can be reverted. group: whether Muster created the group."""

    users: Mapping[str, Recorded] = field(default_factory=dict)
    group: bool = False


@dataclass(frozen=True)
class LaunchUsersState:
    """The state of the node.

    files: contents of the existing files, by path. changed: modification times in seconds since the epoch. link: target
    of the link to torchrun. seats: "owner:group mode" of each GPU and CPU slot; the entry "" is the folder of the
    slots. unsafe: why the parent folder of the users' folders must not be used.
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
    """The changes, in this order.

    files: new contents, or None to remove a file. before, after: the record to write before and after the changes.
    problems: errors that Muster cannot fix and that make the node fail. notes: what stays unchanged, and why.
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
