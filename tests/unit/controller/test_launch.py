"""The controller's side of a launch: its copy of the logs, what a person sees, and what an error becomes."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from muster_controller.connection import NodeConnection, NodeError, one_line
from muster_controller.logs import TAIL, LogBook, point_latest, write_json
from muster_controller.program import Program
from muster_controller.progress import Progress

ROOT = Path(__file__).parents[3]
PLAN = {
    "nodes": [
        {"node": "node1", "ranks": [0], "argv": [], "env": {"HF_TOKEN": "hf_abc"}},
        {"node": "node2", "ranks": [1, 2], "argv": ["train.py", "--api-key", "abc"], "env": {}},
    ]
}


class Shown:
    """Stands in for Ansible's display."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def display(self, message: str, **_how: Any) -> None:
        self.lines.append(message)


class Books:
    """A log book, and the lines that it hands on."""

    def __init__(self, folder: Path) -> None:
        self.lines: list[tuple[int, str, str]] = []
        self.book = LogBook(folder, PLAN, lambda *line: self.lines.append(line))
        self.sent: dict[tuple[str, str], int] = {}

    def send(self, node: str, key: str, text: str) -> None:
        begin = self.sent.get((node, key), 0)
        self.sent[node, key] = begin + len(text.encode())
        self.book.take(node, {key: {"begin": begin, "offset": self.sent[node, key], "text": text, "more": False}})


@pytest.fixture
def books(tmp_path: Path) -> Books:
    return Books(tmp_path / "launch")


# ---------------------------------------------------------------- logs


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
    look = {"begin": 0, "offset": 11, "text": "step 1 \N{SNOWMAN}\n", "more": False}
    stop = {"begin": 0, "offset": 18, "text": "step 1 \N{SNOWMAN}\nstep 2\n", "more": False}
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


def test_latest_points_to_the_newest(tmp_path: Path) -> None:
    for name in ("one", "two"):
        write_json(tmp_path / name / "verdict.json", {"name": name})
        point_latest(tmp_path / name)
    assert json.loads((tmp_path / "latest/verdict.json").read_text()) == {"name": "two"}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["latest", "one", "two"]


# ---------------------------------------------------------------- progress


def progress(show_rank: int | None = None) -> tuple[Progress, Shown]:
    shown = Shown()
    seen = Progress(shown, show_rank=show_rank)
    seen.live = False
    return seen, shown


@pytest.mark.parametrize(
    ("event", "line"),
    [
        (
            {"step": 2, "steps": 2, "loss": 1.23456, "samples_per_second": 99.6},
            "  step 2/2   loss 1.235   100 samples/s",
        ),
        ({"step": 2, "steps": 2}, "  step 2/2"),
        ({"loss": None, "samples_per_second": "fast"}, "  step ?"),
        ({"loss": float("nan")}, "  step ?   loss nan"),
    ],
)
def test_steps_are_shown(event: dict[str, Any], line: str) -> None:
    seen, shown = progress()
    seen.on_line(0, "event", json.dumps({"event": "step", **event}))
    assert shown.lines == [line]


def test_only_the_requested_rank_is_shown_and_no_flood() -> None:
    seen, shown = progress(show_rank=1)
    seen.on_line(0, "stdout", "other")
    for number in range(50):
        seen.on_line(1, "stdout", f"line {number}")
    assert "  [rank 1] line 0" in shown.lines
    assert len(shown.lines) <= 41  # a second may end meanwhile


# ---------------------------------------------------------------- errors of a connection


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", ""),
        ("\n\n", ""),
        ("Permission denied (publickey).", "Permission denied (publickey)."),
        (
            "Failed: Make sure this host can be reached over ssh: ssh: connect to host 10.0.0.9 port 22: No route\r\n",
            "ssh: connect to host 10.0.0.9 port 22: No route",
        ),
        ("1\n2\n  3  \n4\t5\n6", "3 4 5 6"),
        ("x" * 1000, "x" * 400),
    ],
)
def test_one_line(text: str, line: str) -> None:
    assert one_line(text) == line


class Ssh:
    """Stands in for a connection plugin: answers every command with this."""

    become = None

    def __init__(self, code: int, out: str, err: str) -> None:
        self.answer = (code, out.encode(), err.encode())
        self.sent = b""

    def exec_command(self, _command: str, in_data: bytes, **_how: Any) -> tuple[int, bytes, bytes]:
        self.sent = in_data
        return self.answer


def asked(code: int, out: str, err: str = "") -> dict[str, Any]:
    connection: Any = Ssh(code, out, err)
    node = NodeConnection("node1", connection, "/usr/bin/python3")
    return Program("sshd").call(node, "look", {"x": 1}, privileged=True)


def test_the_answer_is_the_last_line_that_is_one() -> None:
    assert asked(0, 'Welcome!\n{"a": 1}\n{broken\n') == {"a": 1}
    assert asked(1, '{"a": 2}\n', "Connection closed") == {"a": 2}


@pytest.mark.parametrize(
    ("out", "err", "said"),
    [
        ("", "sudo: a password is required\n", "sudo: a password is required"),
        ("only noise\n", "", "only noise"),
        ("", "", "nothing"),
        ("", "Traceback\n  File\nKeyError: 'user'\n", "Traceback File KeyError: 'user'"),
    ],
)
def test_no_answer_is_an_error_that_quotes_what_was_said(out: str, err: str, said: str) -> None:
    with pytest.raises(NodeError) as error:
        asked(1, out, err)
    assert str(error.value) == f"look ended with code 1 and said: {said}"
    assert error.value.reachable


# ---------------------------------------------------------------- the callback


def played(tmp_path: Path, playbook: str) -> list[str]:
    """What ansible-playbook prints of this, on this machine alone."""
    path = tmp_path / "play.yml"
    path.write_text(textwrap.dedent(playbook))
    command = [str(Path(sys.executable).with_name("ansible-playbook")), "-i", "one,two,", "-c", "local", str(path)]
    done = subprocess.run(
        [*command, "-e", f"ansible_python_interpreter={sys.executable}"],
        cwd=ROOT,
        env={"PATH": "/usr/bin:/bin", "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.splitlines()


def test_road_shows_what_ran_and_ends_with_the_reason(tmp_path: Path) -> None:
    lines = played(
        tmp_path,
        """
        - name: Nobody needs this play
          hosts: all
          gather_facts: false
          tasks:
            - name: A task that is left out
              ansible.builtin.fail: {}
              when: false
        - name: This one runs
          hosts: all
          gather_facts: false
          tasks:
            - name: One that stops
              ansible.builtin.assert: {that: inventory_hostname != 'two', fail_msg: "the second\\nof two"}
        """,
    )
    assert [line for line in lines if line.startswith(("PLAY [", "TASK ["))] == [
        line + " " + "*" * (79 - len(line))
        for line in (
            "PLAY [This one runs]",
            "TASK [One that stops]",
        )
    ]
    assert lines[-1] == "STOPPED: two at 'One that stops': the second"


def test_road_ends_with_the_verdict(tmp_path: Path) -> None:
    lines = played(
        tmp_path,
        f"""
        - name: A verdict
          hosts: one
          gather_facts: false
          tasks:
            - name: Judge a smoke launch whose rank was silent
              ddp_smoke_verdict:
                launch:
                  artifacts: {tmp_path}
                  events: []
                  verdict: {{status: healthy, summary: x, findings: []}}
                  plan:
                    launch_id: x
                    backend: gloo
                    world_size: 1
                    nodes: [{{node: one, node_rank: 0, nproc: 1, ranks: [0]}}]
        """,
    )
    said = "one: rank 0 (local rank 0) did not report its start; one: rank 0 (local rank 0) did not report its result"
    wrong = f"the launch ran, but its result is wrong. {said}"
    at = lines.index("fatal: [one]: FAILED!")
    assert lines[at + 1 : at + 3] == [f"  {wrong}", ""]
    assert lines[-1] == f"FAILED: {wrong} ({tmp_path}/verdict.json)"


def test_road_says_nothing_at_the_end_when_all_was_rescued(tmp_path: Path) -> None:
    lines = played(
        tmp_path,
        """
        - name: A play
          hosts: one
          gather_facts: false
          tasks:
            - name: Everything is rescued
              block:
                - name: One that is rescued
                  ansible.builtin.fail: {msg: only for a moment}
              rescue:
                - name: The rescue
                  ansible.builtin.debug: {msg: rescued}
        """,
    )
    assert not [line for line in lines if line.startswith("STOPPED")]
