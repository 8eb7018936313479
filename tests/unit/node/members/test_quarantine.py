"""A node's copy of its quarantine entry."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from muster_node.members import quarantine as room

if TYPE_CHECKING:
    from pathlib import Path

quarantine: Any = room
GIVEN = {"reason": "noisy", "since": "2026-11-27", "by": "anna"}


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(quarantine, "FILE", str(tmp_path / "state/quarantine.json"))
    monkeypatch.setattr(quarantine, "FOLDER", str(tmp_path / "state"))
    monkeypatch.setattr(quarantine.trust, "make_folder", lambda _folder: (tmp_path / "state").mkdir(exist_ok=True))
    monkeypatch.setattr(quarantine.os, "umask", lambda mask: mask)
    return tmp_path / "state/quarantine.json"


def keep(*, check: bool = False, **more: Any) -> Any:
    return quarantine.keep({"quarantine": {**GIVEN, **more}, "check": check})


def test_quarantine_is_written_and_removed(file: Path) -> None:
    assert quarantine.look({}) == {"kept": None}
    assert quarantine.forget({"check": True}) == quarantine.forget({"check": False}) == {"changed": False}
    assert keep(check=True) == {"changed": True}
    assert not file.parent.exists()
    assert keep(until="never") == {"changed": True}
    assert json.loads(file.read_text()) == GIVEN
    assert file.stat().st_mode & 0o777 == 0o644
    assert quarantine.look({}) == {"kept": GIVEN}
    assert keep() == {"changed": False}
    assert keep(reason="loud") == {"changed": True}
    assert quarantine.forget({"check": True}) == {"changed": True}
    assert quarantine.forget({"check": False}) == {"changed": True}
    assert not file.exists()


@pytest.mark.parametrize(("text", "kept"), [("{", None), ("[]", None), ('{"by": 1, "x": 2}', {"by": "1"})])
def test_corrupt_quarantine_file_is_ignored(file: Path, text: str, kept: Any) -> None:
    file.parent.mkdir()
    file.write_text(text)
    assert quarantine.kept() == kept
