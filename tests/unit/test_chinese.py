"""The Chinese pages show the same commands and outputs as the English pages, in the same order.

Comments can be in Chinese and are ignored in both languages. The README and the guide from the articles are complete
translations. The other pages contain the essentials of their English pages.
"""

from __future__ import annotations

import re
import textwrap
from itertools import chain
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WHOLE = "README.zh-CN.md"
# The English pages of each Chinese page.
FOLLOWS = {
    WHOLE: ("README.md",),
    "docs/zh/README.md": ("docs/README.md",),
    "docs/zh/first_steps.md": ("README.md", "docs/inspect.md", "docs/ways_in.md", "docs/mirrors.md"),
    "docs/zh/launch.md": (
        *(f"docs/launch{name}.md" for name in ("", "_users", "_detached", "_faults", "_results", "_restarts")),
        "docs/job_files.md",
    ),
    "docs/zh/dgx_spark.md": ("docs/dgx_spark.md",),
    "docs/zh/errors.md": ("docs/errors.md", "docs/diagnosis.md"),
    "docs/zh/from_the_articles.md": ("docs/from_the_articles.md",),
}
WHOLES = (WHOLE, "docs/zh/from_the_articles.md", "docs/zh/dgx_spark.md")
FENCED = re.compile(r"^ *```(\w*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
COMMENT = re.compile(r"\s+# .*$", re.MULTILINE)
INLINE = re.compile(r"`((?:\.venv/bin/|script/|ansible)[^`]+)`")
QUOTED = re.compile(r"`(\w[^`]* [^`]*)`")
CODE = re.compile(r"`([^`]+)`")
HEADING = re.compile(r"^##+ ", re.MULTILINE)
ROW = re.compile(r"^\| ", re.MULTILINE)
LINK = re.compile(r"\]\(([^)\s#]+)")
PAIRS = [pytest.param(page, english, id=page) for page, english in FOLLOWS.items()]


def blocks(*pages: str) -> list[str]:
    """Return the fenced code blocks with their language, without comments and list indentation."""
    return [
        f"{language}\n{COMMENT.sub('', textwrap.dedent(text))}"
        for page in pages
        for language, text in FENCED.findall((ROOT / page).read_text())
    ]


def commands(page: str) -> list[str]:
    return [block for block in blocks(page) if block.startswith("sh\n")]


def split(found: list[str]) -> list[str]:
    """Return the blocks, and each command by itself, because the pages may group commands differently."""
    return [part for block in found for part in (block.splitlines()[1:] if block.startswith("sh\n") else [block])]


def inline(*pages: str) -> set[str]:
    """Return the inline commands in text and tables."""
    texts = (FENCED.sub("", (ROOT / page).read_text()) for page in pages)
    return {" ".join(command.split()) for command in chain.from_iterable(map(INLINE.findall, texts))}


@pytest.mark.parametrize(("page", "english"), PAIRS)
def test_code_blocks_equal_the_english_ones_in_the_same_order(page: str, english: tuple[str, ...]) -> None:
    theirs = split(blocks(*english))
    assert [block for block in split(blocks(page)) if block not in theirs] == [], "no such block in English"
    for one in english:
        theirs = commands(one)
        left = iter(theirs)
        # "in" continues after the last block that was found.
        moved = [block for block in commands(page) if block in theirs and block not in left]
        assert not moved, f"wrong order of blocks compared with {one}"


@pytest.mark.parametrize(("page", "english"), PAIRS)
def test_inline_commands_equal_the_english_ones(page: str, english: tuple[str, ...]) -> None:
    assert inline(page) - inline(*english) == set()


@pytest.mark.parametrize(("page", "english"), PAIRS)
def test_quoted_output_equals_the_english_one(page: str, english: tuple[str, ...]) -> None:
    theirs = " ".join(" ".join((ROOT / one).read_text() for one in english).split())
    quoted = QUOTED.findall(FENCED.sub("", (ROOT / page).read_text()))
    assert [line for line in quoted if line not in theirs] == []


@pytest.mark.parametrize("page", WHOLES)
def test_complete_page_has_every_block_of_its_english_page(page: str) -> None:
    (english,) = FOLLOWS[page]
    assert blocks(page) == blocks(english)
    ours, theirs = (FENCED.sub("", (ROOT / one).read_text()) for one in (page, english))
    for one in (HEADING, ROW):
        assert len(one.findall(ours)) == len(one.findall(theirs))
    # Commands, steps, options, files.
    assert set(CODE.findall(ours)) == set(CODE.findall(theirs))


def test_chinese_readme_links_every_chinese_page() -> None:
    (english,) = FOLLOWS[WHOLE]
    ours, theirs = (set(LINK.findall((ROOT / one).read_text())) for one in (WHOLE, english))
    assert theirs - ours - {WHOLE} == set()


def test_every_chinese_page_has_an_english_page() -> None:
    pages = {str(page.relative_to(ROOT)) for page in [*ROOT.glob("*.zh-CN.md"), *(ROOT / "docs/zh").glob("*.md")]}
    assert pages == FOLLOWS.keys()


@pytest.mark.parametrize(("page", "english"), PAIRS)
def test_chinese_page_links_its_english_source_at_the_top(page: str, english: tuple[str, ...]) -> None:
    top = next(line for line in (ROOT / page).read_text().splitlines() if line.startswith("*"))
    linked = {(ROOT / page).parent.joinpath(link).resolve() for link in LINK.findall(top)}
    assert {ROOT / name for name in english} == linked
    assert "以英文页为准" in top, "the note that the English page is authoritative is missing"
