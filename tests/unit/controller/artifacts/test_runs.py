"""The folder of a run, and the verdict merged from its steps.

Each file in cases/joined contains the earlier verdict, the verdict of a step, and the expected merged verdict.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cases import cases
from muster.report.run_verdict import ended_with, joined
from muster.verdict.finding import Finding, add_up
from muster_controller.artifacts import runs
from muster_node.tools.process import LAUNCH_ID

if TYPE_CHECKING:
    from collections.abc import Mapping

    from muster.verdict.finding import Verdict


@pytest.fixture(autouse=True)
def run(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv(runs.VARIABLE, "20260101-120000-abcd")
    return "20260101-120000-abcd"


def verdict_of(case: Mapping[str, Any]) -> Verdict:
    findings = [Finding(**{"node": "node1", "summary": "x", **given}) for given in case["findings"]]
    return add_up(findings, case.get("summary", ""), case.get("skipped", ()))


WARNED = {"findings": [{"id": "eth.speed", "status": "warn"}]}
WELL = {"summary": "4 ranks trained together", "findings": [{"id": "launch.ended", "status": "pass"}]}
BAD = {"summary": "rank 3 failed", "findings": [{"id": "launch.exception", "status": "fail"}]}


@pytest.mark.parametrize(
    ("earlier", "step", "status"),
    [(WARNED, WELL, "degraded"), (WELL, WELL, "healthy"), (WARNED, BAD, "failed"), (BAD, WELL, "healthy")],
)
def test_run_ends_with_the_summary_of_the_last_step_and_earlier_warnings(
    earlier: Mapping[str, Any], step: Mapping[str, Any], status: str
) -> None:
    said = verdict_of(step)
    last = ended_with(said, joined(verdict_of(earlier), said))
    assert (last["status"], last["summary"]) == (status, step["summary"])


@cases(__file__, "joined")
def test_step_verdict_is_merged_into_the_earlier_verdict(case: dict[str, Any]) -> None:
    earlier: Mapping[str, Any] = verdict_of(case["earlier"]) if "earlier" in case else {}
    result = joined(earlier, verdict_of(case["step"]), case.get("instead_of", ()))
    wanted = case["result"]
    assert result["status"] == wanted["status"]
    assert result["summary"] == wanted["summary"]
    assert [f"{finding['id']} {finding['status']} {finding['node']}" for finding in result["findings"]] == wanted[
        "findings"
    ]
    assert result["coverage"]["skipped"] == wanted.get("skipped", [])


def test_all_steps_of_a_run_share_one_folder(tmp_path: Path, run: str) -> None:
    assert runs.run_folder(tmp_path / "rack") == runs.run_folder(tmp_path / "rack") == tmp_path / "rack" / run
    assert (tmp_path / "rack/latest").readlink() == Path(run)


def test_process_without_the_callback_creates_only_one_run_id(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(runs.VARIABLE)
    assert LAUNCH_ID.match(runs.run_id())
    assert runs.run_id() == runs.run_id()


def test_invalid_run_id_is_not_used_as_a_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(runs.VARIABLE, "../elsewhere")
    assert runs.run_folder(tmp_path).parent == tmp_path


def test_first_launch_uses_the_id_of_its_run(tmp_path: Path, run: str) -> None:
    assert runs.launch_id(tmp_path) == run
    runs.run_folder(tmp_path).joinpath("plan.json").write_text("{}")
    second = runs.launch_id(tmp_path)
    assert second != run
    assert LAUNCH_ID.match(second)


def test_verdict_is_saved_and_extended(tmp_path: Path) -> None:
    folder = runs.run_folder(tmp_path)
    runs.add_verdict(folder, add_up([Finding("gpu.count", "warn", "node1", "7 of 8")]))
    whole = runs.add_verdict(folder, add_up([Finding("launch.ended", "pass", "node1", "ended")]))
    assert whole == runs.read_json(folder / "verdict.json")
    assert [finding["id"] for finding in whole["findings"]] == ["gpu.count", "launch.ended"]


def test_unreadable_verdict_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "verdict.json").write_text('{"schema": 1, "find')
    verdict = add_up([Finding("launch.ended", "pass", "node1", "ended")])
    assert runs.add_verdict(tmp_path, verdict)["findings"] == verdict["findings"]


def test_history_lists_only_run_folders_newest_first(tmp_path: Path) -> None:
    for name in ("20260101-120000-abcd", "20260103-120000-0000", "20260102-120000-ffff", "kept", ".x"):
        (tmp_path / name).mkdir()
    (tmp_path / "20260104-120000-0000").write_text("")
    found = [path.name for path in runs.history(tmp_path)]
    assert found == ["20260103-120000-0000", "20260102-120000-ffff", "20260101-120000-abcd"]
    assert list(runs.history(tmp_path / "none")) == []
