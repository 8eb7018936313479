"""User notebooks: permitted owners, and the HTTP status that each notebook's socket returns."""

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


def test_root_cannot_have_a_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    with pytest.raises(NoNotebookError, match="root cannot have a notebook"):
        notebook.owner_of("")


def test_root_starts_a_notebook_for_another_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert notebook.owner_of("nobody") == pwd.getpwnam("nobody")


def test_user_cannot_start_another_users_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: pwd.getpwnam("nobody").pw_uid)
    with pytest.raises(NoNotebookError, match="nobody is not allowed to start a notebook of daemon"):
        notebook.owner_of("daemon")


def test_missing_account_is_reported() -> None:
    with pytest.raises(NoNotebookError, match="account no-such-name does not exist"):
        notebook.owner_of("no-such-name")


def test_socket_without_a_server_has_no_http_status(tmp_path: Path) -> None:
    assert notebook.answer(str(tmp_path / "none"), "token") == 0


@pytest.mark.parametrize(("said", "code"), [(b"HTTP/1.1 403 Forbidden\r\n", 403), (b"nonsense", 0), (b"", 0)])
def test_http_status_is_read_from_the_socket(tmp_path: Path, said: bytes, code: int) -> None:
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
