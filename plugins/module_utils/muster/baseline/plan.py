"""Compute the changes of a node: pure functions on the state that muster_node/baseline collects.

Only live state counts: a daemon might not have read a correct file yet, and the kernel's settings might differ from
/etc/sysctl.d. So if a run is interrupted between writing a file and applying it, the next run completes the change.
"""

from __future__ import annotations

import re
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from .model import AccountState, BaselineAccount, BaselineFile, BaselinePlan, BaselineRequest, BaselineState, may

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from .model import BaselineUnit, BaselineUnitStep, SysctlKey, UnitState

_RULE = re.compile(r"\s+\(([^):]*)[^)]*\)\s*(.*)")
_FIELDS = ("Package: ", "Status: ", "Version: ")
# UnitFileState in `systemctl show` of units that start at boot or are started by another unit.
_ENABLED = frozenset({"enabled", "enabled-runtime", "static", "alias", "indirect", "generated", "linked"})
_RUNS = frozenset({"active", "activating", "reloading"})
# UID_MIN and UID_MAX of /etc/login.defs in Debian and Ubuntu: the range of useradd.
_ORDINARY = range(1000, 60001)


def make_plan(request: BaselineRequest, seen: BaselineState, *, verifies: bool = False) -> BaselinePlan:
    plan = BaselinePlan()
    plan_packages(plan, request, seen)
    _files(plan, request, seen, verifies=verifies)
    plan_sysctl(plan, request, seen)
    _manager(plan, request, seen)
    plan_units(plan, request, seen)
    _user(plan, request, seen)
    return plan


def _files(plan: BaselinePlan, request: BaselineRequest, seen: BaselineState, *, verifies: bool) -> None:
    files = list(request.files)
    if request.sysctl_file and request.sysctl:
        files.append(BaselineFile(request.sysctl_file, sysctl_text(request.sysctl, seen.sysctl), by_effect=True))
    for file in files:
        if verifies and file.by_effect:
            continue
        if not may(plan, seen, file.needs, file.path):
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


def _manager(plan: BaselinePlan, request: BaselineRequest, seen: BaselineState) -> None:
    for name, wanted in request.manager.items():
        live = seen.manager.get(name)
        if live is None:
            plan.skip(name, "systemd does not support this setting")
        elif live != wanted:
            plan.reexec = True
            plan.differs(f"{name} of systemd is {live} and not {wanted}", f"systemd {name}", live, wanted)


def _user(plan: BaselinePlan, request: BaselineRequest, seen: BaselineState) -> None:
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
            plan.problems.append(
                f"the {kind} {wanted} of {user.name} already belongs to {owner}: choose another {kind}"
            )
    plan.user = user = with_home(user, seen)
    ids = "".join(f", {kind} {wanted}" for kind, wanted in (("uid", user.uid), ("gid", user.gid)) if wanted)
    plan.differs(f"it has no user {user.name}", f"user {user.name}", "none", f"shell {user.shell}{ids}")


def with_home(user: BaselineAccount, seen: BaselineState) -> BaselineAccount:
    """Return the new account with the IDs of its home directory, which a removed account of the same name has left,
    unless others have these IDs or they differ from requested ones."""
    if seen.home is None:
        return user
    uid, gid = seen.home
    if uid not in _ORDINARY or f"uid {uid}" in seen.owners or user.uid not in ("", str(uid)):
        return user
    has_group = gid in _ORDINARY and seen.owners.get(f"gid {gid}", user.name) == user.name
    return replace(user, uid=str(uid), gid=user.gid or (str(gid) if has_group else ""))


def _is_everything(line: str) -> bool:
    """Return whether a line of `sudo -l` allows all commands as root, such as `    (ALL : ALL) NOPASSWD: ALL`."""
    found = _RULE.fullmatch(line)
    if found is None or not {"ALL", "root", "#0"} & set(re.split(r"[,\s]+", found[1])):
        return False
    return any(re.sub(r"^([A-Z_]+:\s*)*", "", command.strip()) == "ALL" for command in found[2].split(","))


def _refusals(user: BaselineAccount, account: AccountState) -> Iterable[str]:
    """Yield the problems of an existing account. Muster never changes existing accounts."""
    admin = [group for group in account.groups if group in user.never_in]
    sudo = any(map(_is_everything, account.sudo.splitlines())) if user.never_in else False
    if account.uid == 0 or admin or sudo:
        groups = f"in {', '.join(admin)}" if admin else "allowed to run every command with sudo"
        what = "root" if account.uid == 0 else groups
        yield f"{user.name} is {what}, and training code must not have root privileges: set another cluster_user"
    if user.uid not in ("", str(account.uid)):
        yield f"{user.name} has the uid {account.uid}, but node_baseline_user_uid is {user.uid}"
    if user.gid not in ("", str(account.gid)):
        yield f"{user.name} has the gid {account.gid}, but node_baseline_user_gid is {user.gid}"


def plan_sysctl(plan: BaselinePlan, request: BaselineRequest, seen: BaselineState) -> None:
    for key in request.sysctl:
        live = seen.sysctl.get(key.key)
        if live is None:
            plan.skip(key.key, "the kernel does not support this setting")
            continue
        wanted = sysctl_value(key, live)
        if wanted.split() == live.split():
            continue
        if key.key in seen.read_only:
            plan.skip(key.key, f"read-only on this node (current value: {' '.join(live.split())})")
            continue
        shown = " ".join(live.split()) or "empty"
        plan.sysctl.append(key.key)
        plan.differs(f"{key.key} is {shown} and not {wanted}", key.key, shown, wanted)


def sysctl_value(key: SysctlKey, live: str | None) -> str:
    """Return the value to set. With at_least, higher current values are kept; with contains, the current ports are
    kept."""
    if live is None or key.rule == "equal":
        return key.value
    if key.rule == "contains":
        return ports(f"{live},{key.value}")
    wanted, there = key.value.split(), live.split()
    if len(wanted) != len(there):
        return key.value
    return " ".join(str(max(int(one), int(other))) for one, other in zip(wanted, there, strict=True))


def ports(text: str) -> str:
    """Format a list of ports in the kernel's notation: sorted, with ranges as 1-3."""
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


def sysctl_text(keys: Iterable[SysctlKey], live: Mapping[str, str | None]) -> str:
    """Return the content of the file in /etc/sysctl.d. The minus sign makes sysctl ignore keys that do not exist."""
    lines = ["# Written by Muster. Higher values and reserved ports that the node already had are kept.\n"]
    for key in keys:
        why = f"\n# {key.why.strip()}\n" if key.why else "\n"
        lines.append(f"{why}-{key.key} = {sysctl_value(key, live.get(key.key))}\n")
    return "".join(lines)


def plan_packages(plan: BaselinePlan, request: BaselineRequest, seen: BaselineState) -> None:
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
    # apt removes the hold of a package when it installs another version.
    plan.hold = [name for name in request.held if name in free or name in moved]
    if free:
        names = ", ".join(free)
        sentence = f"{names} {'is' if len(free) == 1 else 'are'} not on hold and can be changed by an upgrade"
        plan.differs(sentence, f"hold on {names}", "no", "yes")
    # apt installs nothing before dpkg is configured, so this belongs to the packages.
    if seen.dpkg_interrupted and plan.packages:
        plan.configure = True
        plan.differs("dpkg was interrupted", "dpkg", "interrupted", "configured")


def chosen(entry: str, installed: Iterable[str]) -> tuple[str, str]:
    """Return (package, version) for an entry such as "chrony|ntpsec": the installed package or, if none is installed,
    the first one. The version follows "=" in the entry; "" means any."""
    choices = [alternative.partition("=")[::2] for alternative in entry.split("|")]
    return next((choice for choice in choices if choice[0] in installed), choices[0])


def installed_packages(status: str) -> tuple[dict[str, str], frozenset[str]]:
    """Return the installed packages with their versions, and the packages on hold, according to dpkg's status file.

    Half-installed packages do not count. If a package is installed for several architectures, the native one comes
    last.
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


def plan_units(plan: BaselinePlan, request: BaselineRequest, seen: BaselineState) -> None:
    logind_differs = [name for name, wanted in request.login.items() if seen.login.get(name, wanted) != wanted]
    for unit in request.units:
        name = unit_name(unit, request, seen.packages)
        if not name or not may(plan, seen, unit.needs, name):
            continue
        state = seen.units.get(name, {})
        if unit.optional and state.get("LoadState") == "not-found":
            plan.skip(name, "the unit does not exist on this node")
            continue
        if state.get("LoadState") == "masked":
            plan.skip(name, f"the unit is masked. To enable it: systemctl unmask {name}")
            continue
        todo: BaselineUnitStep = {"name": name, "enabled": unit.enabled, "active": unit.active, "restart": False}
        why = []
        if unit.enabled and state.get("UnitFileState") not in _ENABLED:
            why.append("is not enabled at boot")
        if unit.active and state.get("ActiveState") not in _RUNS:
            why.append("is not running")
        elif unit.active:
            older = [path for path in unit.restart_if_older_than if _is_older(state, path, plan, seen)]
            why.extend(f"has not read {path} since its last change" for path in older)
            if name == "systemd-logind.service":
                why.extend(
                    f"uses {each}={seen.login[each]} instead of {request.login[each]}" for each in logind_differs
                )
                older.extend(logind_differs)
            todo["restart"] = bool(older)
        if why:
            plan.units.append(todo)
            shown = {True: "restarted", False: "enabled and running" if unit.active else "enabled"}[todo["restart"]]
            plan.differs(f"{name} {' and '.join(why)}", name, ", ".join(why), shown)


def _is_older(state: UnitState, path: str, plan: BaselinePlan, seen: BaselineState) -> bool:
    """Return whether the unit started before the file changed, or whether the plan is about to change the file."""
    if path in {file.path for file in plan.files}:
        return True
    changed = seen.changed.get(path)
    # A time in the future comes from a clock that was wrong: ignore it.
    return changed is not None and state.get("Started", 0.0) < changed <= seen.now


def unit_name(unit: BaselineUnit, request: BaselineRequest, installed: Iterable[str]) -> str:
    """Return the name of the unit, which depends on the package that is or will be installed."""
    if not unit.of:
        return unit.name
    there = {*installed, *(chosen(entry, installed)[0] for entry in request.packages)}
    return next((name for package, name in unit.of.items() if package in there), "")
