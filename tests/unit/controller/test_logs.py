"""The controller's copy of the logs of a launch, and the lines that it hands on."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from muster.verdict.masking import MASK
from muster.verdict.redaction import Redaction
from muster_controller.logs import TAIL, LogBook

if TYPE_CHECKING:
    from pathlib import Path

    from muster.launch.messages import LogPart

GIVEN = "hf-314159"
PLAN = {
    "given": {"HF_TOKEN": "launch_env"},
    "nodes": [
        {"node": "node1", "ranks": [0], "argv": [], "env": {"HF_TOKEN": "hf_abc"}},
        {"node": "node2", "ranks": [1, 2], "argv": ["train.py", "--api-key", "abc"], "env": {}},
    ],
}


class Books:
    """A log book, and the lines that it hands on."""

    def __init__(self, folder: Path) -> None:
        self.lines: list[tuple[int, str, str]] = []
        self.book = LogBook(folder, PLAN, lambda *line: self.lines.append(line), Redaction([GIVEN]))
        self.sent: dict[tuple[str, str], int] = {}

    def send(self, node: str, key: str, text: str) -> None:
        begin = self.sent.get((node, key), 0)
        self.sent[node, key] = begin + len(text.encode())
        self.book.take(
            node, {key: {"begin": begin, "gap": 0, "offset": self.sent[node, key], "text": text, "more": False}}
        )


@pytest.fixture
def books(tmp_path: Path) -> Books:
    return Books(tmp_path / "launch")


def test_each_log_lies_under_its_rank(books: Books) -> None:
    books.send("node1", "agent", "agent\n")
    books.send("node2", "1/stderr", "oh\n")
    logs = books.book.folder / "logs"
    assert (logs / "node1/torchrun.log").read_text() == "agent\n"
    assert (logs / "node2/rank2.stderr.log").read_text() == "oh\n"
    assert books.lines == [(2, "stderr", "oh")]
    assert books.book.stderr_tails("node2") == {"1": "oh\n"}
    assert books.book.offsets("node2") == {"1/stderr": 3}


def test_lines_are_handed_on_whole(books: Books) -> None:
    for part in ("one\ntw", "o\n", "thr"):
        books.send("node1", "0/stdout", part)
    assert [line for _, _, line in books.lines] == ["one", "two"]


def test_answers_that_overlap_are_kept_once(books: Books) -> None:
    look: LogPart = {"begin": 0, "gap": 0, "offset": 11, "text": "step 1 \N{SNOWMAN}\n", "more": False}
    stop: LogPart = {"begin": 0, "gap": 0, "offset": 18, "text": "step 1 \N{SNOWMAN}\nstep 2\n", "more": False}
    for part in (look, stop, look):
        books.book.take("node1", {"0/stdout": part})
    assert [line for _, _, line in books.lines] == ["step 1 \N{SNOWMAN}", "step 2"]
    path = books.book.folder / "logs/node1/rank0.stdout.log"
    assert path.read_text(encoding="utf-8") == "step 1 \N{SNOWMAN}\nstep 2\n"


def test_events_carry_whose_log_they_stand_in(books: Books) -> None:
    books.send(
        "node2", "0/stdout", '@muster {"event": "hello", "rank": 7, "from_rank": 7}\n@muster {"ev\n@muster [1]\n'
    )
    assert books.book.events == [{"event": "hello", "rank": 7, "from_rank": 1, "from_node": "node2"}]
    assert [(rank, stream) for rank, stream, _ in books.lines] == [(1, "event")]


def test_events_come_from_stdout_alone(books: Books) -> None:
    books.send("node2", "0/stderr", '@muster {"event": "hello"}\n')
    assert books.book.events == []


def test_tails_are_bounded(books: Books) -> None:
    books.send("node1", "0/stderr", "x" * TAIL)
    books.send("node1", "0/stderr", "the end")
    assert len(books.book.tail("node1", "0/stderr")) == TAIL
    assert books.book.tail("node1", "0/stderr").endswith("xthe end")


def test_the_kept_plan_holds_no_secret(books: Books) -> None:
    books.book.keep_plan(PLAN)
    text = (books.book.folder / "plan.json").read_text()
    assert "abc" not in text
    assert [entry["node"] for entry in json.loads(text)["nodes"]] == ["node1", "node2"]


def test_a_new_book_of_the_same_launch_begins_anew(books: Books) -> None:
    books.send("node1", "agent", "agent\n")
    again = Books(books.book.folder)
    again.send("node1", "agent", "agent\n")
    assert (again.book.folder / "logs/node1/torchrun.log").read_text() == "agent\n"


def test_a_secret_is_covered_before_it_is_kept_or_handed_on(books: Books) -> None:
    for part in ("begin ", GIVEN[:5], f'{GIVEN[5:]}\n@muster {{"event": "{GIVEN}"}}\nend {GIVEN[:7]}'):
        books.send("node2", "0/stdout", part)
    books.send("node2", "0/stderr", f"no access: {GIVEN}\n")
    books.book.finish()
    logs = books.book.folder / "logs/node2"
    kept = (logs / "rank1.stdout.log").read_text()
    assert kept == f'begin {MASK}\n@muster {{"event": "{MASK}"}}\nend {MASK}'
    assert books.book.stderr_tails("node2") == {"0": f"no access: {MASK}\n"}
    assert [event["event"] for event in books.book.events] == [MASK]
    assert books.lines[0] == (1, "stdout", f"begin {MASK}")


def test_what_a_gap_leaves_of_a_secret_is_covered(books: Books) -> None:
    books.send("node1", "agent", f"begin {GIVEN[:6]}")
    rest = f"{GIVEN[4:]} end\n"
    part: LogPart = {"begin": 12, "gap": 9, "offset": 21 + len(rest), "text": rest, "more": False}
    books.book.take("node1", {"agent": part})
    assert books.book.tail("node1", "agent") == f"begin {MASK}{MASK} end\n"
