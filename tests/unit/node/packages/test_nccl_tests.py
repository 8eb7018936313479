"""Commands run as the training user to build and check nccl-tests."""

from __future__ import annotations

import importlib.util
import os
import pwd
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pytest

MODULE = Path(__file__).parents[4] / "library/nccl_tests.py"


def test_command_that_suspends_its_timeout_process_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = importlib.util.spec_from_file_location("nccl_tests", MODULE)
    assert spec is not None
    assert spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "MARGIN", 1)
    builder = module.Builder(pwd.getpwuid(os.getuid()).pw_name)
    builder.ids = {}
    began = time.monotonic()
    assert builder.run("sh", "-c", "kill -STOP $PPID; sleep 30", cwd=tmp_path, seconds=1) == "no result within 1 s"
    assert time.monotonic() - began < 20
