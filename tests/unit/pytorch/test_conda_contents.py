"""What conda packages may contain, each by its own list and all together, and what an environment's archive may."""

from __future__ import annotations

import json
import tarfile
from typing import Any

import pytest

from cases import cases
from muster.pytorch.conda import CondaError, CondaPackage
from muster.pytorch.conda_contents import (
    FILES,
    INDEX,
    LINK,
    PATHS,
    CondaEntry,
    Contents,
    check_members,
    check_tree,
    check_unpacked,
    contents_of,
    layout_of,
    leads_out,
    member_entry,
)

ROOT = "/opt/envs/one"


def entry(given: dict[str, Any]) -> CondaEntry:
    return CondaEntry(**{"kind": "link" if "target" in given else "file", **given})


def package(given: dict[str, Any]) -> tuple[Contents, list[CondaEntry]]:
    """given: name, and what differs from a sound package: index, paths or files, commands, entries."""
    known = CondaPackage(f"https://h/c/linux-64/{given['name']}-3.11.2-0.conda", "0" * 64)
    index = {"name": given["name"], "version": "3.11.2", "build": "0", **given.get("index", {})}
    texts = {INDEX: json.dumps(index)}
    if "files" in given:
        texts[FILES] = given["files"]
    else:
        paths = [{"path_type": "hardlink", **line} for line in given.get("paths", ())]
        texts[PATHS] = given.get("text") or json.dumps({"paths": paths, "paths_version": 1})
    if "commands" in given:
        texts[LINK] = json.dumps({"noarch": {"type": "python", "entry_points": given["commands"]}})
    return contents_of(known, texts), [entry(each) for each in given.get("entries", ())]


def refusal(case: dict[str, Any]) -> str:
    try:
        known = [package(each) for each in case["packages"]]
        for contents, entries in known:
            check_unpacked(contents, entries)
        layout = layout_of(known, ROOT)
        if "tree" in case:
            check_tree(layout, map(entry, case["tree"]))
    except CondaError as problem:
        return str(problem)
    return ""


@cases(__file__, "conda_packages")
def test_packages(case: dict[str, Any]) -> None:
    assert refusal(case) == case.get("refusal", "")


@cases(__file__, "conda_tree")
def test_the_environment_that_was_linked(case: dict[str, Any]) -> None:
    assert refusal(case) == case.get("refusal", "")


@cases(__file__, "conda_members")
def test_members_of_an_archive(case: dict[str, Any]) -> None:
    if "refusal" not in case:
        check_members(map(entry, case["members"]), ROOT)
        return
    with pytest.raises(CondaError) as refused:
        check_members(map(entry, case["members"]), ROOT)
    assert str(refused.value) == case["refusal"]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (tarfile.REGTYPE, "file"),
        (tarfile.SYMTYPE, "link"),
        (tarfile.DIRTYPE, "folder"),
        *((kind, "special") for kind in (tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE)),
    ],
)
def test_a_member_of_an_archive(kind: bytes, expected: str) -> None:
    member = tarfile.TarInfo("bin/x")
    member.type, member.linkname, member.mode = kind, "y", 0o755
    assert member_entry(member) == CondaEntry("bin/x", expected, 0o755, "y")


def test_links_without_end() -> None:
    circle = {"a": {"b": ""}, "b": {"a": ""}}
    assert leads_out(circle, "a", "b")
    many = {f"l{number}": {f"l{number + 1}/x": "", f"l{number + 1}/y": ""} for number in range(40)}
    assert leads_out(many, "l0", "l1/x"), "it ends, and refuses what it cannot follow"
