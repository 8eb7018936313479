"""The report in a headless Chromium: light and dark, on a desktop, on a phone and on paper.

Screenshots go to artifacts/screenshots.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import accepted_samples
import diagnosed_samples
import samples
from chromium import Chromium, find
from muster import report
from muster_controller.report.page import render

if TYPE_CHECKING:
    from collections.abc import Iterator

    from muster.report import Artifacts

PICTURES = Path(__file__).parents[3] / "artifacts/screenshots"
PAGES: dict[str, Artifacts] = {
    "healthy": samples.healthy(3),
    "failed": samples.failed(16),
    "two_hundred": samples.failed(200),
    "sixty_four": samples.healthy(64),
    "inspected": samples.inspected(4),
    "stopped": samples.stopped(2),
    "restarted": samples.restarted(3),
    "hostile": samples.hostile(),
    "accepted": accepted_samples.kept(4, 2),
    "weak_gpu": accepted_samples.kept(4, 2, "gpu"),
    "slow_link": accepted_samples.kept(4, 2, "link"),
    "straggler": accepted_samples.kept(4, 2, "straggler"),
    "killed_stage": accepted_samples.kept(4, 2, "stage"),
    "slower_than_accepted": accepted_samples.kept(4, 2, "drop"),
    "soak": accepted_samples.soaked(4, 2),
    "diagnosed": diagnosed_samples.kept(4, 2),
    "diagnosed_64": diagnosed_samples.kept(8, 8),
    "hostile_diagnosis": diagnosed_samples.kept(4, 2, hostile=True),
    "accepted_64": accepted_samples.kept(64, 8, "gpu"),
}
# One page of each kind is always tested.
KINDS = ("healthy", "failed", "hostile", "accepted", "diagnosed")
NAMES = [pytest.param(name, marks=() if name in KINDS else pytest.mark.extended) for name in PAGES]
SEEN = "document.body.innerText"
# Elements with too little contrast between their text and the nearest background.
CONTRASTS = """
(() => {
  const number = (text) => text.match(/[\\d.]+/g).map(Number);
  const bright = (text) => number(text).slice(0, 3).map((part) => part / 255)
    .map((part) => part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4)
    .reduce((sum, part, place) => sum + part * [0.2126, 0.7152, 0.0722][place], 0);
  const behind = (element) => {
    for (; element; element = element.parentElement) {
      const color = getComputedStyle(element).backgroundColor;
      if (number(color).length < 4 || number(color)[3] > 0) return color;
    }
  };
  const low = [];
  for (const element of document.querySelectorAll("body *")) {
    const own = [...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
    if (!own || element.closest("svg")) continue;
    const [one, other] = [bright(getComputedStyle(element).color), bright(behind(element))];
    const contrast = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
    if (contrast < 4.5) low.push(`${element.tagName} ${element.className} ${contrast.toFixed(2)}`);
  }
  return [...new Set(low)];
})()
"""


# Elements beyond the right edge that do not scroll, and overflowing lists with stacked rows.
CUT = """
[
  ...[...document.querySelectorAll("body *")]
    .filter((one) => one.getBoundingClientRect().right > document.documentElement.clientWidth + 0.5)
    .filter((one) => !one.closest(".wide, svg")),
  ...[...document.querySelectorAll(".wide:has(.stack, .lanes)")].filter((one) => one.scrollWidth > one.clientWidth),
].map((one) => `${one.tagName} ${one.className} ${one.textContent.slice(0, 40)}`)
"""


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    written = {}
    for name, kept in PAGES.items():
        written[name] = folder / f"{name}.html"
        written[name].write_text(render(report.page(kept)), encoding="utf-8")
    return written


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    program = find()
    if program is None:
        pytest.skip("Chromium is not installed: script/setup dev installs Debian's package, if available")
    chromium = Chromium(program, tmp_path_factory.mktemp("chromium"))
    yield chromium
    chromium.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", NAMES)
def test_page_is_readable_and_works_offline(browser: Chromium, pages: dict[str, Path], name: str, scheme: str) -> None:
    browser.open(pages[name], scheme=scheme)
    assert browser.noises == []
    assert browser.asked_for == [pages[name].as_uri()]
    assert browser.value("document.title") != ""
    assert browser.value("document.documentElement.scrollWidth") <= 1280
    assert browser.value(CONTRASTS) == []
    if "hostile" not in name:
        browser.picture(PICTURES / f"{name}_{scheme}.png")


def test_page_follows_the_color_scheme(browser: Chromium, pages: dict[str, Path]) -> None:
    colors = []
    for scheme in ("light", "dark"):
        browser.open(pages["healthy"], scheme=scheme)
        color = browser.value("getComputedStyle(document.body).backgroundColor")
        colors.append(sum(int(part) for part in color[4:-1].split(",")))
    assert colors[0] > 3 * 200
    assert colors[1] < 3 * 50


@pytest.mark.parametrize("name", NAMES)
def test_page_fits_on_a_phone(browser: Chromium, pages: dict[str, Path], name: str) -> None:
    browser.open(pages[name], width=390, height=844)
    assert browser.value("document.documentElement.scrollWidth") == 390
    assert browser.value(CUT) == []
    if name in ("healthy", "failed", "accepted", "accepted_64", "diagnosed_64"):
        browser.picture(PICTURES / f"{name}_phone.png")
    browser.value("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    assert browser.value("document.documentElement.scrollWidth") == 390
    assert browser.value(CUT) == []


def test_failed_node_and_command_are_shown_at_the_top(browser: Chromium, pages: dict[str, Path]) -> None:
    browser.open(pages["failed"], width=390, height=844)
    first = browser.value("document.querySelector('header').innerText")
    assert "Failed" in first
    assert "node3" in first
    assert "ansible-playbook site.yml --tags network" in first
    # The whole header fits on the first screen of a phone.
    assert browser.value("document.querySelector('header pre').getBoundingClientRect().bottom") < 844


def test_only_the_column_of_the_culprit_is_red(browser: Chromium, pages: dict[str, Path]) -> None:
    browser.open(pages["failed"])
    red = "[...document.querySelectorAll('.map')[0].querySelectorAll('rect.bad3')]"
    assert browser.value(f"{red}.length") == 15
    assert browser.value(f"[...new Set({red}.map((cell) => cell.getAttribute('x')))]") == ["20"]
    assert browser.value(
        "[...document.querySelectorAll('.map')[0].querySelectorAll('text.bad')].map((one) => one.textContent)"
    ) == ["node3"]
    assert "Reachability: traffic to node3" in browser.value(SEEN)
    assert "Throughput: traffic from node4" in browser.value(SEEN)


def test_cell_of_the_grid_links_to_its_finding(browser: Chromium, pages: dict[str, Path]) -> None:
    browser.open(pages["failed"])
    links = "[...document.querySelectorAll('table.grid a')]"
    assert browser.value(f"{links}.length") == 4
    assert browser.value(f"{links}.every((link) => document.getElementById(link.hash.slice(1)))")
    assert browser.value("document.querySelectorAll('#causes .cause').length") == 4
    assert "13 other nodes with nothing wrong" in browser.value(SEEN)


def test_page_shows_versions_launch_and_history(browser: Chromium, pages: dict[str, Path]) -> None:
    browser.open(pages["failed"])
    assert "570.172.08 on node2" in browser.value("document.querySelector('#versions').innerText")
    assert "30 % less" in browser.value("document.querySelector('#runs').innerText")
    browser.open(pages["healthy"])
    assert "24 ranks on 3 nodes, nccl, master 10.9.0.11:29500" in browser.value(SEEN)
    assert browser.value("document.querySelectorAll('#launch polyline').length") == 2
    assert "the link layer is InfiniBand" in browser.value("document.querySelector('#skipped').innerText")


def test_machine_output_is_plain_text(browser: Chromium, pages: dict[str, Path]) -> None:
    browser.open(pages["hostile"])
    assert browser.value("document.querySelectorAll('script, img, iframe, object, style').length") == 1
    assert samples.HOSTILE in browser.value("document.querySelector('header').innerText")
    inline = (
        "[...document.querySelectorAll('*')].some((one) => [...one.attributes].some((a) => a.name.startsWith('on')))"
    )
    assert browser.value(inline) is False
    schemes = browser.value("[...new Set([...document.querySelectorAll('body a')].map((link) => link.protocol))]")
    assert schemes == ["file:"]


def test_page_for_200_nodes_is_smaller_than_3_mb(pages: dict[str, Path]) -> None:
    assert pages["two_hundred"].stat().st_size < 3_000_000


@pytest.mark.parametrize("name", NAMES)
def test_page_fits_on_paper(browser: Chromium, pages: dict[str, Path], name: str) -> None:
    # A4 with margins of 1 cm.
    browser.open(pages[name], width=718, media="print")
    assert browser.value("document.documentElement.scrollWidth") <= 718


@pytest.mark.extended
@pytest.mark.parametrize("name", ["sixty_four", "accepted_64", "two_hundred"])
def test_report_of_large_cluster_is_printed_on_few_sheets(browser: Chromium, pages: dict[str, Path], name: str) -> None:
    browser.open(pages[name])
    paper = PICTURES / f"{name}.pdf"
    browser.print(paper)
    assert 2 <= len(re.findall(rb"/Type /Page\b", paper.read_bytes())) <= 5


def test_collapsed_sections_are_printed_in_light_colors(browser: Chromium, pages: dict[str, Path]) -> None:
    browser.open(pages["failed"], scheme="dark", media="print")
    assert browser.value("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert browser.value("getComputedStyle(document.querySelector('nav')).display") == "none"
    # Folded parts are printed, except the rows of nodes without problems.
    assert "no answer in 2 s" in browser.value(SEEN)
    assert "13 other nodes with nothing wrong" in browser.value(SEEN)
    assert "node16" not in browser.value("document.querySelector('#checks').innerText")
    browser.print(PICTURES / "failed.pdf")
