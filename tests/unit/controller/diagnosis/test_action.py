"""Validation of the launch id before the action reads or writes files."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible.errors import AnsibleActionFail

PATH = Path(__file__).parents[4] / "plugins/action/diagnose.py"


@pytest.mark.parametrize("launch_id", ["../../../x", "/etc", "latest", "20260101-120000-abcd/../../x", "x"])
def test_no_folder_is_created_for_an_invalid_launch_id(launch_id: str, tmp_path: Path) -> None:
    spec = importlib.util.spec_from_file_location("diagnose_action", PATH)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    kept = tmp_path / "a/b/c"
    kept.mkdir(parents=True)
    before = sorted(tmp_path.rglob("*"))
    action: Any = SimpleNamespace()  # without access to files or nodes
    with pytest.raises(AnsibleActionFail, match="is not a launch ID"):
        module.ActionModule.known(action, launch_id, kept, {})
    assert sorted(tmp_path.rglob("*")) == before
