"""Validation of conda packages, of their combined layout, and of environment archives."""

from __future__ import annotations

import json
import tarfile
from typing import Any

import pytest

from cases import cases
from muster.pytorch import conda_contents
from muster.pytorch.conda import CondaError, CondaPackage

ROOT = "/opt/envs/one"


def entry(given: dict[str, Any]) -> conda_contents.CondaEntry:
    return conda_contents.CondaEntry(**{"kind": "link" if "target" in given else "file", **given})


def package(given: dict[str, Any]) -> tuple[conda_contents.Contents, list[conda_contents.CondaEntry]]:
    """Return a package. given: name, and differences from a valid package: index, paths or files, commands, entries."""
    known = CondaPackage(f"https://h/c/linux-64/{given['name']}-3.11.2-0.conda", "0" * 64)
    index = {"name": given["name"], "version": "3.11.2", "build": "0", **given.get("index", {})}
    texts = {conda_contents.INDEX: json.dumps(index)}
    if "files" in given:
        texts[conda_contents.FILES] = given["files"]
    else:
        paths = [{"path_type": "hardlink", **line} for line in given.get("paths", ())]
        texts[conda_contents.PATHS] = given.get("text") or json.dumps({"paths": paths, "paths_version": 1})
    if "commands" in given:
        texts[conda_contents.LINK] = json.dumps({"noarch": {"type": "python", "entry_points": given["commands"]}})
    return conda_contents.contents_of(known, texts), [entry(each) for each in given.get("entries", ())]


def refusal(case: dict[str, Any]) -> str:
    try:
        known = [package(each) for each in case["packages"]]
        for contents, entries in known:
            conda_contents.check_unpacked(contents, entries)
        layout = conda_contents.layout_of(known, ROOT)
        if "tree" in case:
            conda_contents.check_tree(layout, map(entry, case["tree"]))
    except CondaError as problem:
        return str(problem)
    return ""


@cases(__file__, "conda_packages")
def test_conda_package_contents_are_validated(case: dict[str, Any]) -> None:
    assert refusal(case) == case.get("refusal", "")


@cases(__file__, "conda_tree")
def test_linked_environment_is_compared_with_the_layout(case: dict[str, Any]) -> None:
    assert refusal(case) == case.get("refusal", "")


@cases(__file__, "conda_members")
def test_archive_members_are_validated(case: dict[str, Any]) -> None:
    if "refusal" not in case:
        conda_contents.check_members(map(entry, case["members"]), ROOT)
        return
    with pytest.raises(CondaError) as refused:
        conda_contents.check_members(map(entry, case["members"]), ROOT)
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
def test_tar_members_are_read_as_entries(kind: bytes, expected: str) -> None:
    member = tarfile.TarInfo("bin/x")
    member.type, member.linkname, member.mode = kind, "y", 0o755
    assert conda_contents.member_entry(member) == conda_contents.CondaEntry("bin/x", expected, 0o755, "y")


def test_link_loops_are_rejected() -> None:
    circle = {"a": {"b": ""}, "b": {"a": ""}}
    assert conda_contents.leads_out(circle, "a", "b")
    many = {f"l{number}": {f"l{number + 1}/x": "", f"l{number + 1}/y": ""} for number in range(40)}
    assert conda_contents.leads_out(many, "l0", "l1/x"), "it ends, and refuses what it cannot follow"
