"""Checks of conda environments on a node, and rejected archive members."""

from __future__ import annotations

import json
import os
import tarfile
from typing import TYPE_CHECKING, Any

import pytest
from ansible.module_utils.muster_node.pytorch import conda
from ansible.module_utils.muster_node.pytorch.root import LookedAs

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    path = tmp_path / "envs/one"
    (path / "conda-meta").mkdir(parents=True)
    (path / "bin").mkdir()
    (path / "bin/python").symlink_to("/usr/bin/python3")
    record = {"name": "python", "version": "3.12.4", "build": "h1_0", "files": ["bin/python"]}
    (path / "conda-meta/python-3.12.4-h1_0.json").write_text(json.dumps(record))
    return path


def root(path: Path) -> conda.CondaRoot:
    return conda.CondaRoot(str(path), LookedAs("nobody", None))


def test_conda_records_are_checked(environment: Path, tmp_path: Path) -> None:
    look = root(tmp_path).look(environment, "files")
    assert look == {"python": "3.12", "packages": {"python": "3.12.4_h1_0"}, "faults": [], "error": ""}
    (environment / "bin/python").unlink()
    assert root(tmp_path).look(environment, "files")["faults"] == ["python: bin/python is missing"]


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"name": "x", "version": "1", "build": "0", "files": 3}'])
def test_invalid_conda_record_is_reported_as_a_fault(environment: Path, tmp_path: Path, text: str) -> None:
    (environment / "conda-meta/x-1-0.json").write_text(text)
    (fault,) = root(tmp_path).look(environment, "files")["faults"]
    assert fault.startswith("x-1-0.json cannot be read (")


def test_folder_without_records_is_rejected(tmp_path: Path) -> None:
    assert root(tmp_path).look(tmp_path, "files") == {"error": "no conda packages found"}


def member(name: str, **more: Any) -> tarfile.TarInfo:
    found = tarfile.TarInfo(name)
    for field, value in more.items():
        setattr(found, field, value)
    return found


def unpacked(folder: Path, *members: tarfile.TarInfo) -> Path:
    with tarfile.open(folder / "environment.tar", "w") as archive:
        for each in members:
            archive.addfile(each)
    (folder / "one").mkdir()
    conda.unpack(folder / "environment.tar", folder / "one")
    return folder / "one"


@pytest.mark.parametrize("name", ["/etc/passwd", "../x", "bin/../../x"])
def test_paths_outside_the_folder_are_rejected(tmp_path: Path, name: str) -> None:
    with pytest.raises(conda.CondaError, match="is an invalid or duplicate path"):
        unpacked(tmp_path, member("bin/first"), member(name))
    assert list((tmp_path / "one").iterdir()) == [], "all members are checked before the first one is unpacked"


def test_links_outside_the_folder_are_rejected(tmp_path: Path) -> None:
    for target, refusal in ((str(tmp_path), "points outside the environment"), ("share", "is below a link")):
        folder = tmp_path / refusal
        folder.mkdir()
        with pytest.raises(conda.CondaError, match=refusal):
            unpacked(folder, member("lib", type=tarfile.SYMTYPE, linkname=target), member("lib/x"))
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize(
    "more",
    [{"type": tarfile.CHRTYPE}, {"type": tarfile.LNKTYPE, "linkname": "/etc/shadow"}, {"mode": 0o6777}],
    ids=["device", "hard link", "set-user-ID"],
)
def test_devices_hard_links_and_setuid_files_are_rejected(tmp_path: Path, more: dict[str, Any]) -> None:
    with pytest.raises(conda.CondaError, match="is not a regular file, a symbolic link or a directory"):
        unpacked(tmp_path, member("bin/x", **more))


@pytest.mark.skipif(os.geteuid() != 0, reason="requires root")
def test_unpacked_files_are_writable_only_by_root(tmp_path: Path) -> None:
    status = (unpacked(tmp_path, member("x", mode=0o777, uid=1000, gid=1000)) / "x").stat()
    assert (status.st_mode & 0o7777, status.st_uid, status.st_gid) == (0o755, 0, 0)
