"""Shortened recordings are expanded to the original output, and unsuitable patches are rejected."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from recordings import difference, each_link, many_links, patched, provenance, recorded, shorten

if TYPE_CHECKING:
    from pathlib import Path

BEFORE = "".join(f"{number}\n" for number in range(1, 21))


@pytest.mark.parametrize(
    "after",
    [
        BEFORE,
        "",
        f"0\n{BEFORE}",
        f"{BEFORE}21\n",
        BEFORE.removeprefix("1\n"),
        BEFORE.removesuffix("20\n"),
        BEFORE.replace("5\n", "five\n\n@@ -1 +1 @@\n-x\n+y\n").replace("12\n", ""),
        BEFORE.replace("7\n", "a form\x0cfeed, a \x85 and a carriage\rreturn are no ends of lines\n"),
    ],
    ids=[
        "nothing",
        "all gone",
        "first added",
        "last added",
        "first gone",
        "last gone",
        "two places",
        "no ends of lines",
    ],
)
def test_patch_converts_the_first_text_into_the_second(after: str) -> None:
    patch = difference(BEFORE, after)
    assert (patched(BEFORE, patch) if patch else BEFORE) == after
    back = difference(after, BEFORE)
    assert (patched(after, back) if back else after) == BEFORE


@pytest.mark.parametrize(
    ("patch", "why"),
    [
        ("", "not a unified diff"),
        ("@@ -5,1 +5,1 @@\n-6\n+six\n", "the hunk at line 5 does not fit the text"),
        ("@@ -20,2 +20,1 @@\n 20\n-21\n", "the hunk at line 20 does not fit the text"),
        ("@@ -8,1 +8,1 @@\n-8\n+eight\n@@ -5,1 +5,1 @@\n-5\n+five\n", "the hunk at line 5 does not fit the text"),
        ("@@ -5,2 +5,1 @@\n-5\n+five\n", "the hunk at line 5 has another number of lines than it says"),
        ("@@ -5,1 +5,1 @@\n-5\n*five\n", "the hunk at line 5 has a line that begins with none of ' ', '-' and '+'"),
        ("@@ -5,1 +5,1 @@\n-5\n+five", "the last line has no end"),
    ],
    ids=["empty", "other line", "behind the end", "backwards", "counts", "sign", "cut off"],
)
def test_unsuitable_patch_is_rejected(patch: str, why: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(why)}$"):
        patched(BEFORE, patch)


def test_shortened_recording_is_read_like_the_original(tmp_path: Path) -> None:
    wrong = BEFORE.replace("15\n", "15\r\n")
    files = {
        "sound": {"query.xml": BEFORE, "topology.txt": BEFORE},
        "wrong": {"query.xml": wrong, "topology.txt": BEFORE, "query.aside.txt": "a warning\n"},
        "gone": {"query.xml": "No devices were found\n", "topology.txt": ""},
    }
    for name, texts in files.items():
        (tmp_path / name).mkdir()
        for file, text in {**texts, "provenance.yml": f"---\nprinted_by: {name}\n"}.items():
            (tmp_path / name / file).write_bytes(text.encode())
    for name in ("wrong", "gone", "wrong"):
        shorten(tmp_path / name, "sound")
        assert {file: recorded(tmp_path / name, file) for file in files[name]} == files[name]
    assert recorded(tmp_path / "gone", "query.aside.txt") is None
    kept = {name: sorted(path.name for path in (tmp_path / name).iterdir()) for name in ("wrong", "gone")}
    assert kept == {
        "wrong": ["provenance.yml", "query.aside.txt", "query.xml.patch"],
        "gone": ["provenance.yml", "query.xml", "topology.txt"],
    }
    assert provenance(tmp_path / "wrong") == {"printed_by": "wrong", "like": "sound"}


@pytest.mark.parametrize(
    ("printed", "kept"),
    [
        ("GPU 0: a name\n\t Link 0: 25 GB/s\n\t Link 1: 25 GB/s\n", "GPU 0: a name\n\t Link 0-1: 25 GB/s\n"),
        (
            "\t Link 8: 1\n\t Link 9: 2\n\t Link 10: 2\nGPU 1\n\t Link 11: 2\n",
            "\t Link 8: 1\n\t Link 9-10: 2\nGPU 1\n\t Link 11: 2\n",
        ),
        ("".join(f"\t Link {link}: 0\n\t Link {link}: 0 {link}\n\n" for link in (3, 3, 4)), ""),
        (
            "".join(f"\t Link {link}: 0\n\t Link {link}: N/A\n\n" for link in (0, 1, 2, 4)),
            "".join(f"\t Link {link}: 0\n\t Link {link}: N/A\n\n" for link in ("0-2", "4")),
        ),
        ("\t Link 0: 7\n\n\t Link 1: 7\n", ""),
    ],
    ids=["two", "ten", "another value", "lines and a gap", "the last without an empty line"],
)
def test_identical_links_are_stored_once(printed: str, kept: str) -> None:
    assert many_links(printed) == (kept or printed)
    assert each_link(many_links(printed)) == printed


def test_gpus_are_stored_as_differences_from_the_first_gpu(tmp_path: Path) -> None:
    def answer(*ids: int) -> str:
        gpus = (f'\t<gpu id="{number}">\n{BEFORE}\t</gpu>\n\n' for number in ids)
        return f"<log>\n{''.join(gpus)}</log>\n"

    printed = {"pair": answer(0, 1), "four": answer(0, 1, 2, 3), "lost": answer(0, 2, 3), "alone": answer(0)}
    for name, text in printed.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "provenance.yml").write_text("---\nexit: {query: 0}\n")
        (tmp_path / name / "query.xml").write_text(text)
        shorten(tmp_path / name, "" if name == "pair" else "pair")
    assert {name: recorded(tmp_path / name, "query.xml") for name in printed} == printed
    assert (tmp_path / "pair/query.xml").read_text() == answer(0)
    assert (tmp_path / "four/query.xml.patch").read_text().count("\n") < 20
    assert {name: provenance(tmp_path / name).get("gpus") for name in printed} == {
        "pair": 2,
        "four": 4,
        "lost": 3,
        "alone": 1,
    }
    assert [path.name for path in (tmp_path / "alone").iterdir()] == ["provenance.yml"]
