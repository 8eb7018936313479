"""What a node answers over a connection, and what an error of it becomes."""

from __future__ import annotations

from typing import Any

import pytest

from muster_controller.connection import NodeConnection, NodeError, one_line


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
    answer = NodeConnection("node1", connection, "/usr/bin/python3", "pass # \N{SNOWMAN}").call(
        "look", {"x": 1}, privileged=True
    )
    assert connection.sent == b'10\npass # \xe2\x98\x83{"x": 1}'
    return answer


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
