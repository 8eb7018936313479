"""Detection of other users who can change the target of a path."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from muster_node.tools.files import ForeignError
from muster_node.tools.trust import foreign_writer, make_folder

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="only root can create folders of another user")
NOBODY = 65534


@pytest.fixture
def inner(tmp_path: Path) -> Path:
    path = tmp_path / "outer/inner"
    path.mkdir(parents=True, mode=0o755)
    return path


def test_path_writable_only_by_root_is_safe(inner: Path) -> None:
    assert foreign_writer("/") is None
    assert foreign_writer(str(inner)) is None
    assert foreign_writer(f"{inner}/not/yet") is None
    (inner / "file").touch(0o644)
    assert foreign_writer(f"{inner}/file") is None


def test_parent_owned_by_another_user_is_unsafe(inner: Path) -> None:
    os.chown(inner.parent, NOBODY, 0)
    assert foreign_writer(f"{inner}/x") == f"{inner.parent} belongs to nobody"
    with pytest.raises(ForeignError, match=r"is not safe to use: .* belongs to nobody"):
        make_folder(f"{inner}/x")
    assert not (inner / "x").exists()


@pytest.mark.parametrize(("mode", "who"), [(0o775, "the group daemon"), (0o777, "all users"), (0o1777, "all users")])
def test_folder_writable_by_other_users_is_unsafe(inner: Path, mode: int, who: str) -> None:
    os.chown(inner, 0, 1)
    inner.chmod(mode)
    assert foreign_writer(str(inner)) == f"{inner} is writable by {who}"


@pytest.mark.parametrize("mode", [0o775, 0o777])
def test_parent_writable_by_other_users_is_unsafe(inner: Path, mode: int) -> None:
    inner.parent.chmod(mode)
    assert str(inner.parent) in str(foreign_writer(str(inner)))


def test_sticky_parent_is_safe_for_root_folders(inner: Path) -> None:
    inner.parent.chmod(0o1777)
    assert foreign_writer(str(inner)) is None
    os.chown(inner, NOBODY, 0)
    assert foreign_writer(f"{inner}/x") == f"{inner} belongs to nobody"


def test_links_in_the_path_are_checked(inner: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to("outer/../outer/inner")
    assert foreign_writer(f"{link}/x") is None
    os.chown(link, NOBODY, 0, follow_symlinks=False)
    assert foreign_writer(f"{link}/x") == f"{link} belongs to nobody"
    os.chown(link, 0, 0, follow_symlinks=False)
    inner.parent.chmod(0o777)
    assert foreign_writer(f"{link}/x") == f"{inner.parent} is writable by all users"
    (tmp_path / "around").symlink_to(tmp_path / "around")
    assert foreign_writer(f"{tmp_path}/around") == f"{tmp_path}/around is part of a loop of links"


def test_file_writable_by_other_users_is_unsafe(inner: Path) -> None:
    (inner / "file").touch()
    (inner / "file").chmod(0o666)
    assert foreign_writer(f"{inner}/file") == f"{inner}/file is writable by all users"


def test_folders_are_created_only_in_safe_paths(inner: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(inner)
    make_folder(f"{tmp_path}/link/a/b")
    make_folder(f"{inner}/a/b")
    assert (inner / "a/b").stat().st_mode & 0o7777 == 0o755


def test_folder_created_first_by_another_user_is_rejected(inner: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inner.chmod(0o1777)

    def first(path: str) -> str:
        (inner / "a").mkdir()
        os.chown(inner / "a", NOBODY, 0)
        return path

    monkeypatch.setattr(os.path, "realpath", first)
    with pytest.raises(ForeignError):
        make_folder(f"{inner}/a/b")
    assert not (inner / "a/b").exists()
