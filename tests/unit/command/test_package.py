"""The package: built, installed into an empty folder, and run there."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from typing import TYPE_CHECKING

import pytest

from paths import ROOT

if TYPE_CHECKING:
    from pathlib import Path

HOSTS = "gpu_nodes: {hosts: {gpu01: {ansible_host: 10.0.0.1}, gpu02: {ansible_host: 10.0.0.2}}}\n"


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the built package, as an installation has it."""
    folder = tmp_path_factory.mktemp("package")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    assert wheel.stat().st_size < 10_000_000
    zipfile.ZipFile(wheel).extractall(folder / "installed")
    return folder / "installed"


def test_installed_command_keeps_its_files_in_the_folders_of_its_user(package: Path, tmp_path: Path) -> None:
    rack = tmp_path / "config/muster/clusters/rack"
    rack.mkdir(parents=True)
    (rack / "hosts.yml").write_text(HOSTS)
    before = sorted(package.rglob("*.yml"))
    env = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("ANSIBLE_", "MUSTER_"))},
        "PYTHONPATH": str(package),
        "PYTHONDONTWRITEBYTECODE": "1",
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
        "XDG_STATE_HOME": str(tmp_path / "state"),
    }
    words = [sys.executable, "-P", "-m", "muster_cli", "plan", "-o", "cluster_gpus=0"]
    done = subprocess.run(words, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 ranks on 2 nodes" in done.stdout.splitlines()[-1]
    wrong = [*words[:-2], "-o", "cluster_name=-"]
    done = subprocess.run(wrong, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert sorted(one.name for one in (tmp_path / "state/muster").iterdir()) == []
    assert sorted(package.rglob("*.yml")) == before
