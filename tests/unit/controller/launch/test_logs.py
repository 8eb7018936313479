"""The log book of a launch: copies of the logs on the controller, and lines passed to the display."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from launch_shapes import a_plan
from muster.verdict.masking import MASK
from muster.verdict.redaction import Redaction
from muster_controller.artifacts.keeping import Keeping
from muster_controller.launch.logs import ANY_SIZE, LogBook
from muster_controller.launch.tails import TAIL

if TYPE_CHECKING:
    from pathlib import Path

    from muster.launch.messages import LogPart

GIVEN = "hf-314159"
PLAN = a_plan({"node1": 1, "node2": 2}, given={"HF_TOKEN": "launch_env"})
PLAN.head.env.update({"HF_TOKEN": "hf_open-sesame"})
PLAN.nodes[1].argv.extend(["--api-key", "open-sesame"])


class Books:
    """A log book with the lines that it passes on and its messages."""

    def __init__(self, folder: Path, most: int = ANY_SIZE, **of_the_plan: Any) -> None:
        self.lines: list[tuple[int, str, str]] = []
        self.said: list[str] = []
        keeping = Keeping(self.said.append)
        plan = replace(PLAN, **of_the_plan)
        self.book = LogBook(folder, plan, lambda *line: self.lines.append(line), Redaction([GIVEN]), keeping, most)
        self.sent: dict[tuple[str, str], int] = {}

    def send(self, node: str, key: str, text: str) -> None:
        begin = self.sent.get((node, key), 0)
        self.sent[node, key] = begin + len(text.encode())
        self.book.take(
            node, {key: {"begin": begin, "gap": 0, "offset": self.sent[node, key], "text": text, "more": False}}
        )

    def kept(self) -> Path:
        """Wait until all logs are written, and return their folder."""
        self.book.finish()
        self.book.close()
        return self.book.folder / "logs"


@pytest.fixture
def books(tmp_path: Path) -> Books:
    return Books(tmp_path / "launch")


def test_output_of_a_launch_command_is_stored_under_the_command_name(tmp_path: Path) -> None:
    books = Books(tmp_path / "launch", launcher="command")
    books.send("node2", "agent", 'hello\n@muster {"event": "step", "step": 3}\n')
    assert (books.kept() / "node2/command.log").read_text().startswith("hello\n")
    assert books.lines[0] == (1, "stdout", "hello")
    assert json.loads(books.lines[1][2])["step"] == 3
    known = Books(tmp_path / "known", launcher="accelerate")
    known.send("node1", "agent", "it is said that defaults are used\n")
    assert (known.kept() / "node1/accelerate.log").read_text() == "it is said that defaults are used\n"
    assert known.lines == []


def test_logs_are_stored_by_node_and_rank(books: Books) -> None:
    books.send("node1", "agent", "agent\n")
    books.send("node2", "1/stderr", "oh\n")
    logs = books.kept()
    assert (logs / "node1/torchrun.log").read_text() == "agent\n"
    assert (logs / "node2/rank2.stderr.log").read_text() == "oh\n"
    assert books.lines == [(2, "stderr", "oh")]
    assert books.book.stderr_tails("node2") == {"1": "oh\n"}
    assert books.book.offsets("node2") == {"1/stderr": 3}


def test_only_complete_lines_are_passed_on(books: Books) -> None:
    for part in ("one\ntw", "o\n", "thr"):
        books.send("node1", "0/stdout", part)
    assert [line for _, _, line in books.lines] == ["one", "two"]


def test_overlapping_answers_are_stored_once(books: Books) -> None:
    look: LogPart = {"begin": 0, "gap": 0, "offset": 11, "text": "step 1 \N{SNOWMAN}\n", "more": False}
    stop: LogPart = {"begin": 0, "gap": 0, "offset": 18, "text": "step 1 \N{SNOWMAN}\nstep 2\n", "more": False}
    for part in (look, stop, look):
        books.book.take("node1", {"0/stdout": part})
    assert [line for _, _, line in books.lines] == ["step 1 \N{SNOWMAN}", "step 2"]
    path = books.kept() / "node1/rank0.stdout.log"
    assert path.read_text(encoding="utf-8") == "step 1 \N{SNOWMAN}\nstep 2\n"


def test_events_are_tagged_with_the_rank_and_node_of_their_log(books: Books) -> None:
    books.send(
        "node2", "0/stdout", '@muster {"event": "hello", "rank": 7, "from_rank": 7}\n@muster {"ev\n@muster [1]\n'
    )
    assert books.book.events.kept == [{"event": "hello", "rank": 7, "from_rank": 1, "from_node": "node2"}]
    assert [(rank, stream) for rank, stream, _ in books.lines] == [(1, "event")]


def test_events_are_read_only_from_stdout(books: Books) -> None:
    books.send("node2", "0/stderr", '@muster {"event": "hello"}\n')
    assert books.book.events.kept == []


def test_tails_are_limited_in_length(books: Books) -> None:
    books.send("node1", "0/stderr", "x" * TAIL)
    books.send("node1", "0/stderr", "the end")
    assert len(books.book.tail("node1", "0/stderr")) == TAIL
    assert books.book.tail("node1", "0/stderr").endswith("xthe end")


def test_stored_plan_contains_no_secrets(books: Books) -> None:
    books.book.keep_plan(PLAN)
    text = (books.book.folder / "plan.json").read_text()
    assert "sesame" not in text
    assert [entry["node"] for entry in json.loads(text)["nodes"]] == ["node1", "node2"]


def test_new_log_book_replaces_stored_logs(books: Books) -> None:
    books.send("node1", "agent", "agent\n")
    books.kept()
    again = Books(books.book.folder)
    again.send("node1", "agent", "agent\n")
    assert (again.kept() / "node1/torchrun.log").read_text() == "agent\n"


def test_stored_log_is_kept_after_the_node_pruned_its_log(books: Books) -> None:
    """The logs of a finished launch might have been pruned on the nodes before a user attaches to the launch."""
    books.send("node1", "agent", "agent\n")
    books.send("node1", "0/stderr", "Traceback\n")
    books.kept()
    again = Books(books.book.folder)
    again.send("node1", "agent", "agent\nend\n")
    logs = again.kept()
    assert (logs / "node1/torchrun.log").read_text() == "agent\nend\n"
    assert (logs / "node1/rank0.stderr.log").read_text() == "Traceback\n"


# ---------------------------------------------------------------- unusual input and errors


def test_endless_progress_bars_use_limited_memory(tmp_path: Path) -> None:
    books = Books(tmp_path / "launch", most=100_000)
    piece = "".join(f"\r{percent:3d}%|\N{FULL BLOCK}| loss \x1b[31m1.0\x1b[0m\0" for percent in range(100)) * 100
    for _ in range(30):
        books.send("node1", "0/stderr", piece)
        books.lines.clear()
    book = books.book
    assert len(book.tails["node1", "0/stderr"]) == TAIL
    assert len(book.lines["node1", "0/stderr"].begun) < 100
    kept = books.kept() / "node1/rank0.stderr.log"
    assert kept.stat().st_size <= 101_000
    assert b" missing here ..." in kept.read_bytes()


def test_output_that_could_not_be_stored_is_marked_as_a_gap(books: Books, monkeypatch: pytest.MonkeyPatch) -> None:
    books.send("node1", "agent", "one\n")
    with monkeypatch.context() as patched:
        patched.setattr(books.book.keeping, "keep", lambda *_: False)
        books.send("node1", "agent", "x" * 500)
    books.send("node1", "agent", "two\n")
    assert (books.kept() / "node1/torchrun.log").read_text() == "one\n\n... 500 bytes missing here ...\ntwo\n"
    assert books.book.tail("node1", "agent").endswith("xtwo\n")


def test_gap_caused_by_the_size_limit_of_the_node_is_stored(books: Books) -> None:
    books.send("node1", "agent", "one\n")
    books.book.take("node1", {"agent": {"begin": 4, "gap": 90, "offset": 98, "text": "two\n", "more": False}})
    assert books.book.offsets("node1") == {"agent": 98}
    assert (books.kept() / "node1/torchrun.log").read_text() == "one\n\n... 90 bytes missing here ...\ntwo\n"


def test_unwritable_folder_does_not_stop_the_output(tmp_path: Path) -> None:
    (tmp_path / "launch").write_text("in the way")
    books = Books(tmp_path / "launch")
    books.send("node1", "0/stderr", "oh\n")
    books.kept()
    assert books.lines == [(0, "stderr", "oh")]
    assert books.book.stderr_tails("node1") == {"0": "oh\n"}
    assert books.said
    assert all("could not be written" in sentence for sentence in books.said)


def test_second_supervisor_does_not_write_logs(books: Books) -> None:
    books.send("node1", "agent", "one\n")
    second = Books(books.book.folder)
    second.send("node1", "agent", "one\ntwo\n")
    books.send("node1", "agent", "two\n")
    second.kept()
    assert second.said == [
        f"Another supervisor of this launch writes the logs in {books.book.folder}; this one only shows output"
    ]
    assert second.book.tail("node1", "agent") == "one\ntwo\n"
    assert (books.kept() / "node1/torchrun.log").read_text() == "one\ntwo\n"


def test_secrets_are_masked_before_storing_and_showing(books: Books) -> None:
    for part in ("begin ", GIVEN[:5], f'{GIVEN[5:]}\n@muster {{"event": "{GIVEN}"}}\nend {GIVEN[:7]}'):
        books.send("node2", "0/stdout", part)
    books.send("node2", "0/stderr", f"no access: {GIVEN}\n")
    logs = books.kept() / "node2"
    kept = (logs / "rank1.stdout.log").read_text()
    assert kept == f'begin {MASK}\n@muster {{"event": "{MASK}"}}\nend {MASK}'
    assert books.book.stderr_tails("node2") == {"0": f"no access: {MASK}\n"}
    assert [event["event"] for event in books.book.events.kept] == [MASK]
    assert books.lines[0] == (1, "stdout", f"begin {MASK}")


def test_fragments_of_a_secret_around_a_gap_are_masked(books: Books) -> None:
    books.send("node1", "agent", f"begin {GIVEN[:6]}")
    rest = f"{GIVEN[4:]} end\n"
    part: LogPart = {"begin": 12, "gap": 9, "offset": 21 + len(rest), "text": rest, "more": False}
    books.book.take("node1", {"agent": part})
    assert books.book.tail("node1", "agent") == f"begin {MASK}{MASK} end\n"
