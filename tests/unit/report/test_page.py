"""The content of the report. Every file in cases/page contains artifacts of a run, named like their files, and the
expected content: `shows` maps dotted paths into the template's input to values."""

from __future__ import annotations

import copy
import re
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import pytest

import accepted_samples
import samples
from cases import cases
from muster import report
from muster.launch.planned import LaunchPlan
from muster.report import checks, links, measured, past, training, versions, words
from muster.report.artifacts import Artifacts
from muster_controller.report.page import render


def led_to(shown: Any, path: str) -> Any:
    for step in path.split("."):
        shown = shown[int(step)] if isinstance(shown, list) else shown[step]
    return shown


@cases(__file__, "page")
def test_page_content_matches_the_case(case: dict[str, Any]) -> None:
    given = copy.deepcopy(case)
    wanted = given.pop("shows")
    for finding in given.get("verdict", {}).get("findings", []):
        finding.setdefault("fix", {})
    plan = LaunchPlan.read(given.pop("plan")) if "plan" in given else None
    shown = report.page(Artifacts(plan=plan, **given))
    assert {place: led_to(shown, place) for place in wanted} == wanted


@pytest.mark.parametrize("count", [2, 10, 24, 25, 200])
def test_link_map_contains_every_link_once(count: int) -> None:
    drawn = links.maps(samples.network(count, deaf=False))
    assert drawn
    reached = [*drawn["maps"], *drawn["folded"]][0]
    area = len(reached["cells"]) * 100
    for path in reached["paths"]:
        for rectangle in path["d"].split("z")[:-1]:
            wide, high = rectangle.partition("h")[2].split("h-")[0].split("v")
            area += int(wide) * int(high)
    assert area == count * (count - 1) * 100
    assert all(0 <= label["at"] <= reached["side"] for label in reached["rows"])


@pytest.mark.parametrize("count", [3, 16, 24, 25, 200])
def test_link_map_marks_the_name_of_the_culprit(count: int) -> None:
    drawn = links.maps(samples.network(count, deaf=True))
    assert drawn
    reached = drawn["maps"][0]
    assert [label["name"] for label in reached["columns"] if label["bad"]] == ["node3"]
    assert [label["name"] for label in reached["rows"] if label["bad"]] == []
    assert len(reached["columns"]) <= links.LABELS + 1
    assert drawn["more"] + len(drawn["pairs"]) == count - 1


def test_many_passed_checks_share_a_column() -> None:
    ran = [f"os.check{number}" for number in range(40)]
    found = [samples.finding("os.check7", "fail", "node1", "broken")]
    kept = Artifacts(
        verdict={"status": "failed", "findings": found}, health={"node1": {"ran": ran}, "node2": {"ran": ran}}
    )
    grid = checks.grid(kept, kept.nodes())
    assert grid
    assert [(column["name"], column["begins"]) for column in grid["columns"]] == [
        ("check7", False),
        ("39 checks", False),
    ]
    assert [[cell["mark"] for cell in row["cells"]] for row in grid["rows"]] == [["fail", "pass"], ["pass", "pass"]]
    assert len(grid["made"][0]["names"].split(", ")) == 40


def test_large_cluster_shows_nodes_with_problems_first() -> None:
    kept = samples.failed(200)
    grid = checks.grid(kept, kept.nodes())
    assert grid
    assert [row["node"] for row in grid["rows"]] == ["node2", "node3", "node4"]
    assert len(grid["folded"]) == 197


@pytest.mark.parametrize(("count", "unfolded"), [(24, 3), (64, 0)])
def test_link_maps_of_large_healthy_clusters_are_collapsed(count: int, unfolded: int) -> None:
    drawn = links.maps(samples.network(count, deaf=False))
    assert drawn
    assert (len(drawn["maps"]), len(drawn["folded"])) == (unfolded, 3 - unfolded)


def test_link_maps_with_problems_are_expanded() -> None:
    drawn = links.maps(samples.network(64, deaf=True))
    assert drawn
    assert [one["title"] for one in drawn["maps"]] == ["Reachability", "Throughput"]
    assert [one["title"] for one in drawn["folded"]] == ["Round trip"]


def test_nodes_with_slow_or_silent_ranks_are_expanded() -> None:
    kept = samples.healthy(64)
    heard = [rank for rank in kept.smoke["ranks"] if rank["rank"] != 9]
    shown = training.launch(replace(kept, smoke={**kept.smoke, "ranks": heard}))
    assert shown
    assert [(node["node"], node["slow"], node["silent"]) for node in shown["nodes"]] == [
        ("node2", False, [9]),
        ("node6", True, []),
    ]
    assert (shown["count"], len(shown["folded"])) == (64, 62)


def test_slowest_nodes_at_reading_shared_data_are_expanded() -> None:
    rows = [{"node": name, "write": 400.0, "read": 900.0, "seen": 0.1} for name in samples.names(64)]
    rows[5]["write"], rows[7]["read"], rows[9]["seen"], rows[11]["seen"] = 20.0, 30.0, 4.0, None
    found = measured.shared_data_tables({"folders": [{"path": "/data", "megabytes": 64, "nodes": rows}]})
    assert found
    assert {"node6", "node8", "node10", "node12"} < {row["node"] for row in found[0]["rows"]}
    assert len(found[0]["rows"]) + len(found[0]["folded"]) == 64
    assert len(found[0]["rows"]) <= 3 * measured.SLOWEST


def test_check_that_fails_on_many_nodes_does_not_hide_other_checks() -> None:
    found = [samples.finding("gpu.ecc", "warn", name, f"{name} has {name[4:]} errors") for name in samples.names(40)]
    other = samples.finding("os.clock", "warn", "node7", "its clock is off")
    shown = words.causes({"findings": [*found, other]})
    assert shown
    assert [cause["id"] for cause in shown["first"]] == [*["gpu.ecc"] * words.ALIKE, "os.clock"]
    assert (len(shown["rest"]), shown["rest_about"]) == (36, "36 gpu.ecc")
    assert shown["counts"]["warn"] == 41


def test_long_list_of_differences_is_collapsed() -> None:
    one = {"status": "warn", "node": "node1", "what": "x", "observed": "", "expected": "", "since": "", "by": ""}
    rows = [{**one, "how": "", "source": ""}] * 40
    found = versions.drift_section(Artifacts(drift={"nodes": {"node1": {"reached": True}}, "differences": rows}))
    assert found
    assert (len(found["rows"]), len(found["folded"]), found["left_out"]) == (versions.UNFOLDED, 10, 0)


def test_cell_labels_on_a_phone_match_the_column_heads() -> None:
    drift = {"status": "warn", "node": "node1", "what": "x", "observed": "", "expected": "", "since": "", "by": ""}
    kept = replace(
        accepted_samples.kept(2, 2, "drop"),
        attempts=samples.restarted(2).attempts,
        drift={"nodes": {"node1": {"reached": True}}, "differences": [{**drift, "how": "", "source": ""}]},
    )
    page = render(report.page(kept))
    called = re.findall(r"#(\w+) td:nth-child\((\d)\)::before { content: \"([^\"]+) \"", page)
    assert len(called) == 13
    for place, number, name in called:
        head = page.partition(f'<section id="{place}">')[2].partition("<thead>")[2].partition("</thead>")[0]
        assert re.findall(r"<th[^>]*>(.*?)</th>", head)[int(number) - 1] == name, place


def test_figures_of_a_run_are_extracted() -> None:
    kept = past.figures(samples.healthy(3))
    assert {name: kept[name] for name in ("nodes", "world_size", "backend")} == {
        "nodes": 3,
        "world_size": 24,
        "backend": "nccl",
    }
    assert 88 < kept["gbps"] < 97
    assert past.figures(Artifacts()) == {}


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (0.0123456, "0.0123"),
        (0.00001, "1e-05"),
        (1.5, "1.5"),
        (99.96, "100"),
        (181234.4, "181\u202f234"),
        (None, ""),
    ],
)
def test_numbers_have_three_significant_digits(value: float | None, text: str) -> None:
    assert words.number(value) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.52, "0.5 s"), (83.4, "83 s"), (125, "2 min 5 s"), (7265, "2 h 1 min"), (None, ""), ("x", "")],
)
def test_durations_are_readable(seconds: Any, text: str) -> None:
    assert words.duration(seconds) == text


class Tags(HTMLParser):
    """HTML parser that fails if an element is not closed, not opened, or has a duplicate attribute."""

    ALONE = ("meta", "link", "col")

    def __init__(self) -> None:
        super().__init__()
        self.opened: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len(dict(attrs)) == len(attrs), self.getpos()
        self.opened += [] if tag in self.ALONE else [tag]

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len(dict(attrs)) == len(attrs), (tag, self.getpos())

    def handle_endtag(self, tag: str) -> None:
        assert self.opened, self.getpos()
        assert self.opened.pop() == tag, self.getpos()


@pytest.mark.parametrize(
    "kept",
    [samples.healthy(3), samples.failed(30), samples.stopped(2), samples.hostile(), Artifacts()],
    ids=["healthy", "failed", "stopped", "hostile", "empty"],
)
def test_every_html_element_is_closed(kept: Artifacts) -> None:
    tags = Tags()
    tags.feed(render(report.page(kept)))
    tags.close()
    assert tags.opened == []
