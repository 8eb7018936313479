"""An environment that somebody else has made, as a node sees it: a real one of Python's own kind, and its rights."""

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


def test_its_python_says_what_is_in_it(prefix: Path) -> None:
    seen = existing.look(str(prefix), ME)
    assert seen["there"]
    assert seen["marks"]["pyvenv.cfg"].startswith("home = ")
    assert (seen["everybody"], seen["torchrun"]) == ("", False)
    assert seen["said"]["prefix"] == str(prefix)
    assert seen["said"]["error"].startswith("ModuleNotFoundError: No module named 'torch'")


def test_what_everybody_may_change_is_not_started(prefix: Path) -> None:
    (prefix / "bin").chmod(0o777)
    seen = existing.look(str(prefix), ME)
    assert seen["everybody"] == f"{prefix}/bin"
    assert seen["said"] == {}


def test_a_folder_that_is_not_there_is_said(tmp_path: Path) -> None:
    seen = existing.look(str(tmp_path / "gone"), ME)
    assert (seen["there"], seen["marks"], seen["said"]) == (False, {}, {})
