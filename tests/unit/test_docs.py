"""Links and paths in the docs point to existing targets, and every page is linked from the index."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
INDEX = ROOT / "docs/README.md"
LISTED = subprocess.run(["git", "ls-files", "*.md"], cwd=ROOT, check=True, capture_output=True, text=True)
PAGES = sorted(ROOT / name for name in LISTED.stdout.splitlines())
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^ *```.*?^ *```$", re.MULTILINE | re.DOTALL)
# Paths in backticks, relative to the project folder.
PLACES = "docs|examples|inventory/lab|library|molecule|playbooks|plugins|requirements|roles|script|tests"
PATH = re.compile(rf"`((?:{PLACES})/[^`\s<]+)`")
# Words of a guide, and of README before its tables.
MOST_WORDS = 900
MOST_WORDS_OF_README = 750
REFERENCES = {"security.md", "errors.md", "findings.md", "changes.md"}
CREATED = {"inventory/lab/known_hosts"}  # by playbooks/trust.yml
CODE = re.compile(r"^```.*?^```$|`[^`\n]*`", re.MULTILINE | re.DOTALL)


def links(page: Path) -> list[str]:
    return [link for link in LINK.findall(CODE.sub("", page.read_text())) if "://" not in link]


def anchors(page: Path) -> set[str]:
    """Return the anchors that a Git hosting site generates for a page's headings."""
    prose = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ +(.*)$", prose, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_point_to_existing_targets(page: Path) -> None:
    for link in links(page):
        name, _, anchor = link.partition("#")
        target = page.parent / name if name else page
        assert target.exists(), f"{page.name}: {link} does not exist"
        if anchor:
            assert anchor in anchors(target), f"{page.name}: {link} has no matching heading"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_paths_in_docs_exist(page: Path) -> None:
    named = {path.rstrip(".,:/") for path in PATH.findall(FENCE.sub("", page.read_text()))}
    assert not [path for path in named - CREATED if not [*ROOT.glob(path)]]


def test_every_page_is_in_the_index() -> None:
    indexes = (INDEX, INDEX.parent / "zh/README.md")  # the first one links the second one
    linked = {(index.parent / link.partition("#")[0]).resolve() for index in indexes for link in links(index)}
    pages = {page for page in PAGES if page.is_relative_to(ROOT / "docs")}
    assert pages - linked - {INDEX} == set()


def test_guides_are_short() -> None:
    words = {page.name: len(page.read_text().split()) for page in (ROOT / "docs").glob("*.md")}
    long = {name for name, count in words.items() if count > MOST_WORDS}
    assert long == REFERENCES
    before_tables = (ROOT / "README.md").read_text().partition("## What to read")[0]
    assert len(before_tables.split()) <= MOST_WORDS_OF_README
