"""What the page shows of a run. Every file in cases/page is what a run left, in parts that are named as its files, and
what the page must show of it: `shows` leads by dotted paths into what the template is given.
"""

from __future__ import annotations

import copy
from html.parser import HTMLParser
from typing import Any

import pytest

import samples
from cases import cases
from muster import report
from muster.report import checks, links, past, words
from muster.report.artifacts import Artifacts
from muster_controller.page import render


def led_to(shown: Any, path: str) -> Any:
    for step in path.split("."):
        shown = shown[int(step)] if isinstance(shown, list) else shown[step]
    return shown


@cases(__file__, "page")
def test_the_page_shows(case: dict[str, Any]) -> None:
    given = copy.deepcopy(case)
    wanted = given.pop("shows")
    for finding in given.get("verdict", {}).get("findings", []):
        finding.setdefault("fix", {})
    shown = report.page(Artifacts(**given))
    assert {place: led_to(shown, place) for place in wanted} == wanted


@pytest.mark.parametrize("count", [2, 10, 24, 25, 200])
def test_a_map_holds_every_link_once(count: int) -> None:
    drawn = links.maps(samples.network(count, deaf=False))
    assert drawn
    reached = drawn["maps"][0]
    area = len(reached["cells"]) * 100
    for path in reached["paths"]:
        for rectangle in path["d"].split("z")[:-1]:
            wide, high = rectangle.partition("h")[2].split("h-")[0].split("v")
            area += int(wide) * int(high)
    assert area == count * (count - 1) * 100
    assert all(0 <= label["at"] <= reached["side"] for label in reached["rows"])


@pytest.mark.parametrize("count", [3, 16, 24, 25, 200])
def test_the_culprit_is_named_beside_the_map(count: int) -> None:
    drawn = links.maps(samples.network(count, deaf=True))
    assert drawn
    reached = drawn["maps"][0]
    assert [label["name"] for label in reached["columns"] if label["bad"]] == ["node3"]
    assert [label["name"] for label in reached["rows"] if label["bad"]] == []
    assert len(reached["columns"]) <= links.LABELS + 1
    assert drawn["more"] + len(drawn["pairs"]) == count - 1


def test_many_checks_are_shown_by_family_and_the_failed_ones_alone() -> None:
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


def test_a_large_cluster_shows_first_the_nodes_with_something() -> None:
    kept = samples.failed(200)
    grid = checks.grid(kept, kept.nodes())
    assert grid
    assert [row["node"] for row in grid["rows"]] == ["node2", "node3", "node4"]
    assert len(grid["folded"]) == 197


def test_a_run_is_remembered_by_a_few_figures() -> None:
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
def test_a_number_has_the_digits_that_matter(value: float | None, text: str) -> None:
    assert words.number(value) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.52, "0.5 s"), (83.4, "83 s"), (125, "2 min 5 s"), (7265, "2 h 1 min"), (None, ""), ("x", "")],
)
def test_a_duration_is_told_as_people_do(seconds: Any, text: str) -> None:
    assert words.duration(seconds) == text


class Tags(HTMLParser):
    """Fails where an element is not closed, or not opened, or has an attribute twice."""

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
def test_every_element_is_closed(kept: Artifacts) -> None:
    tags = Tags()
    tags.feed(render(report.page(kept)))
    tags.close()
    assert tags.opened == []
