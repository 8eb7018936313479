"""The acceptance test in the report, and junit.xml. Every file in cases/accepted contains parts of a smoke.json."""

from __future__ import annotations

import copy
import dataclasses
import random
from typing import TYPE_CHECKING, Any

import pytest

import accepted_samples
import samples
from cases import cases
from junit_read import read_junit
from muster import report
from muster.report import plots
from muster.report.artifacts import Artifacts
from muster_controller.report import page as page_
from muster_controller.report.page import render

if TYPE_CHECKING:
    from collections.abc import Iterator

JUNK: tuple[Any, ...] = (
    None,
    True,
    -1,
    0,
    float("nan"),
    float("inf"),
    10**400,
    "",
    samples.HOSTILE,
    [],
    {},
    [[]],
    {"a": []},
    "\ud800",
)


def led_to(shown: Any, path: str) -> Any:
    for step in path.split("."):
        shown = shown[int(step)] if isinstance(shown, list) else shown[step]
    return shown


@cases(__file__, "accepted")
def test_page_content_matches_the_case(case: dict[str, Any]) -> None:
    shown = report.page(Artifacts(smoke=case["smoke"]))["acceptance"]
    assert {place: led_to(shown, place) for place in case["shows"]} == case["shows"]


def spots(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield (container, key) for every value in a JSON tree."""
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in entries:
        yield value, key
        yield from spots(inner)


@pytest.mark.parametrize("seed", range(30))
def test_invalid_reports_from_ranks_raise_no_exception(seed: int) -> None:
    chance = random.Random(seed)
    kept = accepted_samples.soaked(2, 2) if seed % 2 else accepted_samples.kept(2, 2, "link")
    smoke = copy.deepcopy({**kept.smoke, "steps": []})
    for _ in range(25):
        holder, key = chance.choice([one for one in spots(smoke) if one[0] is not smoke or one[1] != "ranks"])
        holder[key] = chance.choice(JUNK)
    smoke["ranks"] = [one for one in smoke["ranks"] if isinstance(one, dict)]
    broken = dataclasses.replace(kept, smoke=smoke)
    assert "<script" not in render(report.page(broken))
    read_junit(page_.junit_xml(report.suite(broken)))
    report.outcome(broken)


@pytest.mark.parametrize("broken", ["", "link"])
def test_page_of_64_nodes_is_small(broken: str) -> None:
    assert len(render(report.page(accepted_samples.kept(64, 8, broken)))) < 600_000


def test_every_plot_has_axes_with_units() -> None:
    kept = accepted_samples.soaked(4, 2)
    page = render(report.page(kept))
    drawn = page.count('<figure class="plot"><figcaption><h3>') - page.count("<h3>Weak scaling</h3>")
    assert drawn == 18
    assert page.count('class="title"') == 2 * drawn


@pytest.mark.parametrize(
    ("top", "labels"),
    [
        (0.0, ["0", "0.25", "0.5", "0.75", "1"]),
        (0.93, ["0", "0.25", "0.5", "0.75", "1"]),
        (7.0, ["0", "2", "4", "6", "8"]),
        (612.0, ["0", "200", "400", "600", "800"]),
        (float("nan"), ["0", "0.25", "0.5", "0.75", "1"]),
    ],
)
def test_plot_axis_ends_at_a_round_number(top: float, labels: list[str]) -> None:
    assert [label for _, label in plots.upward("GB/s", [top]).ticks] == labels


def test_axis_for_message_sizes_is_logarithmic() -> None:
    axis = plots.sizes("size", 8, 2**30)
    assert [label for _, label in axis.ticks] == ["32 B", "1 KiB", "32 KiB", "1 MiB", "32 MiB", "1 GiB"]
    assert axis.part(8) == 0
    assert axis.part(2**30) == 1
    assert axis.part(2**16.5) == pytest.approx(0.5)


# ---------------------------------------------------------------- junit.xml


def test_junit_contains_every_check_of_every_node() -> None:
    suite = read_junit(page_.junit_xml(report.suite(samples.failed(3))))
    assert {name: suite.attrib[name] for name in ("tests", "failures", "errors", "skipped", "name", "timestamp")} == {
        "tests": "64",
        "failures": "1",
        "errors": "1",
        "skipped": "0",
        "name": "lab: site.yml",
        "timestamp": "2026-11-21T21:48:58",
    }
    (failed,) = [case for case in suite if case.find("failure") is not None]
    assert (failed.attrib["classname"], failed.attrib["name"]) == ("muster.node3", "net.peer")
    (failure,) = failed
    assert failure.attrib["message"] == "calls of every other node to port 29500 are dropped on the way"
    assert failure.text == (
        "fail: calls of every other node to port 29500 are dropped on the way\n"
        "observed: dropped\nexpected: ok\nfix: Have the firewall opened with\n"
        "run: ansible-playbook site.yml --tags network\n"
        "node1 to node3: connect to 10.9.0.13 port 29500: no answer in 2 s"
    )


def test_junit_contains_every_stage_of_every_rank() -> None:
    suite = read_junit(page_.junit_xml(report.suite(accepted_samples.kept(4, 2, "stage"))))
    stages = {
        (case.attrib["classname"], case.attrib["name"]): case for case in suite if "rank" in case.attrib["classname"]
    }
    assert len(stages) == 7 * 12 + 4
    killed = stages["muster.node4.rank6", "stage bandwidth"]
    assert (killed.attrib["time"], killed[0].tag) == ("60.000", "failure")
    assert killed[0].attrib["message"] == "did not end within 60 s, and was killed in all_gather of 4096 elements"
    skipped = stages["muster.node1.rank0", "stage precision"]
    assert (skipped[0].tag, skipped[0].attrib["message"]) == ("skipped", "bfloat16 is not supported here")


def test_junit_contains_the_task_that_stopped_a_run() -> None:
    suite = read_junit(page_.junit_xml(report.suite(samples.stopped(2))))
    (case,) = suite
    assert (case.attrib["classname"], case.attrib["name"]) == ("muster.node2", "Inspect the node")
    assert (case[0].tag, case[0].attrib["message"][:24]) == ("error", "Data could not be sent t")


def test_findings_of_the_same_check_and_node_share_a_junit_case() -> None:
    found = [samples.finding("gpu.ecc", status, "node1", f"GPU {status}") for status in ("warn", "fail", "pass")]
    (case,) = read_junit(page_.junit_xml(report.suite(Artifacts(verdict={"findings": found}))))
    (failure,) = case
    assert failure.attrib["message"] == "GPU fail"
    assert failure.text == "warn: GPU warn\n\nfail: GPU fail\n\nGPU pass"


def test_machine_output_is_escaped_in_xml() -> None:
    said = f"{samples.HOSTILE}\x00\x1b[31m\ufffe]]>\u202e"
    found = [samples.finding(said, "fail", said, said, observed=said)]
    (case,) = read_junit(page_.junit_xml(report.suite(Artifacts(verdict={"findings": found}, run={"cluster": said}))))
    assert case[0].attrib["message"] == f"{samples.HOSTILE}\u2400\ufffd]]><U+202E>"
