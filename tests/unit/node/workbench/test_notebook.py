"""Somebody's own notebook: whose it may be, and what its socket says."""

from __future__ import annotations

import os
import pwd
import socket
import threading
from typing import TYPE_CHECKING

import pytest

from muster_node.workbench import notebook
from muster_node.workbench.notebook import NoNotebookError

if TYPE_CHECKING:
    from pathlib import Path


def test_root_has_none_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    with pytest.raises(NoNotebookError, match="root cannot have a notebook"):
        notebook.owner_of("")


def test_root_starts_one_of_whom_it_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert notebook.owner_of("nobody") == pwd.getpwnam("nobody")


def test_nobody_else_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: pwd.getpwnam("nobody").pw_uid)
    with pytest.raises(NoNotebookError, match="nobody must not start a notebook of daemon"):
        notebook.owner_of("daemon")


def test_an_account_that_is_not_there_is_said() -> None:
    with pytest.raises(NoNotebookError, match="account no-such-name does not exist"):
        notebook.owner_of("no-such-name")


def test_a_socket_that_nobody_serves_says_nothing(tmp_path: Path) -> None:
    assert notebook.answer(str(tmp_path / "none"), "token") == 0


@pytest.mark.parametrize(("said", "code"), [(b"HTTP/1.1 403 Forbidden\r\n", 403), (b"nonsense", 0), (b"", 0)])
def test_what_it_answers(tmp_path: Path, said: bytes, code: int) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "s"))
        server.listen()

        def serve() -> None:
            talk, _ = server.accept()
            with talk:
                talk.recv(1000)
                talk.sendall(said)

        thread = threading.Thread(target=serve)
        thread.start()
        assert notebook.answer(str(tmp_path / "s"), "") == code
        thread.join()
