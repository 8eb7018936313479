"""Derive the differences from the inventory from the check-mode results of the steps. Pure functions."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ..road.steps import STEPS
from . import judge
from .model import DriftDifference, Subject

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ..verdict.check import Check
    from .model import Taken

TAGS = {role: step.tag for step in STEPS for role in step.roles}
# The check for other sentences of a role: those not about a package, a unit, a file, a setting or the account.
OF_ROLE = {
    "cluster_hosts": judge.NAMES,
    "ssh_mesh": judge.SSH,
    "firewall": judge.FIREWALL,
    "mtu": judge.MTU,
    "package_sources": judge.SOURCES,
    "gpu_stack": judge.SOURCES,
    "nvidia_driver": judge.DRIVER,
    "pytorch": judge.ENVIRONMENT,
    "launch_users": judge.USERS,
    "workbench": judge.USERS,
}
# Roles that report differences by their diff only, and the files concerned.
FILES_OF = {
    "firewall": ("/etc/ufw/user.rules", "/etc/ufw/user6.rules", "/etc/ufw/ufw.conf", "/etc/muster/firewall.nft"),
    "cluster_hosts": ("/etc/hosts",),
}
# The subject of a role's sentences that begin with "it".
IT = {"cluster_hosts": "/etc/hosts", "pytorch": "the environment"}
WORDS_OF = {"firewall": ("ufw", "nft", "iptables"), "pytorch": ("pip",)}
LACKS = re.compile(r"it lacks the packages (.+)")
IS_NOT = re.compile(r"(?P<what>.+?) is (?P<observed>.+?) (?:and not|instead of) (?P<expected>.+)")
PATH = re.compile(r"(?<![\w:/.])(?:~[\w.-]*)?/(?:etc|usr|var|lib|opt|home|root|run|srv|\.ssh)/?[\w./@+-]*")
UNIT = re.compile(r"^(\S+\.(?:service|timer|socket|mount|target))\b")
RIGHTS = re.compile(r"(?P<user>\S+) is (?P<what>in [^,]+(?:, [^,]+)*|root|allowed .+), and training code must not")
IN_THE_ENVIRONMENT = re.compile(
    r"\bhas ([A-Za-z][\w.-]*) [\w.+!]+(?:,|$)|^([A-Za-z][\w.-]*) [\w.+!]+ is installed but"
    r"|^([A-Za-z_][\w.-]*): \S+ is missing"
)
MISSING = re.compile(r"(?:^|: )[\w.-]+: (?:\.\./)*(\S+) is missing")
NAMED = re.compile(r"environment ([a-z][a-z0-9_-]*): (.+)")
NOBODY = "it has no user "
# A consequence that accompanies a fault of the environment in use.
FOLLOWS = " is no longer kept"
MOST_SHOWN = 3  # lines of a diff
LONGEST = 70  # characters of a line that a sentence quotes


def differences(said: Iterable[Taken]) -> list[DriftDifference]:
    """Return the differences without duplicates."""
    found: dict[tuple[str, str, str], DriftDifference] = {}
    for one in said:
        if one["unreachable"]:
            continue
        for each in _refusals(one) if one["failed"] else _planned(one):
            found.setdefault((each.node, each.check.id, each.what), each)
    return list(found.values())


def unreachable(said: Iterable[Taken]) -> dict[str, str]:
    return {one["node"]: one["message"] or "no response" for one in said if one["unreachable"]}


def stopped_at(said: Iterable[Taken]) -> dict[str, str]:
    """Return, for each rejected node, the tag of the step that rejected it. Later steps did not check the node."""
    return {one["node"]: TAGS.get(one["role"], "") for one in said if one["failed"]}


def _planned(one: Taken) -> Iterator[DriftDifference]:
    if not one["changed"]:
        return
    own = [each for each in one["sentences"] if not each.endswith(FOLLOWS)]
    for sentence in own or one["sentences"]:
        lacks = LACKS.fullmatch(sentence)
        if lacks:
            for name in lacks[1].split(", "):
                yield _of(one, judge.PACKAGE, f"the package {name} is missing", "none", "installed", _package(name))
        else:
            yield _sentence(one, sentence)
    if not one["sentences"]:
        yield from _by_its_diff(one)


def _sentence(one: Taken, sentence: str) -> DriftDifference:
    paths = tuple(Subject("file", path) for path in dict.fromkeys(PATH.findall(sentence)))
    unit = UNIT.match(sentence)
    package = next((name for name in map(_name, one["packages"]) if sentence.startswith(f"{name} is ")), "")
    setting = next((key for key in one["sysctl"] if sentence.startswith(f"{key} is ")), "")
    pair = IS_NOT.fullmatch(sentence)
    observed, expected = (pair["observed"], pair["expected"]) if pair else ("", "")
    if setting:
        value = observed.replace("\t", " ")
        return _of(one, judge.SYSCTL, sentence, observed, expected, (Subject("sysctl", setting),), value)
    if package:
        return _of(one, judge.PACKAGE, sentence, observed, expected, _package(package), observed)
    if unit:
        return _of(one, judge.UNIT, sentence, "", "", (Subject("unit", unit[1]), *paths))
    if sentence.startswith(NOBODY):
        name = sentence.removeprefix(NOBODY)
        return _of(one, judge.ACCOUNT, sentence, "none", "", (Subject("file", "/etc/passwd"), Subject("word", name)))
    check = OF_ROLE.get(one["role"]) or (judge.FILE if paths else judge.STACK)
    if not pair and check is not judge.ENVIRONMENT:
        observed, expected = _sides(one, [path.name for path in paths] or list(one["sides"]))
    what = (
        f"{IT[one['role']]} {sentence.removeprefix('it ')}"
        if one["role"] in IT and sentence.startswith("it ")
        else sentence
    )
    return _of(one, check, what, observed, expected, (*paths, *_others(one, sentence)))


def _by_its_diff(one: Taken) -> Iterator[DriftDifference]:
    check = OF_ROLE.get(one["role"], judge.STACK)
    for header, (there, wanted) in one["sides"].items():
        path = header if PATH.fullmatch(header) else ""
        what = path or header.partition(": ")[2] or header
        subjects = (*((Subject("file", path),) if path else ()), *_others(one, ""))
        alone = (
            f"lacks {_quoted(wanted)}" if not there else f"has {_quoted(there)}" if not wanted else "has other lines"
        )
        yield _of(one, check, f"{what} {alone}", _shown(there), _shown(wanted), subjects)
    if not one["sides"]:
        yield _of(one, check, f"the task “{one['task']}” would change the node", "", "", _others(one, ""))


def _refusals(one: Taken) -> Iterator[DriftDifference]:
    for said in filter(None, (text.removeprefix("- ").strip() for text in one["message"].splitlines())):
        line = said.removeprefix(f"{one['node']}: ")
        rights = RIGHTS.search(line)
        if rights:
            groups = rights["what"].removeprefix("in ").split(", ")
            words = (Subject("file", "/etc/group"), *(Subject("word", name) for name in (rights["user"],)))
            yield _of(
                one, judge.ACCOUNT, f"{rights['user']} is {rights['what']}", ", ".join(groups), "no rights", words
            )
        else:
            yield _of(one, judge.REFUSED, line, "", "", ())


def _of(
    one: Taken,
    check: Check,
    what: str,
    observed: str,
    expected: str,
    subjects: tuple[Subject, ...],
    value: str = "",
) -> DriftDifference:
    # No step can fix these.
    tag = "" if check in (judge.REFUSED, judge.ACCOUNT) and one["failed"] else TAGS.get(one["role"], "")
    return DriftDifference(one["node"], check, what, observed, expected, tag, subjects, value)


def _package(name: str) -> tuple[Subject, ...]:
    return tuple(Subject("package", each) for each in _name(name).split("|"))


def _name(package: str) -> str:
    return package.partition("=")[0]


def _others(one: Taken, sentence: str) -> tuple[Subject, ...]:
    files = FILES_OF.get(one["role"], ())
    words = WORDS_OF.get(one["role"], ())
    named = NAMED.fullmatch(sentence)
    begin, said = (f"{named[1]}/", named[2]) if named else ("", sentence)
    found = IN_THE_ENVIRONMENT.findall(said) if one["role"] == "pytorch" else []
    parts = [f"{begin}{next(filter(None, names))}" for names in found]
    # Files beside the packages have no recorded time; their name is matched with commands.
    gone = MISSING.findall(said) if parts else []
    return (
        *(Subject("file", path) for path in files),
        *(Subject("part", name) for name in parts),
        *(Subject("word", word) for word in (*words, *gone)),
    )


def _sides(one: Taken, headers: Iterable[str]) -> tuple[str, str]:
    there, wanted = next((one["sides"][name] for name in headers if name in one["sides"]), ([], []))
    return _shown(there), _shown(wanted)


def _shown(lines: list[str]) -> str:
    more = f" and {len(lines) - MOST_SHOWN} more" if len(lines) > MOST_SHOWN else ""
    return " / ".join(line.strip() for line in lines[:MOST_SHOWN]) + more


def _quoted(lines: list[str]) -> str:
    first = lines[0].strip()
    cut = first if len(first) <= LONGEST else f"{first[: LONGEST - 1]}…"
    return f"“{cut}”" + (f" and {len(lines) - 1} more" if len(lines) > 1 else "")
