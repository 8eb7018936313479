"""Detection of containers under containerd by their processes, which other users can imitate."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ansible.module_utils.muster_node.tools import process

if TYPE_CHECKING:
    import pytest

MODULE = Path(__file__).parents[4] / "library/container_engine.py"


def test_only_command_lines_of_root_processes_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process of another user can block reads of its command line and can choose any name."""
    spec = importlib.util.spec_from_file_location("container_engine", MODULE)
    assert spec is not None
    assert spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    asked = []

    def words(pid: int) -> list[str]:
        asked.append(pid)
        return ["containerd-shim-runc-v2", "-id", f"{pid}" * 20]

    monkeypatch.setattr(process, "ids", lambda: [7, 8, 9])
    monkeypatch.setattr(process, "read", lambda pid, _name: "sleep" if pid == 9 else "containerd-shim")
    monkeypatch.setattr(process, "user_id", lambda pid: {7: 0, 8: 1000}[pid])
    monkeypatch.setattr(process, "words", words)
    monkeypatch.setattr(module, "unit", lambda *_properties: {})
    assert module.look_at_containerd([])["containers"] == ("7" * 12,)
    assert asked == [7]
