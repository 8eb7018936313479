"""Data classes of the baseline: the requested state, the node's current state, and the plan of changes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from collections.abc import Mapping

# Bit numbers of linux/capability.h, and the consequence of a missing capability (mostly in containers).
CAPABILITIES = {
    "CAP_SYS_RESOURCE": (24, "the node cannot raise its resource limits"),
    "CAP_SYS_TIME": (25, "the node cannot set its clock"),
}
# A requirement of units that is not a capability.
DRIVER = "nvidia_driver"


@dataclass(frozen=True)
class BaselineFile:
    """A file that is written completely. needs: a capability of the node; if it is missing, the file is skipped,
    because its settings would do harm.

    by_effect: other checks verify the settings, so the mode `verify` does not compare the file.
    """

    path: str
    content: str
    mode: str = "0644"
    owner: str = "root"
    group: str = "root"
    needs: str = ""
    by_effect: bool = False


@dataclass(frozen=True)
class SysctlKey:
    """A kernel setting. rule: equal, at_least (applies to each number) or contains (for lists of ports)."""

    key: str
    value: str
    rule: str = "equal"
    why: str = ""

    @property
    def path(self) -> str:
        return "/proc/sys/" + self.key.replace(".", "/")


@dataclass(frozen=True)
class BaselineUnit:
    """A systemd unit. of: the name of the unit by package, if several packages provide one. optional: the unit can be
    missing."""

    name: str = ""
    enabled: bool = True
    active: bool = True
    restart_if_older_than: tuple[str, ...] = ()
    needs: str = ""
    optional: bool = False
    of: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class BaselineAccount:
    """An account that is created if it does not exist. If an ID is empty, the ID of an existing home directory is
    used if it belongs to nobody, or else the next free ID."""

    name: str
    uid: str = ""
    gid: str = ""
    shell: str = "/bin/bash"
    # Groups whose members can become root. If not empty, the account's sudo rules are checked, too.
    never_in: tuple[str, ...] = ()

    @property
    def home(self) -> str:
        return f"/home/{self.name}"


@dataclass(frozen=True)
class BaselineRequest:
    """The requested state of a node.

    packages: `name`, `name|another`, or with a version `name=1.2-*`. held: packages to put on hold.
    refused: packages that block all changes if installed, each with the reason and the fix.
    manager, login: active settings of systemd and systemd-logind, as printed by `systemctl show` and `loginctl
    show-user`.
    """

    packages: tuple[str, ...] = ()
    held: tuple[str, ...] = ()
    refused: Mapping[str, str] = field(default_factory=dict)
    files: tuple[BaselineFile, ...] = ()
    sysctl: tuple[SysctlKey, ...] = ()
    sysctl_file: str = ""
    units: tuple[BaselineUnit, ...] = ()
    manager: Mapping[str, str] = field(default_factory=dict)
    login: Mapping[str, str] = field(default_factory=dict)
    user: BaselineAccount | None = None


@dataclass(frozen=True)
class BaselineFileState:
    content: str
    mode: str = "0644"
    owner: str = "root"
    group: str = "root"


@dataclass(frozen=True)
class AccountState:
    """An existing account. sudo: output of `sudo -l -U` for the account."""

    uid: int
    gid: int
    groups: tuple[str, ...] = ()
    sudo: str = ""


class UnitState(TypedDict, total=False):
    """Properties of a unit, named as in systemd. Started: the start time by the wall clock, in seconds."""

    LoadState: str
    UnitFileState: str
    ActiveState: str
    Started: float


class BaselineUnitStep(TypedDict):
    """A change of a unit: enable it, start it, or restart it if it is already running."""

    name: str
    enabled: bool
    active: bool
    restart: bool


@dataclass(frozen=True)
class BaselineState:
    """The current state of a node.

    packages: installed versions. held: packages on hold. files: None for a missing file. changed: by path, the time of
    the file's last change by the wall clock, in seconds. sysctl: None for a key that does not exist. read_only: keys
    that cannot be written on this node. home: uid and gid of the requested account's home directory, if that exists.
    owners: for each ID that is requested or owns the home, the account or group that has the ID. driver: whether an
    NVIDIA driver is loaded.
    """

    packages: Mapping[str, str] = field(default_factory=dict)
    held: frozenset[str] = frozenset()
    files: Mapping[str, BaselineFileState | None] = field(default_factory=dict)
    changed: Mapping[str, float] = field(default_factory=dict)
    now: float = 0.0
    sysctl: Mapping[str, str | None] = field(default_factory=dict)
    read_only: frozenset[str] = frozenset()
    units: Mapping[str, UnitState] = field(default_factory=dict)
    manager: Mapping[str, str] = field(default_factory=dict)
    login: Mapping[str, str] = field(default_factory=dict)
    account: AccountState | None = None
    home: tuple[int, int] | None = None
    owners: Mapping[str, str] = field(default_factory=dict)
    capabilities: int = -1
    driver: bool = False
    dpkg_interrupted: bool = False


@dataclass
class BaselinePlan:
    """The changes, their reasons, and the skipped items. The user must fix the entries in `problems`; the node fails
    while there are any."""

    packages: list[str] = field(default_factory=list)
    hold: list[str] = field(default_factory=list)
    configure: bool = False
    files: list[BaselineFile] = field(default_factory=list)
    sysctl: list[str] = field(default_factory=list)
    reexec: bool = False
    units: list[BaselineUnitStep] = field(default_factory=list)
    user: BaselineAccount | None = None
    differences: list[str] = field(default_factory=list)
    left_out: list[dict[str, str]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    before: list[str] = field(default_factory=list)
    after: list[str] = field(default_factory=list)

    @property
    def needed(self) -> bool:
        return bool(self.differences)

    @property
    def changes(self) -> dict[str, list[str]]:
        """The names of the changed items, by the kinds of road/changes.py."""
        return {
            "package": [entry.partition("=")[0] for entry in self.packages],
            "hold": self.hold,
            "file": [file.path for file in self.files],
            "sysctl": self.sysctl,
            "unit": [*(["systemd"] if self.reexec else []), *(unit["name"] for unit in self.units)],
            "account": [self.user.name] if self.user else [],
        }

    def differs(self, sentence: str, what: str, before: str, after: str) -> None:
        self.differences.append(sentence)
        self.before.append(f"{what}: {before}")
        self.after.append(f"{what}: {after}")

    def skip(self, what: str, why: str) -> None:
        self.left_out.append({"id": what, "why": why})


def may(plan: BaselinePlan, seen: BaselineState, needs: str, what: str) -> bool:
    if not needs:
        return True
    if needs == DRIVER:
        if not seen.driver:
            plan.skip(what, "no NVIDIA driver is loaded")
        return seen.driver
    bit, why = CAPABILITIES[needs]
    if seen.capabilities >> bit & 1:
        return True
    plan.skip(what, f"{why} (no {needs})")
    return False
