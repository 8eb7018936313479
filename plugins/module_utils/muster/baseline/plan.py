"""What must change on a node for it to be as described: pure; library/node_plan.py looks, and this decides.

State is always the live one: a file that is right says nothing about the daemon that read it before, nor /etc/sysctl.d
about the kernel. So a run that was cut off between a file and its consequence is finished by running again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

# Bit numbers of linux/capability.h, and what a machine without them (a container, above all) cannot be made to do.
CAPABILITIES = {
    "CAP_SYS_RESOURCE": (24, "this machine may not raise its limits above those it was started with"),
    "CAP_SYS_TIME": (25, "this machine may not set its clock"),
}
# What a unit may need that is no capability.
DRIVER = "nvidia_driver"
# As `systemctl show` has it for a unit that starts with the system, or that another one starts.
_ENABLED = frozenset({"enabled", "enabled-runtime", "static", "alias", "indirect", "generated", "linked"})
_RUNS = frozenset({"active", "activating", "reloading"})
_FIELDS = ("Package: ", "Status: ", "Version: ")


@dataclass(frozen=True)
class File:
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
class Key:
    """A kernel setting. rule: equal; at_least, number by number; contains, for lists of ports."""

    key: str
    value: str
    rule: str = "equal"
    why: str = ""

    @property
    def path(self) -> str:
        return "/proc/sys/" + self.key.replace(".", "/")


@dataclass(frozen=True)
class Unit:
    """A unit. `of` names it by the package that it comes with, where several would do. optional: fine without it."""

    name: str = ""
    enabled: bool = True
    active: bool = True
    restart_if_older_than: tuple[str, ...] = ()
    needs: str = ""
    optional: bool = False
    of: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Account:
    """An account to create when there is none of that name. Empty ids are the next free ones."""

    name: str
    uid: str = ""
    gid: str = ""
    shell: str = "/bin/bash"
    # Groups whose members can become root.
    never_in: tuple[str, ...] = ()


@dataclass(frozen=True)
class Request:
    """The node as described.

    packages: `name`, `name|another`, or with a version `name=1.2-*`. held: packages that apt shall not move by itself.
    refused: packages beside which nothing is done, each with the reason and what to do about it.
    manager, login: settings in force of systemd and of systemd-logind, as `systemctl show` and `loginctl
    show-user` print them.
    """

    packages: tuple[str, ...] = ()
    held: tuple[str, ...] = ()
    refused: Mapping[str, str] = field(default_factory=dict)
    files: tuple[File, ...] = ()
    sysctl: tuple[Key, ...] = ()
    sysctl_file: str = ""
    units: tuple[Unit, ...] = ()
    manager: Mapping[str, str] = field(default_factory=dict)
    login: Mapping[str, str] = field(default_factory=dict)
    user: Account | None = None


@dataclass(frozen=True)
class SeenFile:
    content: str
    mode: str = "0644"
    owner: str = "root"
    group: str = "root"


@dataclass(frozen=True)
class SeenAccount:
    uid: int
    gid: int
    groups: tuple[str, ...] = ()


class UnitState(TypedDict, total=False):
    """What systemd says of a unit, under its own names; Started: when that was, in seconds of the wall clock."""

    LoadState: str
    UnitFileState: str
    ActiveState: str
    Started: float


@dataclass(frozen=True)
class Seen:
    """The node as it is.

    packages: the version of each that is installed. held: those that apt leaves where they are.
    files: none for one that is missing. changed: when each path was changed, in seconds of the wall clock.
    sysctl: none for a key that does not exist. read_only: keys that nobody may write here. owners: who has a wanted id.
    driver: whether a driver of NVIDIA's is loaded.
    """

    packages: Mapping[str, str] = field(default_factory=dict)
    held: frozenset[str] = frozenset()
    files: Mapping[str, SeenFile | None] = field(default_factory=dict)
    changed: Mapping[str, float] = field(default_factory=dict)
    now: float = 0.0
    sysctl: Mapping[str, str | None] = field(default_factory=dict)
    read_only: frozenset[str] = frozenset()
    units: Mapping[str, UnitState] = field(default_factory=dict)
    manager: Mapping[str, str] = field(default_factory=dict)
    login: Mapping[str, str] = field(default_factory=dict)
    account: SeenAccount | None = None
    owners: Mapping[str, str] = field(default_factory=dict)
    capabilities: int = -1
    driver: bool = False
    dpkg_interrupted: bool = False


class UnitStep(TypedDict):
    """What a unit shall be: enabled, running, and started anew where it runs already."""

    name: str
    enabled: bool
    active: bool
    restart: bool


@dataclass
class Plan:
    """What to do, why, and what cannot be done here. `problems` are not ours to fix: they fail the node always."""

    packages: list[str] = field(default_factory=list)
    hold: list[str] = field(default_factory=list)
    configure: bool = False
    files: list[File] = field(default_factory=list)
    sysctl: list[str] = field(default_factory=list)
    reexec: bool = False
    units: list[UnitStep] = field(default_factory=list)
    user: Account | None = None
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


def make_plan(request: Request, seen: Seen, *, verifies: bool = False) -> Plan:
    plan = Plan()
    _packages(plan, request, seen)
    _files(plan, request, seen, verifies=verifies)
    _sysctl(plan, request, seen)
    _manager(plan, request, seen)
    _units(plan, request, seen)
    _user(plan, request, seen)
    return plan


def chosen(entry: str, installed: Iterable[str]) -> tuple[str, str]:
    """Of "chrony|ntpsec" the one that is installed, else the first; with the version after a "=", empty for any."""
    choices = [alternative.partition("=")[::2] for alternative in entry.split("|")]
    return next((choice for choice in choices if choice[0] in installed), choices[0])


def unit_name(unit: Unit, request: Request, installed: Iterable[str]) -> str:
    """The unit's name: the one that comes with the package that is there, or will be."""
    if not unit.of:
        return unit.name
    there = {*installed, *(chosen(entry, installed)[0] for entry in request.packages)}
    return next((name for package, name in unit.of.items() if package in there), "")


def installed_packages(status: str) -> tuple[dict[str, str], frozenset[str]]:
    """The packages that dpkg's status file says are installed, with their versions; and those of them on hold.

    One that is half installed is not. Of a package for several architectures the one of the machine's own comes last.
    """
    found: dict[str, str] = {}
    held = set()
    for paragraph in status.split("\n\n"):
        fields = dict(
            line.split(": ", 1) for line in paragraph.split("\n") if line.startswith(_FIELDS) and ": " in line
        )
        state = fields.get("Status", "").split()
        if state[-1:] == ["installed"] and "Package" in fields:
            found[fields["Package"]] = fields.get("Version", "")
            if state[0] == "hold":
                held.add(fields["Package"])
    return found, frozenset(held)


def sysctl_value(key: Key, live: str | None) -> str:
    """What the key must be: never less than what somebody else has set where more is meant, nor without their ports."""
    if live is None or key.rule == "equal":
        return key.value
    if key.rule == "contains":
        return ports(f"{live},{key.value}")
    wanted, there = key.value.split(), live.split()
    if len(wanted) != len(there):
        return key.value
    return " ".join(str(max(int(one), int(other))) for one, other in zip(wanted, there, strict=True))


def ports(text: str) -> str:
    """A list of ports as the kernel writes it: sorted, without gaps of nothing, ranges as 1-3."""
    numbers: set[int] = set()
    for part in filter(None, text.replace(" ", "").split(",")):
        first, _, last = part.partition("-")
        numbers.update(range(int(first), int(last or first) + 1))
    ranges: list[list[int]] = []
    for number in sorted(numbers):
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)


def sysctl_text(keys: Iterable[Key], live: Mapping[str, str | None]) -> str:
    """The text of the file in /etc/sysctl.d. The minus lets a boot go on where a key does not exist."""
    lines = ["# Written by Muster. What was higher on this machine, or reserved by somebody else, was taken over.\n"]
    for key in keys:
        why = f"\n# {key.why.strip()}\n" if key.why else "\n"
        lines.append(f"{why}-{key.key} = {sysctl_value(key, live.get(key.key))}\n")
    return "".join(lines)


def _may(plan: Plan, seen: Seen, needs: str, what: str) -> bool:
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


def _packages(plan: Plan, request: Request, seen: Seen) -> None:
    plan.problems += [
        f"{name} {seen.packages[name]} is installed: {why}"
        for name, why in request.refused.items()
        if name in seen.packages
    ]
    missing = []
    for name, version in (chosen(entry, seen.packages) for entry in request.packages):
        there = seen.packages.get(name)
        if there is None:
            missing.append(name)
            plan.before.append(f"package {name}: missing")
            plan.after.append(f"package {name}: {version or 'installed'}")
        elif version and not fnmatchcase(there, version):
            plan.differs(f"{name} is {there} and not {version}", f"package {name}", there, version)
        else:
            continue
        plan.packages.append(f"{name}={version}" if version else name)
    if missing:
        plan.differences.insert(0, f"it lacks the packages {', '.join(missing)}")
    moved = {entry.partition("=")[0] for entry in plan.packages}
    free = [name for name in request.held if name not in seen.held]
    # apt takes the hold from a package that it is made to move.
    plan.hold = [name for name in request.held if name in free or name in moved]
    if free:
        names = ", ".join(free)
        sentence = f"{names} {'is' if len(free) == 1 else 'are'} not on hold, and may be moved by any upgrade"
        plan.differs(sentence, f"hold on {names}", "no", "yes")
    # apt refuses to install anything before this is done, so it belongs to the packages.
    if seen.dpkg_interrupted and plan.packages:
        plan.configure = True
        plan.differs("dpkg was interrupted in its work", "dpkg", "interrupted", "configured")


def _files(plan: Plan, request: Request, seen: Seen, *, verifies: bool) -> None:
    files = list(request.files)
    if request.sysctl_file and request.sysctl:
        files.append(File(request.sysctl_file, sysctl_text(request.sysctl, seen.sysctl), by_effect=True))
    for file in files:
        if verifies and file.by_effect:
            continue
        if not _may(plan, seen, file.needs, file.path):
            continue
        there = seen.files.get(file.path)
        if there is None:
            sentence = f"{file.path} is missing"
        elif there.content != file.content:
            sentence = f"{file.path} has other content"
        elif (there.mode, there.owner, there.group) != (file.mode, file.owner, file.group):
            was, wanted = (f"{each.owner}:{each.group} {each.mode}" for each in (there, file))
            plan.files.append(file)
            plan.differs(f"{file.path} is {was} and not {wanted}", file.path, was, wanted)
            continue
        else:
            continue
        plan.files.append(file)
        plan.differences.append(sentence)


def _sysctl(plan: Plan, request: Request, seen: Seen) -> None:
    for key in request.sysctl:
        live = seen.sysctl.get(key.key)
        if live is None:
            plan.skip(key.key, "this kernel does not have it")
            continue
        wanted = sysctl_value(key, live)
        if wanted.split() == live.split():
            continue
        if key.key in seen.read_only:
            plan.skip(key.key, f"it cannot be written on this machine, and is {' '.join(live.split())}")
            continue
        shown = " ".join(live.split()) or "empty"
        plan.sysctl.append(key.key)
        plan.differs(f"{key.key} is {shown} and not {wanted}", key.key, shown, wanted)


def _manager(plan: Plan, request: Request, seen: Seen) -> None:
    for name, wanted in request.manager.items():
        live = seen.manager.get(name)
        if live is None:
            plan.skip(name, "this systemd does not have it")
        elif live != wanted:
            plan.reexec = True
            plan.differs(f"{name} of systemd is {live} and not {wanted}", f"systemd {name}", live, wanted)


def _units(plan: Plan, request: Request, seen: Seen) -> None:
    logind_differs = [name for name, wanted in request.login.items() if seen.login.get(name, wanted) != wanted]
    for unit in request.units:
        name = unit_name(unit, request, seen.packages)
        if not name or not _may(plan, seen, unit.needs, name):
            continue
        state = seen.units.get(name, {})
        if unit.optional and state.get("LoadState") == "not-found":
            plan.skip(name, "this machine does not have it")
            continue
        if state.get("LoadState") == "masked":
            plan.skip(name, f"somebody has masked it. To have it run: systemctl unmask {name}")
            continue
        todo: UnitStep = {"name": name, "enabled": unit.enabled, "active": unit.active, "restart": False}
        why = []
        if unit.enabled and state.get("UnitFileState") not in _ENABLED:
            why.append("does not start with the system")
        if unit.active and state.get("ActiveState") not in _RUNS:
            why.append("does not run")
        elif unit.active:
            older = [path for path in unit.restart_if_older_than if _is_older(state, path, plan, seen)]
            why.extend(f"has not read {path} since it was changed" for path in older)
            if name == "systemd-logind.service":
                why.extend(
                    f"goes by {each}={seen.login[each]} and not {request.login[each]}" for each in logind_differs
                )
                older.extend(logind_differs)
            todo["restart"] = bool(older)
        if why:
            plan.units.append(todo)
            shown = {True: "started anew", False: "enabled and running" if unit.active else "enabled"}[todo["restart"]]
            plan.differs(f"{name} {' and '.join(why)}", name, ", ".join(why), shown)


def _is_older(state: UnitState, path: str, plan: Plan, seen: Seen) -> bool:
    """Whether the unit was started before the file was changed, or is going to be."""
    if path in {file.path for file in plan.files}:
        return True
    changed = seen.changed.get(path)
    # A time in the future is that of a clock which was wrong then: it says nothing.
    return changed is not None and state.get("Started", 0.0) < changed <= seen.now


def _user(plan: Plan, request: Request, seen: Seen) -> None:
    user = request.user
    if user is None:
        return
    account = seen.account
    if account is not None:
        plan.problems.extend(_refusals(user, account))
        return
    for kind, wanted in (("uid", user.uid), ("gid", user.gid)):
        owner = seen.owners.get(f"{kind} {wanted}", "")
        if wanted and owner and owner != user.name:
            plan.problems.append(f"the {kind} {wanted} of {user.name} belongs to {owner} already: choose another one")
    plan.user = user
    ids = "".join(f", {kind} {wanted}" for kind, wanted in (("uid", user.uid), ("gid", user.gid)) if wanted)
    plan.differs(f"it has no user {user.name}", f"user {user.name}", "none", f"shell {user.shell}{ids}")


def _refusals(user: Account, account: SeenAccount) -> Iterable[str]:
    """An account that exists is the site's own: it is judged, never altered."""
    admin = [group for group in account.groups if group in user.never_in]
    if account.uid == 0 or admin:
        what = "root" if account.uid == 0 else f"in {', '.join(admin)}"
        yield (f"{user.name} is {what}, and training code must not have such rights: set cluster_user to another name")
    if user.uid not in ("", str(account.uid)):
        yield f"{user.name} has the uid {account.uid}, and node_baseline_user_uid is {user.uid}"
    if user.gid not in ("", str(account.gid)):
        yield f"{user.name} has the gid {account.gid}, and node_baseline_user_gid is {user.gid}"
