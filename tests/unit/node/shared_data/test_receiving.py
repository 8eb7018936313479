"""Validation of target folders for data on a node. Targets that other users can replace are rejected."""

from __future__ import annotations

import hashlib
import os
from typing import TYPE_CHECKING

import pytest

from muster_node.distribution import store
from muster_node.distribution.manifest import ManifestFile
from muster_node.shared_data import copying
from muster_node.shared_data.copying import Receiving
from muster_node.shared_data.mounted import Mounted
from muster_node.shared_data.remembered import Remembered
from muster_node.tools import files

if TYPE_CHECKING:
    from pathlib import Path

CONTENT = b"1234"
FILE = ManifestFile("a/file", executable=False, size=len(CONTENT), sha256=hashlib.sha256(CONTENT).hexdigest())


@pytest.mark.parametrize(
    ("mounts", "path", "refused"),
    [
        (["/"], "/data/set", ""),
        (["/", "/data"], "/data/set", "is on files:/data (nfs4), which other nodes share"),
        (["/", "/data"], "/data", "is on files:/data (nfs4), which other nodes share"),
        (["/", "/dat"], "/data/set", ""),
        (["/", "/data/set/below"], "/data/set", ""),
    ],
)
def test_network_file_system_is_rejected_as_target(
    monkeypatch: pytest.MonkeyPatch, mounts: list[str], path: str, refused: str
) -> None:
    there = [Mounted(each, f"files:{each}", "ext4" if each == "/" else "nfs4", "rw") for each in mounts]
    monkeypatch.setattr(copying, "mounted", lambda: there)
    if not refused:
        copying.refuse(path)
        return
    with pytest.raises(files.UnsafePathError) as problem:
        copying.refuse(path)
    assert problem.value.strerror == refused


def test_file_is_rejected_as_target_folder(tmp_path: Path) -> None:
    (tmp_path / "set").write_bytes(b"")
    with pytest.raises(files.UnsafePathError, match="is not a folder"):
        copying.refuse(str(tmp_path / "set"))


@pytest.mark.parametrize("kind", ["link", "world-writable"])
def test_target_that_other_users_can_replace_is_rejected(tmp_path: Path, kind: str) -> None:
    target, outside = tmp_path / "set", tmp_path / "outside"
    for each in (target, outside):
        each.mkdir()
    if kind == "link":
        (target / "a").symlink_to(outside)
    else:
        (target / "a").mkdir()
        (target / "a").chmod(0o777)
    with store.opened(str(target / ".muster-data")) as shelf, files.folder(str(target)) as there:
        source = os.memfd_create("content")
        os.write(source, CONTENT)
        assert store.take(shelf, FILE, source, 0)
        os.close(source)
        here = Receiving(there, Remembered(str(tmp_path / "kept"), str(target)))
        said = here.look([FILE], again=False)
        assert (said["missing"], said["changed"], len(said["blocked"])) == ([], [], 1)
        with pytest.raises(OSError, match=r"link|writable for other users"):
            here.place(shelf, [FILE])
        with pytest.raises(OSError, match=r"link|writable for other users|File exists"):
            here.link([("a/link", "file")])
    assert list(outside.iterdir()) == []
    assert not (target / "a/file").exists()


def test_corrupt_content_is_not_placed(tmp_path: Path) -> None:
    target = tmp_path / "set"
    target.mkdir()
    twin = FILE._replace(path="b")
    with store.opened(str(target / ".muster-data")) as shelf, files.folder(str(target)) as there:
        (target / ".muster-data/objects" / FILE.sha256).write_bytes(b"9999")
        here = Receiving(there, Remembered(str(tmp_path / "kept"), str(target)))
        with pytest.raises(OSError, match="was changed on this node"):
            here.place(shelf, [twin, FILE])
    assert sorted(path.name for path in target.iterdir()) == [".muster-data"]
