"""What a node is to be, what it is, and what must change: the shapes that the rules of this folder work on."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from collections.abc import Mapping

# Bit numbers of linux/capability.h, and what a machine without them (a container, above all) cannot be made to do.
CAPABILITIES = {
    "CAP_SYS_RESOURCE": (24, "this machine may not raise its limits above those it was started with"),
    "CAP_SYS_TIME": (25, "this machine may not set its clock"),
}
# What a unit may need that is no capability.
DRIVER = "nvidia_driver"


@dataclass(frozen=True)
class BaselineFile:
    """A file, all of it. Without the capability in `needs` it is left out: what it says would only do harm.

    by_effect: what it is for is looked at in itself; who only verifies goes by that, whichever file brought it about.
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
    """A kernel setting. rule: equal; at_least, number by number; contains, for lists of ports."""

    key: str
    value: str
    rule: str = "equal"
    why: str = ""

    @property
    def path(self) -> str:
        return "/proc/sys/" + self.key.replace(".", "/")


@dataclass(frozen=True)
class BaselineUnit:
    """A unit. `of` names it by the package that it comes with, where several would do. optional: fine without it."""

    name: str = ""
    enabled: bool = True
    active: bool = True
    restart_if_older_than: tuple[str, ...] = ()
    needs: str = ""
    optional: bool = False
    of: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class BaselineAccount:
    """An account to create when there is none of that name. Empty ids are the next free ones."""

    name: str
    uid: str = ""
    gid: str = ""
    shell: str = "/bin/bash"
    # Groups whose members can become root. Where there are any, sudo is asked as well.
    never_in: tuple[str, ...] = ()


@dataclass(frozen=True)
class BaselineRequest:
    """The node as described.

    packages: `name`, `name|another`, or with a version `name=1.2-*`. held: packages that apt shall not move by itself.
    refused: packages beside which nothing is done, each with the reason and what to do about it.
    manager, login: settings in force of systemd and of systemd-logind, as `systemctl show` and `loginctl
    show-user` print them.
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
    """sudo: what `sudo -l -U` prints of it."""

    uid: int
    gid: int
    groups: tuple[str, ...] = ()
    sudo: str = ""


class UnitState(TypedDict, total=False):
    """What systemd says of a unit, under its own names; Started: when that was, in seconds of the wall clock."""

    LoadState: str
    UnitFileState: str
    ActiveState: str
    Started: float


class BaselineUnitStep(TypedDict):
    """What a unit shall be: enabled, running, and started anew where it runs already."""

    name: str
    enabled: bool
    active: bool
    restart: bool


@dataclass(frozen=True)
class BaselineState:
    """The node as it is.

    packages: the version of each that is installed. held: those that apt leaves where they are.
    files: none for one that is missing. changed: when each path was changed, in seconds of the wall clock.
    sysctl: none for a key that does not exist. read_only: keys that nobody may write here. owners: who has a wanted id.
    driver: whether a driver of NVIDIA's is loaded.
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
    owners: Mapping[str, str] = field(default_factory=dict)
    capabilities: int = -1
    driver: bool = False
    dpkg_interrupted: bool = False


@dataclass
class BaselinePlan:
    """What to do, why, and what cannot be done here. `problems` are not ours to fix: they fail the node always."""

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
            plan.skip(what, "no driver of NVIDIA's is loaded")
        return seen.driver
    bit, why = CAPABILITIES[needs]
    if seen.capabilities >> bit & 1:
        return True
    plan.skip(what, f"{why} (it lacks {needs})")
    return False
