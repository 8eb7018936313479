"""The stages of script/test: completeness, order, time limits, and the table at the end."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from runner import results, seconds, work
from runner.plan import fits, rotated, take_next
from runner.results import Counts, Result
from runner.stage import Stage, UnknownStageError, find_stage, make_stage, of_tier, read_stages
from waiting import until

ROOT = Path(__file__).parents[3]
STAGES = read_stages()


def a_stage(name: str = "one", *, seconds: int = 60, nodes: bool = False, argv: tuple[str, ...] = ("true",)) -> Stage:
    return Stage(name, "something", "all", seconds, nodes, (argv,))


def integration_files(stage: Stage) -> set[str]:
    """Return the test files below tests/integration that belong to a stage."""
    named = [ROOT / word for command in stage.commands for word in command if word.startswith("tests/integration/")]
    folders = [path for path in named if path.is_dir()]
    files = {path for path in named if path.suffix == ".py"}
    files |= {path for folder in folders for path in folder.glob("test_*.py")}
    return {path.relative_to(ROOT).as_posix() for path in files}


def test_every_test_on_nodes_belongs_to_one_stage() -> None:
    in_molecule = {f"tests/integration/test_{name}.py" for name in ("gpu_stack", "gpu_stack_reboots", "gpu_health")}
    every = {path.relative_to(ROOT).as_posix() for path in (ROOT / "tests/integration").glob("**/test_*.py")}
    in_pipeline = {"tests/integration/test_pipeline.py"}
    found: list[str] = []
    for one in [*of_tier(STAGES, "all"), STAGES["drift"], STAGES["upgrade"]]:
        assert integration_files(one) <= every, one.name
        found += integration_files(one)
    assert sorted(found) == sorted(every - in_molecule - in_pipeline)
    below_slow = [word for one in STAGES.values() for words in one.commands for word in words if "tests/slow/" in word]
    assert sorted(below_slow) == sorted(str(path.relative_to(ROOT)) for path in (ROOT / "tests/slow").glob("test_*.py"))


def test_slow_tests_run_in_a_separate_stage() -> None:
    for one in of_tier(STAGES, "all"):
        files = [path for path in integration_files(one) if "pytest.mark.slow" in (ROOT / path).read_text()]
        slow = STAGES.get(f"{one.name}-slow")
        assert (slow is not None) == bool(files), one.name
        assert slow is None or integration_files(slow) == integration_files(one)


def test_regular_stages_take_at_most_twelve_minutes() -> None:
    slow = {one.name: one.seconds for one in of_tier(STAGES, "default", "all") if one.seconds > 720}
    assert slow == {}


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        ({"tier": "sometimes"}, "tier is 'sometimes', not one of default, all, slow, long"),
        ({"tests": []}, "no command"),
        ({"mark": "slow"}, "unknown keys mark"),
    ],
)
def test_invalid_stage_entry_is_rejected(entry: dict[str, Any], problem: str) -> None:
    given = {"does": "something", "tier": "all", "seconds": 5, "tests": ["tests/unit"], **entry}
    with pytest.raises(ValueError, match=f"^one: {problem}$"):
        make_stage("one", given)


def test_unknown_stage_is_rejected_with_the_closest_name() -> None:
    with pytest.raises(UnknownStageError) as refused:
        find_stage(STAGES, "firewal")
    assert str(refused.value) == "script/test has no stage 'firewal'. Did you mean firewall?"
    with pytest.raises(UnknownStageError) as refused:
        find_stage(STAGES, "xyzzy")
    assert str(refused.value) == "script/test has no stage 'xyzzy'. script/test stages lists them."


def test_first_lane_prefers_stages_that_need_nodes() -> None:
    plain, nodes = a_stage("plain"), a_stage("nodes", nodes=True)
    assert take_next([plain, nodes], 0) is nodes
    assert take_next([nodes, plain], 1) is plain
    assert take_next([nodes], 1) is nodes
    assert take_next([plain], 0) is plain
    assert take_next([], 0) is None


def test_stages_are_rotated_so_that_each_runs_first_in_turn() -> None:
    stages = [a_stage(name) for name in "abc"]
    assert ["".join(one.name for one in rotated(stages, turn)) for turn in range(4)] == ["abc", "bca", "cab", "abc"]
    assert rotated([], 5) == []


@pytest.mark.parametrize(("now", "expected"), [(0.0, True), (2100.0, True), (2100.1, False)])
def test_stage_starts_only_with_enough_time_left(now: float, expected: bool) -> None:
    assert fits(a_stage(seconds=600), now, 3000.0) is expected


def test_counts_are_read_from_the_junit_report(tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    assert results.read_counts(report) == Counts()
    report.write_text('<testsuites><testsuite tests="9" failures="1" errors="1" skipped="2"/></testsuites>')
    assert str(results.read_counts(report)) == "5 passed, 2 failed, 2 skipped"
    report.write_text("<testsuites><test")
    assert results.read_counts(report) == Counts()


def test_table_shows_the_command_to_repeat_a_failed_stage() -> None:
    shown = results.table(
        [
            Result(a_stage("lint"), "passed", 61.2),
            Result(a_stage("unit"), "FAILED", 5.0, Counts(3, 1)),
            Result(a_stage("pipeline"), "not run", why="containers need root"),
        ]
    )
    assert shown.splitlines() == [
        "stage            time  result",
        "lint             1:01  passed",
        "unit             0:05  FAILED (3 passed, 1 failed); run it alone: script/test unit",
        "pipeline            -  not run: containers need root",
    ]


def test_local_durations_take_precedence_over_recorded_ones(tmp_path: Path) -> None:
    kept = tmp_path / "tests/seconds.json"
    assert results.last_time(kept, a_stage(seconds=0)) == "not measured"
    assert results.last_time(kept, a_stage()) == "1:00 as recorded"
    results.keep_seconds(kept, "one", 12.4)
    assert results.last_time(kept, a_stage()) == "0:12 last time here"


def test_durations_page_lists_slow_tests_and_counts_the_rest(tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    cases = [("tests.unit.test_a", "test_fast", 1.2), ("tests.unit.test_a", "test_slow[a|b]", 61.0)]
    texts = [f'<testcase classname="{one}" name="{name}" time="{took}"/>' for one, name, took in cases]
    report.write_text(f"<testsuites><testsuite>{''.join(texts)}</testsuite></testsuites>")
    text = seconds.page(["one", "never"], {"one": 63.0}, {"one": seconds.read_seconds(report)})
    assert text.partition("one row.\n")[2] == (
        "\n## one: 1:03\n\n| test | s |\n|---|---|\n| `test_a::test_slow[a\\|b]` | 61 |\n| 1 others | 1 |\n"
    )


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(work, "KEPT", tmp_path)
    monkeypatch.setattr(work, "ROOT", tmp_path)
    monkeypatch.setattr(work, "TIMES", tmp_path / "seconds.json")
    return tmp_path


def test_stages_run_in_two_lanes_and_failures_are_shown(kept: Path) -> None:
    shown: list[str] = []
    run = work.Work(shown.append)
    bad = a_stage("bad", argv=("sh", "-c", "echo before; echo '=== FAILURES ==='; echo broken; exit 4"))
    left_out = run.run([a_stage("good"), bad, a_stage("late")], 2, lambda one: one.name != "late")
    assert {one.stage.name: one.outcome for one in run.results} == {"good": "passed", "bad": "FAILED"}
    assert [one.name for one in left_out] == ["late"]
    assert "=== FAILURES ===\nbroken" in shown
    assert "before" not in "".join(shown)


def test_stage_without_nodes_has_lower_priority(kept: Path) -> None:
    run = work.Work(lambda _line: None)
    lower = min(os.nice(0) + 10, 19)
    waits = ("timeout", "60", "sh", "-c", f"until [ $(nice) = {lower} ]; do sleep 0.01; done")
    stays = ("sh", "-c", f"[ $(nice) = {os.nice(0)} ]")
    run.run([a_stage("plain", argv=waits), a_stage("nodes", nodes=True, argv=stays)], 1)
    assert {one.stage.name: one.outcome for one in run.results} == {"plain": "passed", "nodes": "passed"}


def test_stopped_stage_leaves_no_process_behind(kept: Path) -> None:
    gate = kept / "begun"
    program = f"echo $$ >{gate}.new; mv {gate}.new {gate}; sleep 300 & wait"
    shown: list[str] = []
    run = work.Work(shown.append)

    def stop() -> None:
        until(gate.exists, what="the stage runs")
        run.stop()

    threading.Thread(target=stop).start()
    run.run([a_stage("long", argv=("sh", "-c", program)), a_stage("next")], 1)
    assert [(one.stage.name, one.outcome) for one in run.results] == [("long", "stopped")]
    group = gate.read_text().strip()
    ps = ["ps", "-o", "stat=", "-g", group]
    until(lambda: not subprocess.run(ps, check=False, capture_output=True).stdout, what="its group has ended")


def test_stage_that_needs_containers_is_rejected_if_they_are_missing() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "runner", "--no-nodes", "containers need root", "pipeline"],
        cwd=ROOT / "tests",
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 3
    assert done.stderr == "pipeline needs containers, and containers need root.\n"
