"""Messages reach a real webhook or command; a receiver that hangs or fails delays nothing and is reported."""

from __future__ import annotations

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from muster_controller.report.notify import KEPT, send
from waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

RUN = {"cluster": "lab", "id": "r1", "playbook": "launch.yml", "ended": "2026-11-28T10:00:00+00:00", "check": False}
NOBODY: dict[str, Any] = {"url_file": "", "command": [], "format": "json"}


class Receiver:
    """A webhook. It answers when `gate` is set, with `code`."""

    def __init__(self) -> None:
        self.received: list[dict[str, Any]] = []
        self.gate = threading.Event()
        self.gate.set()
        self.code = 200
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                receiver.received.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                receiver.gate.wait(30)
                self.send_response(receiver.code)
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    found = Receiver()
    yield found
    found.gate.set()
    found.server.shutdown()


def told(folder: Path, to: dict[str, Any], run: dict[str, Any] | None = None) -> str:
    return send(folder, {**NOBODY, **to}, {**RUN, **(run or {})}, ("done", "DONE: launch"), None, "")


def webhook(folder: Path, receiver: Receiver) -> dict[str, Any]:
    file = folder / "webhook"
    file.write_text(f"http://127.0.0.1:{receiver.server.server_port}/secret-token\n")
    return {"url_file": str(file)}


def kept(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(until(lambda: (folder / KEPT).exists() and (folder / KEPT).read_text()))
    return found


def test_webhook_receives_the_message(tmp_path: Path, receiver: Receiver) -> None:
    assert told(tmp_path, webhook(tmp_path, receiver)) == ""
    until(lambda: receiver.received)
    assert receiver.received[0]["text"] == "lab: DONE: launch"
    assert kept(tmp_path)["problem"] == ""


def test_receiver_that_hangs_delays_nothing(tmp_path: Path, receiver: Receiver) -> None:
    receiver.gate.clear()
    to = webhook(tmp_path, receiver)
    began = time.monotonic()
    told(tmp_path, to)
    assert time.monotonic() - began < 5, "its time limit is 30 s"
    until(lambda: receiver.received)
    shown = " ".join(path.read_text(errors="replace") for path in Path("/proc").glob("[0-9]*/cmdline") if path.exists())
    assert "secret-token" not in shown
    receiver.gate.set()


def test_receiver_that_fails_is_reported_by_the_next_run(tmp_path: Path, receiver: Receiver) -> None:
    receiver.code = 500
    to = webhook(tmp_path, receiver)
    told(tmp_path, to)
    assert kept(tmp_path)["problem"] == "HTTP status 500"
    assert told(tmp_path, to) == "The message about run r1 was not sent: HTTP status 500."


def test_command_receives_the_message_on_standard_input(tmp_path: Path) -> None:
    told(tmp_path, {"command": ["sh", "-c", f"cat > {tmp_path}/got"], "format": "slack"})
    assert kept(tmp_path)["problem"] == ""
    assert json.loads((tmp_path / "got").read_text()) == {"text": "lab: DONE: launch"}


def test_missing_file_is_named_and_check_mode_sends_nothing(tmp_path: Path) -> None:
    assert "/nowhere: No such file or directory (cluster_notify_url_file)" in told(tmp_path, {"url_file": "/nowhere"})
    assert told(tmp_path, {"url_file": "/nowhere"}, {"check": True}) == ""
    assert told(tmp_path, {}) == ""
