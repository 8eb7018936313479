"""Kept .deb files of installed packages and their sources, with stubs of dpkg-deb and apt-get."""

from __future__ import annotations

from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

from muster_node.packages import debs

OLD, NEW = "libnvidia-compute=1:580.95.05-1", "libnvidia-compute=1:595.91.07-1"


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """Return apt's cache and the folder of kept packages. The text of a file names its package."""
    cache, folder = tmp_path / "cache", tmp_path / "kept"
    cache.mkdir()
    monkeypatch.setattr(debs, "ARCHIVES", str(cache))

    def run(*argv: str) -> CompletedProcess[str]:
        text = Path(argv[-1]).read_text()
        return CompletedProcess(argv, 0 if "=" in text else 2, text, "")

    def apt_get(*argv: str, cwd: str) -> CompletedProcess[str]:
        spec = argv[-1]
        if spec.startswith("gone"):
            return CompletedProcess(argv, 100, "", "")
        Path(cwd, f"{spec.replace('=', '_').replace(':', '%3a')}_amd64.deb").write_text(spec)
        return CompletedProcess(argv, 0, "", "")

    monkeypatch.setattr(debs, "run", run)
    monkeypatch.setattr(debs, "apt_get", apt_get)
    return cache, folder


def keep(folder: Path, *packages: str) -> dict[str, Any]:
    return debs.keep({"folder": str(folder), "packages": list(packages)})


def test_package_is_copied_from_the_cache_or_downloaded(folders: tuple[Path, Path]) -> None:
    cache, folder = folders
    (cache / "libnvidia-compute_1%3a580.95.05-1_amd64.deb").write_text(OLD)
    done = keep(folder, OLD, "nvidia-smi=1")
    assert (done["changed"], done["missing"]) == (True, [])
    assert sorted(path.read_text() for path in folder.iterdir()) == [OLD, "nvidia-smi=1"]
    assert keep(folder, OLD, "nvidia-smi=1")["changed"] is False


def test_truncated_package_in_the_cache_is_downloaded(folders: tuple[Path, Path]) -> None:
    cache, folder = folders
    (cache / "libnvidia-compute_1%3a580.95.05-1_amd64.deb").write_text("half")
    assert keep(folder, OLD)["missing"] == []
    assert [path.read_text() for path in folder.iterdir()] == [OLD]


def test_packages_of_earlier_upgrades_are_removed(folders: tuple[Path, Path]) -> None:
    _, folder = folders
    keep(folder, OLD)
    assert keep(folder, NEW)["changed"] is True
    assert [path.read_text() for path in folder.iterdir()] == [NEW]


def test_unavailable_package_is_reported(folders: tuple[Path, Path]) -> None:
    _, folder = folders
    assert keep(folder, OLD, "gone=1")["missing"] == ["gone=1"]
