"""Results that an acceptance test keeps: junit.xml, and the accepted state with which later runs are compared.

Only the stage train runs, because the comparison uses its rate. The artifacts have their own folder.
"""

from __future__ import annotations

import json
import stat
from typing import TYPE_CHECKING, Any

import pytest

from acceptance_runs import run_acceptance
from junit_read import read_junit
from net_faults import slow
from paths import ARTIFACTS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from xml.etree import ElementTree as ET

    from machines import Machine, Play, Result

    Run = tuple[Result, dict[str, Any], dict[str, Any], ET.Element]


pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("kept")


@pytest.fixture(scope="module")
def smoke(with_pytorch: None, play: Play, folder: Path) -> Callable[..., Run]:
    """Run the test on two nodes with two ranks each. Return the result, smoke.json, verdict.json and junit.xml."""

    def run(**requested: Any) -> Run:
        result, measured, verdict = run_acceptance(play, folder, "train", ddp_smoke_steps=20, **requested)
        assert measured, result.stdout
        return result, measured, verdict, read_junit((folder / ARTIFACTS.name / "latest/junit.xml").read_text())

    return run


@pytest.fixture(scope="module")
def book(folder: Path) -> Callable[[], dict[str, Any]]:
    """Return the only accepted state in acceptance.json."""

    def read() -> dict[str, Any]:
        path = folder / ARTIFACTS.name / "acceptance.json"
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        (state,) = json.loads(path.read_text())["states"]
        return dict(state)

    return read


@pytest.fixture(scope="module")
def accepted(smoke: Callable[..., Run]) -> Run:
    """Return the first, healthy run."""
    return smoke()


def findings_of(verdict: dict[str, Any], *ids: str) -> list[str]:
    return [
        f"{one['id']} {one['status']} {one['node']}: {one['summary']}"
        for one in verdict["findings"]
        if one["id"] in ids or one["status"] not in ("pass", "skipped")
    ]


def test_first_healthy_run_is_accepted(accepted: Run, book: Callable[[], dict[str, Any]]) -> None:
    result, measured, verdict, junit = accepted
    assert result.rc == 0, result.stdout
    said = "saved as the accepted state"
    assert findings_of(verdict, "smoke.accepted") == [f"smoke.accepted pass node1: 1 value {said}"]
    assert said in verdict["summary"]
    state = book()
    assert (state["run"], state["requested"]) == (measured["launch_id"], False)
    assert state["layout"]["nodes"] == {"node1": 2, "node2": 2}
    assert state["values"]["samples all"]["value"] == measured["samples_per_second"]
    assert state["versions"] == {}  # the stage world did not run
    assert junit.attrib["failures"] == junit.attrib["errors"] == "0"
    cases = {(case.attrib["classname"], case.attrib["name"]) for case in junit}
    assert {("muster.node2.rank2", "stage train"), ("muster.node1", "smoke.loss")} <= cases


def test_next_run_is_compared_with_the_accepted_run(accepted: Run, smoke: Callable[..., Run], book: Any) -> None:
    result, measured, verdict, _ = smoke()
    assert result.rc == 0, result.stdout
    assert verdict["status"] == "healthy", findings_of(verdict)
    date, first = book()["date"][:10], accepted[1]["launch_id"]
    text = f"1 value within the bounds of the accepted state of {date} (run {first})"
    assert findings_of(verdict, "smoke.regression") == [f"smoke.regression pass node1: {text}"]
    assert [one["run"] for one in book()["history"]] == [measured["launch_id"], first]


def test_slow_link_is_reported_and_not_accepted(
    accepted: Run, smoke: Callable[..., Run], book: Any, node: Callable[[str], Machine]
) -> None:
    before = book()
    with slow(node("node2"), "2mbit"):
        result, measured, verdict, junit = smoke()
        assert result.rc == 0, result.stdout
        assert verdict["status"] == "degraded"
        was, now = accepted[1]["samples_per_second"], measured["samples_per_second"]
        assert now < 0.2 * was
        (finding,) = findings_of(verdict)
        assert finding.startswith("smoke.regression warn node1: throughput of all 4 ranks is ")
        assert f", {100 - 100 * now / was:.0f} % below the accepted state (" in finding
        assert book() == before
        (out,) = [case.findtext("system-out") for case in junit.iter("testcase") if "regression" in case.attrib["name"]]
        assert out is not None
        assert out.startswith("warn: throughput of all 4 ranks")
    assert "tbf" not in node("node2").inside("tc", "qdisc", "show", "dev", "eth0").stdout


def test_unhealthy_run_is_not_accepted(accepted: Run, smoke: Callable[..., Run], book: Any) -> None:
    """An unreachable loss ratio makes the acceptance test fail without side effects."""
    before = book()
    result, _, verdict, _ = smoke(ddp_smoke_accept=True, ddp_smoke_loss_ratio=0.001)
    assert result.rc == 2
    refused = [one for one in findings_of(verdict) if one.startswith("smoke.accepted")]
    assert refused[0].startswith("smoke.accepted fail node1: this run was not saved as the accepted state: ")
    assert "the loss did not fall" in refused[0]
    assert book() == before


def test_run_is_accepted_on_request(accepted: Run, smoke: Callable[..., Run], book: Any) -> None:
    result, measured, _, _ = smoke(ddp_smoke_accept=True)
    assert result.rc == 0, result.stdout
    state = book()
    assert (state["run"], state["requested"]) == (measured["launch_id"], True)
    assert [one["run"] for one in state["history"]] == [measured["launch_id"]]
