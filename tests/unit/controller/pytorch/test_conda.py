"""Handling of conda packages on the controller without py-rattler. Tests with py-rattler run on the sandbox."""

from __future__ import annotations

import hashlib
import sys
from typing import TYPE_CHECKING

import pytest

from muster.pytorch.conda import CondaError, CondaPackage, CondaSpecs
from muster.pytorch.lock import LockError
from muster_controller.pytorch import conda, conda_assembly

if TYPE_CHECKING:
    from pathlib import Path

FACTS = {"platform": "linux-64", "glibc": "2.36", "kernel": "6.1.0-49-amd64"}


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CondaPackage:
    monkeypatch.setattr(conda, "CACHE", tmp_path / "cache")
    path = tmp_path / "tool-1.0-0.conda"
    path.write_bytes(b"content")
    return CondaPackage(path.as_uri(), hashlib.sha256(b"content").hexdigest())


def test_package_is_downloaded_once_and_verified_at_each_use(package: CondaPackage, tmp_path: Path) -> None:
    path = conda.fetched(package)
    assert path.read_bytes() == b"content"
    (tmp_path / "tool-1.0-0.conda").unlink()
    assert conda.fetched(package) == path
    path.write_bytes(b"another")
    with pytest.raises(CondaError, match="cannot be downloaded"):
        conda.fetched(package)


def test_file_that_differs_from_the_lock_is_rejected_and_removed(package: CondaPackage, tmp_path: Path) -> None:
    (tmp_path / "tool-1.0-0.conda").write_bytes(b"another")
    with pytest.raises(CondaError, match="does not match its sha256 in the lock"):
        conda.fetched(package)
    assert not [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]


def test_file_name_with_path_is_rejected(package: CondaPackage, tmp_path: Path) -> None:
    """The channel chooses file names. This name would be written outside the cache."""
    folder = tmp_path / "channel/one/two/three"
    folder.mkdir(parents=True)
    (tmp_path / "channel/evil-1.0-0.conda").write_bytes(b"content")
    hostile = CondaPackage(f"{folder.as_uri()}/{'%2e%2e%2f' * 3}evil-1.0-0.conda", package.sha256)
    with pytest.raises(LockError, match="is not the URL of a conda package"):
        conda.fetched(hostile)
    assert not (tmp_path / "evil-1.0-0.conda").exists()


def test_missing_library_is_reported_with_install_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rattler", None)
    with pytest.raises(CondaError, match="script/setup conda"):
        conda.solve(CondaSpecs(("conda-forge",), ("python",)), "linux-64", FACTS)


@pytest.mark.parametrize(
    ("said", "version"), [("6.1.0-49-amd64", "6.1.0"), ("2.36", "2.36"), ("", "0"), ("--x 1", "0"), ("6.18+", "6.18")]
)
def test_only_the_numbers_of_a_reported_version_are_used(said: str, version: str) -> None:
    assert conda.version_in(said) == version


def test_archive_is_built_reproducibly(tmp_path: Path) -> None:
    for name in ("one", "two"):
        tree = tmp_path / name
        (tree / "bin").mkdir(parents=True)
        (tree / "bin/python3.12").write_text("x")
        (tree / "bin/python").symlink_to("python3.12")
        with (tmp_path / f"{name}.tar").open("wb") as archive:
            conda_assembly.pack(tree, archive)
    assert (tmp_path / "one.tar").read_bytes() == (tmp_path / "two.tar").read_bytes()
