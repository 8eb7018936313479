"""Cached inspections: valid for later steps of a run until they expire or the node is changed."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from ansible import constants

from muster_controller.road.looks_kept import KeptLooks

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_cached_inspections_expire_after_time_or_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(constants, "DEFAULT_LOCAL_TMP", str(tmp_path))
    monkeypatch.setattr(time, "monotonic", lambda: now)
    kept = KeptLooks()
    kept.keep({"node1": ("inspect", "network"), "node2": ("network",)}, {"node1": {"a": 1}, "node2": {"a": 2}})
    kept.write()
    again = KeptLooks()
    assert (again.of("network", "node1"), again.of("network", "node2")) == ({"a": 1}, {"a": 2})
    assert (again.of("inspect", "node2"), again.of("network", "node3")) == (None, None)
    again.forget(["node1", "node3"])
    assert (again.of("network", "node1"), again.of("network", "node2")) == (None, {"a": 2})
    now = 1300.0
    assert again.of("network", "node2") == {"a": 2}
    now = 1300.1
    assert again.of("network", "node2") is None
    (tmp_path / "looks.json").write_text('{"nodes": 7}')
    assert KeptLooks().nodes == {}
