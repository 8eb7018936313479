"""Root copies the wheels of a resolve from a folder with untrusted contents."""

from __future__ import annotations

import hashlib
import os
import sys
import zipfile
from typing import TYPE_CHECKING

import pytest
from ansible.module_utils.muster.pytorch.wheels import WheelError
from ansible.module_utils.muster_node.pytorch import resolving
from ansible.module_utils.muster_node.tools.files import UnsafePathError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("nothing_waits")

TINY = "tiny-1.0-py3-none-any.whl"


@pytest.fixture
def target(tmp_path: Path) -> Path:
    path = tmp_path / "taken"
    path.mkdir()
    return path


@pytest.fixture
def built(tmp_path: Path) -> Path:
    path = tmp_path / "wheels"
    path.mkdir()
    wheel(path)
    return path


def wheel(folder: Path, more: str = "", file: str = TINY) -> None:
    with zipfile.ZipFile(folder / file, "w") as archive:
        archive.writestr("tiny-1.0.dist-info/METADATA", f"Metadata-Version: 2.1\nName: Tiny\nVersion: 1.0\n{more}\n")


def test_wheels_are_copied_with_their_metadata(built: Path, target: Path) -> None:
    (found,) = resolving.take_over(str(built), target)
    assert (found.name, found.version, found.file) == ("Tiny", "1.0", TINY)
    assert found.sha256 == hashlib.sha256((target / TINY).read_bytes()).hexdigest()
    assert (target / TINY).stat().st_mode & 0o777 == 0o644


def make_link(path: Path) -> None:
    path.symlink_to("/etc/passwd")


def wheel_of_another_package(path: Path) -> None:
    wheel(path.parent, file="torch-1.0-py3-none-any.whl")


def corrupt(path: Path) -> None:
    """Write an archive with corrupt compressed data."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("other-1.0.dist-info/METADATA", "Name: other\nVersion: 1.0\n" * 100)
    content = bytearray(path.read_bytes())
    begin = content.index(b"METADATA") + len(b"METADATA")
    content[begin : begin + 20] = b"\xff" * 20
    path.write_bytes(content)


OTHER = "other-1.0-py3-none-any.whl"


@pytest.mark.parametrize(
    "put",
    [
        pytest.param(make_link, id="link"),
        pytest.param(os.mkfifo, id="pipe without a writer"),
        pytest.param(os.mkdir, id="folder"),
        pytest.param(lambda path: path.write_text("no archive"), id="not an archive"),
        pytest.param(corrupt, id="corrupt archive"),
        pytest.param(lambda path: path.with_name("setup.py").write_text(""), id="not a wheel name"),
        pytest.param(wheel_of_another_package, id="wheel of another package"),
        pytest.param(
            lambda path: wheel(path.parent, "Requires-Dist: evil @\n https://x.example/evil.tar.gz\n"),
            id="requirement by URL",
        ),
    ],
)
def test_unexpected_files_are_rejected(built: Path, target: Path, put: Callable[[Path], object]) -> None:
    put(built / OTHER)
    with pytest.raises((WheelError, UnsafePathError)):
        resolving.take_over(str(built), target)
    assert not {path.name for path in target.iterdir()} - {TINY, OTHER, "torch-1.0-py3-none-any.whl"}
    assert not any(path.is_symlink() for path in target.iterdir())


def test_oversized_results_are_rejected(built: Path, target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (built / TINY).open("ab") as file:
        file.truncate(1 << 40)  # without a block on the disk
    monkeypatch.setattr(resolving, "MOST_BYTES", 1 << 22)
    with pytest.raises(WheelError, match="exceeds"):
        resolving.take_over(str(built), target)
    assert not list(target.iterdir())
    monkeypatch.setattr(resolving, "MOST_WHEELS", 0)
    with pytest.raises(UnsafePathError):
        resolving.take_over(str(built), target)


def test_user_without_root_resolves_in_an_own_folder(tmp_path: Path) -> None:
    (tmp_path / "wheels").mkdir()
    resolver = resolving.Resolver(sys.executable, tmp_path)
    resolver.as_root, resolver.folder = False, tmp_path / "wheels/.new-cache"
    with resolver.fresh():
        done = resolver.pip(["/bin/sh", "-c", "pwd; echo $HOME; cat .netrc"], {"A": "b"}, {".netrc": "secret"})
        assert (done.code, done.text) == (0, f"{resolver.folder}\n{resolver.folder}\nsecret")
        assert resolver.folder.stat().st_mode & 0o777 == 0o700
    assert not resolver.folder.exists()
