"""Answers of a node over a connection, and error messages."""

from __future__ import annotations

import os
import pwd
import shlex
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest

from muster_controller.nodes.connection import NodeConnection
from muster_controller.nodes.messages import Messages
from muster_controller.nodes.program import NodeProgram
from muster_controller.playbook.node_error import NodeError, one_line
from muster_node.tools import process
from muster_node.tools.program import BOOTSTRAP

if TYPE_CHECKING:
    from pathlib import Path


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
def test_error_output_becomes_one_line(text: str, line: str) -> None:
    assert one_line(text) == line


class Ssh:
    """Stub of a connection plugin: returns the same answer for each command."""

    become = None

    def __init__(self, code: int, out: str, err: str) -> None:
        self.answer = (code, out.encode(), err.encode())
        self.command, self.sent = "", b""

    def exec_command(self, command: str, in_data: bytes, **_how: Any) -> tuple[int, bytes, bytes]:
        self.command, self.sent = command, in_data
        return self.answer


def asked(code: int, out: str, err: str = "") -> dict[str, Any]:
    connection: Any = Ssh(code, out, err)
    node = NodeConnection("node1", connection, "/usr/bin/python3")
    answer = NodeProgram("sshd").call(node, "look", {"key": "the secret"}, privileged=True)
    assert connection.command == f"/usr/bin/python3 -I -S -c {shlex.quote(BOOTSTRAP)} look"
    assert connection.sent.endswith(b'{"key": "the secret"}')
    return answer


def test_answer_is_the_last_valid_line() -> None:
    assert asked(0, 'Welcome!\n{"a": 1}\n{broken\n') == {"a": 1}
    assert asked(1, '{"a": 2}\n', "Connection closed") == {"a": 2}


@pytest.mark.parametrize(
    ("out", "err", "said"),
    [
        ("", "sudo: a password is required\n", "sudo: a password is required"),
        ("only noise\n", "", "only noise"),
        ("", "", "no output"),
        ("", "Traceback\n  File\nKeyError: 'user'\n", "Traceback File KeyError: 'user'"),
    ],
)
def test_error_for_a_missing_answer_contains_the_output(out: str, err: str, said: str) -> None:
    with pytest.raises(NodeError) as error:
        asked(1, out, err)
    assert str(error.value) == f"look failed with exit code 1: {said}"
    assert error.value.reachable


class Echo:
    """Stub of a connection plugin: runs each command on this machine after the gate is open."""

    become = None

    def __init__(self) -> None:
        self.gate = threading.Event()

    def exec_command(self, command: str, in_data: bytes, **_how: Any) -> tuple[int, bytes, bytes]:
        assert self.gate.wait(30)
        done = subprocess.run(shlex.split(command), input=in_data, capture_output=True, check=False, timeout=60)
        return done.returncode, done.stdout, done.stderr


def test_each_queued_message_runs_the_requested_program(tmp_path: Path) -> None:
    connection: Any = Echo()
    messages = Messages({"node1": NodeConnection("node1", connection, sys.executable)}, NodeProgram("sshd"))
    messages.open()
    messages.ask("node1", "look", {"path": str(tmp_path / "nowhere")})
    messages.ask("node1", "identity", {}, program=NodeProgram("launch"))
    messages.ask("node1", "look", {"path": str(tmp_path / "nowhere")})
    connection.gate.set()
    answers = [messages.next(60.0) for _ in range(3)]
    assert [answer and answer.data for answer in answers] == [
        {"before": None},
        {
            "uid": os.getuid(),
            "gid": os.getgid(),
            "name": pwd.getpwuid(os.getuid()).pw_name,
            "launch_user": False,
            "boot": process.boot(),
        },
        {"before": None},
    ]


def test_unknown_program_is_rejected_immediately() -> None:
    with pytest.raises(ModuleNotFoundError):
        NodeProgram("nowhere")
