"""The files of public reports are well-formed, and answers are scored as tests/reports.py describes.

No test runs the diagnosis on the closed half.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

import reports
from muster.diagnosis.causes import CAUSES

if TYPE_CHECKING:
    from muster.diagnosis.words import Diagnosis
    from reports import Report

ROOT = Path(__file__).parents[3]
IDS = {cause.id for cause in CAUSES}
ALL = [one for half in reports.HALVES for one in reports.reports_of(half)]
LATER = [one for later in reports.LATER for one in reports.reports_of(later)]
CAUSE = {"causes": ["resources.disk", "resources.inodes"], "accept": ["process.worker"]}


@pytest.mark.parametrize("half", reports.HALVES)
def test_half_has_thirty_reports_that_belong_to_it(half: str) -> None:
    found = reports.reports_of(half)
    assert len({one.source for one in found}) == len(found) == 30
    assert {reports.half_of(one.source) for one in found} == {half}


def test_later_sets_contain_no_report_of_a_half_or_of_each_other() -> None:
    sources = {one.source for one in LATER}
    assert len(sources) == len(LATER)
    assert not sources & {one.source for one in ALL}


@pytest.mark.parametrize(
    "report", [*ALL, *LATER], ids=[one.source.removeprefix("https://github.com/") for one in [*ALL, *LATER]]
)
def test_report_is_complete(report: Report) -> None:
    assert re.fullmatch(r"https://github\.com/[\w.-]+/[\w.-]+/(?:issues|pull)/\d+", report.source)
    assert {*report.causes, *report.accept} <= IDS
    assert not set(report.causes) & set(report.accept)
    assert bool(report.causes) == (report.label == "causes")
    assert bool(report.names) == (report.label in ("outside", "missing"))
    assert all(name == name.lower() for name in report.names)
    assert report.tool
    assert report.family
    assert report.truth.endswith(".")
    assert isinstance(report.inferred, bool)
    assert all(re.fullmatch(r"[\w-]+\.(?:log|out)", name) for name in report.files)
    assert 1 <= sum(len(text.splitlines()) for text in report.files.values()) <= 40


def test_number_of_inferred_causes_matches_the_page() -> None:
    page = (ROOT / "docs/dev/reports.md").read_text(encoding="utf-8")
    assert f"In {sum(one.inferred for one in ALL)} reports the cause is `inferred`" in page


def test_report_has_exactly_one_label() -> None:
    with pytest.raises(ValueError, match="exactly one of causes, outside, missing, unknown"):
        labeled(causes=["resources.disk"], unknown=True)


def labeled(**label: Any) -> Report:
    texts = {"source": "https://github.com/a/b/issues/1", "tool": "torchrun", "family": "resources", "truth": "It was."}
    return reports.report_from({**texts, "files": {"node1.log": "connect to 192.0.2.1"}, **label})


def answered(sure: list[str], possible: list[str], step: str = "", command: str = "") -> Diagnosis:
    texts = {"fix": {"text": "Do it", "command": command}}
    said = [{**texts, "id": one, "says": f"it is {one}", "word": "likely"} for one in sure]
    maybe = [{**texts, "id": one, "says": f"it is {one}", "word": "possible"} for one in possible]
    found = {
        "causes": said,
        "candidates": maybe,
        "also_seen": [],
        "parts": {"Cause": "the disk of node1 is full", "Next step": step},
    }
    return cast("Diagnosis", found)


@pytest.mark.parametrize(
    ("label", "sure", "possible", "expected"),
    [
        (CAUSE, ["resources.inodes"], [], "first"),
        (CAUSE, [], ["resources.disk", "gpu.ecc"], "first"),
        (CAUSE, [], ["gpu.ecc", "gpu.fault", "resources.disk"], "in three"),
        (CAUSE, [], ["gpu.ecc", "gpu.fault", "gpu.absent", "resources.disk"], "unknown"),
        (CAUSE, ["process.worker"], [], "not the cause"),
        (CAUSE, ["process.exception"], ["resources.disk"], "in three"),
        (CAUSE, ["process.exception"], [], "not the cause"),
        (CAUSE, ["gpu.ecc"], ["resources.disk"], "wrong"),
        (CAUSE, [], [], "silent"),
        ({"unknown": True}, [], ["gpu.ecc"], "first"),
        ({"unknown": True}, [], [], "first"),
        ({"unknown": True}, ["gpu.ecc"], [], "wrong"),
        ({"unknown": True, "accept": ["gpu.ecc"]}, ["gpu.ecc"], [], "not the cause"),
        ({"missing": "a full disk", "names": ["disk of node1"]}, [], [], "first"),
        ({"missing": "a full disk", "names": ["disk of node1"]}, [], ["gpu.ecc"], "unknown"),
        ({"missing": "a full disk", "names": ["it is gpu.ecc"]}, ["gpu.ecc"], [], "first"),
        ({"missing": "a full disk", "names": ["it is gpu.ecc"]}, [], ["gpu.fault", "gpu.ecc"], "in three"),
        ({"missing": "a full disk", "names": ["do it"]}, [], ["gpu.ecc"], "first"),
        ({"missing": "a full disk", "names": ["it is"]}, ["process.exception"], [], "not the cause"),
        ({"outside": "a full cup", "names": ["cup"]}, [], ["gpu.ecc"], "unknown"),
        ({"outside": "a full cup", "names": ["cup"]}, ["gpu.ecc"], [], "wrong"),
    ],
)
def test_outcome(label: dict[str, Any], sure: list[str], possible: list[str], expected: str) -> None:
    assert reports.outcome(labeled(**label), answered(sure, possible, "Do it")) == expected


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("systemctl status nvidia-fabricmanager", ""),
        ("ss -ltnp sport = :29500", ""),
        ("ping -c 1 192.0.2.1", ""),
        ("DEVICE=mlx5_0; ibstat $DEVICE", ""),
        ("ls $HOME", ""),
        ("ss -ltnp sport = :0", "unknown part"),
        ("ansible '' -m ansible.builtin.command -a nvidia-smi", "unknown part"),
        ("ansible 'a node not named in the log' -m ping", "unknown part"),
        ("ansible node7 -m ping", "undefined: node7"),
        ("ping -c 1 192.0.2.9", "undefined: 192.0.2.9"),
        ("ethtool <interface>", "placeholder <interface>"),
        ("ethtool {what}", "placeholder {what}"),
        ("ibstat $DEVICE", "undefined: DEVICE"),
        ("ls 'a", "No closing quotation"),
    ],
)
def test_commands_that_cannot_be_pasted(command: str, reason: str) -> None:
    assert reports.not_pasteable(command, "node1.log connect to 192.0.2.1") == reason


def test_numbers_of_a_half() -> None:
    report = labeled(**CAUSE)
    right = answered(["resources.disk"], [], "Free the disk", "df -h")
    unsure = answered([], ["gpu.ecc", "resources.disk"], "to distinguish these causes, run: ansible node9 -m ping")
    vague = answered(["process.exit"], [], "Read the log on a node not named in the log")
    found = [reports.scored(report, one) for one in (right, unsure, vague)]
    assert reports.summary(found) == {
        "reports": 3,
        "first": 1,
        "in three": 1,
        "not the cause": 1,
        "unknown": 0,
        "silent": 0,
        "wrong": 0,
        "among three": 2,
        "commands": 2,
        "not pasteable": 1,
        "need an inventory": 1,
        "vague next steps": 1,
        "families": {"resources": "1 of 3"},
    }
    shown = reports.table(found, details=True)
    assert "   2  right cause among the first three" in shown
    assert "not pasteable: ansible node9 -m ping (undefined: node9)" in shown
    assert report.source not in reports.table(found, details=False)
    assert report.source not in reports.as_json("closed", found, details=False)
