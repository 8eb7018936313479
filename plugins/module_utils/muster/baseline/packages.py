"""Packages: which are missing, of another version, or free to be moved."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .model import BaselinePlan, BaselineRequest, BaselineState

_FIELDS = ("Package: ", "Status: ", "Version: ")


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


def chosen(entry: str, installed: Iterable[str]) -> tuple[str, str]:
    """Of "chrony|ntpsec" the one that is installed, else the first; with the version after a "=", empty for any."""
    choices = [alternative.partition("=")[::2] for alternative in entry.split("|")]
    return next((choice for choice in choices if choice[0] in installed), choices[0])


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
