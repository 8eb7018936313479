"""Probe of an existing environment: a real venv and its permissions."""

from __future__ import annotations

import os
import pwd
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from ansible.module_utils.muster_node.pytorch import existing

if TYPE_CHECKING:
    from pathlib import Path

ME = pwd.getpwuid(os.geteuid()).pw_name


@pytest.fixture
def prefix(tmp_path: Path) -> Path:
    path = tmp_path / "train"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", path], check=True, timeout=60)
    return path


def test_existing_environment_is_described_by_its_own_python(prefix: Path) -> None:
    seen = existing.look(str(prefix), ME)
    assert seen["there"]
    assert seen["marks"]["pyvenv.cfg"].startswith("home = ")
    assert (seen["everybody"], seen["torchrun"]) == ("", False)
    assert seen["said"]["prefix"] == str(prefix)
    assert seen["said"]["error"].startswith("ModuleNotFoundError: No module named 'torch'")


def test_python_of_a_world_writable_environment_is_not_started(prefix: Path) -> None:
    (prefix / "bin").chmod(0o777)
    seen = existing.look(str(prefix), ME)
    assert seen["everybody"] == f"{prefix}/bin"
    assert seen["said"] == {}


def test_missing_folder_is_reported(tmp_path: Path) -> None:
    seen = existing.look(str(tmp_path / "gone"), ME)
    assert (seen["there"], seen["marks"], seen["said"]) == (False, {}, {})
