"""Installation record of a node: only requested, readable and changed parts are written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from muster_node.drift import record

if TYPE_CHECKING:
    from pathlib import Path

SEEN: dict[str, Any] = {"kernel": "6.8", "packages": {"ufw": "1"}, "booted": 5.0, "unseen": []}


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "installed.json"
    monkeypatch.setattr(record, "PATH", str(place))
    return place


def without_unseen(**changes: Any) -> dict[str, Any]:
    return {name: value for name, value in {**SEEN, **changes}.items() if name != "unseen"}


def test_first_record_contains_all_requested_facts(path: Path) -> None:
    assert record.to_write(SEEN, []) == without_unseen()
    assert record.keep(SEEN, "anna", "run 1", []) is True
    assert path.exists()
    assert record.read()["record"] == {"schema": 1, **without_unseen(), **record_metadata()}


def record_metadata() -> dict[str, Any]:
    there = record.read()["record"]
    return {name: there[name] for name in ("at", "by", "run")}


@pytest.mark.usefixtures("path")
@pytest.mark.parametrize(
    ("now", "parts", "written"),
    [
        pytest.param({}, [], {}, id="nothing differs"),
        pytest.param({"booted": 9.0}, [], {}, id="reboot only"),
        pytest.param({"kernel": "6.9"}, [], {"kernel": "6.9"}, id="different kernel"),
        pytest.param({"packages": {}}, [], {"packages": {}}, id="empty part"),
        pytest.param({"kernel": "6.9"}, ["packages"], {}, id="different part not requested"),
        pytest.param(
            {"kernel": "6.9", "packages": {"ufw": "2"}}, ["packages"], {"packages": {"ufw": "2"}}, id="requested part"
        ),
    ],
)
def test_changed_record_is_written(now: dict[str, Any], parts: list[str], written: dict[str, Any]) -> None:
    record.keep(SEEN, "anna", "run 1", [])
    found = record.to_write({**SEEN, **now}, parts)
    there = without_unseen()
    assert {name: value for name, value in found.items() if there.get(name, ...) != value and name in there} == written
    assert record.keep({**SEEN, **now}, "ben", "run 2", parts) is bool(written)


@pytest.mark.usefixtures("path")
def test_unreadable_part_of_the_record_is_kept_unchanged() -> None:
    record.keep(SEEN, "anna", "run 1", [])
    blind = {"kernel": "6.9", "booted": 5.0, "unseen": ["packages"]}
    assert record.to_write(blind, [])["packages"] == {"ufw": "1"}
