"""The record of runs: one line for each finished playbook, without secrets."""

from __future__ import annotations

import getpass
import json
from typing import TYPE_CHECKING, Any

import pytest

from muster_controller.artifacts import record
from muster_controller.playbook.command_line import doing
from muster_controller.report.reporter import Reporter

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def _operator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record, "operator", lambda: "ann@desk")
    monkeypatch.delenv("MUSTER_RUN", raising=False)


def lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / record.NAME).read_text().splitlines()]


def test_each_finished_playbook_adds_a_line(tmp_path: Path) -> None:
    reporter = Reporter()
    options = {"tags": ["network"], "subset": "node2", "check": True, "extra_vars": ["hf_token=secret"]}
    reporter.begin("site.yml", options)
    reporter.record("failed", None)
    reporter.judged({"cluster": {"name": "rack", "folder": str(tmp_path / "rack"), "nodes": ["node1"], "keep": 0}})
    reporter.record("ok", ["node1"])
    reporter.begin("playbooks/health.yml", options)
    reporter.record("interrupted", None)
    first, second = lines(tmp_path / "rack")
    assert first.pop("time") <= second["time"]
    assert first == {
        "playbook": "site.yml",
        "id": reporter.run["id"],
        "tags": ["network"],
        "limit": "node2",
        "check": True,
        "result": "ok",
        "changed": ["node1"],
        "who": "ann@desk",
    }
    assert (second["playbook"], second["result"], second["changed"]) == ("playbooks/health.yml", "interrupted", None)
    assert "secret" not in (tmp_path / "rack" / record.NAME).read_text()
    assert (tmp_path / "rack" / record.NAME).stat().st_mode & 0o777 == 0o600


def test_oversized_line_is_shortened(tmp_path: Path) -> None:
    record.add(tmp_path, {"time": "now", "playbook": "site.yml", "changed": ["node"] * record.MOST})
    assert lines(tmp_path) == [{"time": "now", "who": "ann@desk", "playbook": "site.yml", "cut": True}]


def test_link_in_place_of_the_record_is_rejected(tmp_path: Path) -> None:
    (tmp_path / record.NAME).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic"):
        record.add(tmp_path, {"time": "now", "playbook": "site.yml"})
    assert not (tmp_path / "elsewhere").exists()


def test_description_of_a_run_lists_playbooks_limit_and_tags() -> None:
    options = {"args": ("playbooks/a.yml", "/srv/b.yml"), "tags": ["all"], "subset": "n1", "extra_vars": ["token=x"]}
    assert doing(options) == "a.yml b.yml --limit n1"
    assert doing({"args": ("site.yml",), "tags": ["network", "pytorch"], "check": True}) == (
        "site.yml --tags network,pytorch --check"
    )
    assert len(doing({"args": ("x" * 1000,)})) == 200


def test_operator_is_the_user_who_called_sudo(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    monkeypatch.delenv("SUDO_USER", raising=False)
    assert record.operator().startswith(f"{getpass.getuser()}@")
    monkeypatch.setenv("SUDO_USER", "ann")
    assert record.operator().startswith("ann@")
