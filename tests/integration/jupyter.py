"""Access a JupyterLab through a tunnel: load pages, and run cells in a kernel."""

from __future__ import annotations

import base64
import json
import os
import socket
import struct
import subprocess
import uuid
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from typing import TYPE_CHECKING, Any

from waiting import PATIENCE, until

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

SECONDS = 60.0
TEXT, CLOSE, PING, PONG = 1, 8, 9, 10


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


@contextmanager
def tunnel(command: Sequence[str], port: int) -> Iterator[None]:
    """Keep the ssh command that Muster printed running for the duration of the block."""

    def open_there() -> bool:
        with socket.socket() as tried:
            return tried.connect_ex(("127.0.0.1", port)) == 0

    with subprocess.Popen(command, stdin=subprocess.DEVNULL) as process:
        try:
            until(lambda: open_there() or process.poll() is not None, PATIENCE)
            assert process.poll() is None
            yield
        finally:
            process.terminate()


@dataclass(frozen=True)
class Jupyter:
    """A JupyterLab behind a local port. token: empty for a user without a token."""

    port: int
    token: str = ""

    def ask(self, path: str, method: str = "GET", body: Any = None) -> tuple[int, str]:
        """Return the status code, and the response text or the target of the redirect."""
        head = {"Authorization": f"token {self.token}"} if self.token else {}
        connection = HTTPConnection("127.0.0.1", self.port, timeout=SECONDS)
        try:
            connection.request(method, path, json.dumps(body) if body is not None else None, head)
            answer = connection.getresponse()
            text = answer.read().decode("utf-8", "replace")
            return answer.status, answer.headers["Location"] if answer.status == 302 else text
        finally:
            connection.close()

    def request_json(self, path: str, method: str = "GET", body: Any = None) -> Any:
        code, text = self.ask(path, method, body)
        assert code in (200, 201), (code, text)
        return json.loads(text)

    @contextmanager
    def kernel(self, name: str = "python3") -> Iterator[Kernel]:
        kernel = self.request_json("/api/kernels", "POST", {"name": name})["id"]
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=SECONDS) as talk:
                yield Kernel(self, kernel, Frames(talk, f"/api/kernels/{kernel}/channels", self.token))
        finally:
            self.ask(f"/api/kernels/{kernel}", "DELETE")


@dataclass(frozen=True)
class Kernel:
    jupyter: Jupyter
    id: str
    frames: Frames

    def run(self, code: str) -> str:
        """Run a cell. Return its output or its exception."""
        asked = uuid.uuid4().hex
        header = {"msg_id": asked, "username": "", "session": asked, "msg_type": "execute_request", "version": "5.3"}
        content = {"code": code, "silent": False, "store_history": False, "allow_stdin": False}
        message = {"header": header, "parent_header": {}, "metadata": {}, "content": content, "channel": "shell"}
        self.frames.send(json.dumps(message).encode())
        request_json = ""
        while True:
            answer = json.loads(self.frames.receive())
            if answer["parent_header"].get("msg_id") != asked:
                continue
            if answer["msg_type"] == "stream":
                request_json += answer["content"]["text"]
            elif answer["msg_type"] == "error":
                request_json += "\n".join(answer["content"]["traceback"])
            elif answer["msg_type"] == "status" and answer["content"]["execution_state"] == "idle":
                return request_json


class Frames:
    """A minimal websocket client (RFC 6455) for whole text messages."""

    def __init__(self, talk: socket.socket, path: str, token: str) -> None:
        self.stream = talk.makefile("rwb")
        key = base64.b64encode(os.urandom(16)).decode()
        lines = [
            *(f"GET {path} HTTP/1.1", "Host: localhost", "Upgrade: websocket", "Connection: Upgrade"),
            *(f"Sec-WebSocket-Key: {key}", "Sec-WebSocket-Version: 13", f"Authorization: token {token}", "", ""),
        ]
        self.stream.write("\r\n".join(lines).encode())
        self.stream.flush()
        answer = self.stream.readline()
        assert b" 101 " in answer, answer
        while self.stream.readline().strip():
            pass

    def send(self, data: bytes, kind: int = TEXT) -> None:
        mask = os.urandom(4)
        size = len(data)
        long = struct.pack("!BBQ", 0x80 | kind, 0x80 | 127, size)
        head = long if size > 125 else bytes((0x80 | kind, 0x80 | size))
        self.stream.write(head + mask + bytes(byte ^ mask[at % 4] for at, byte in enumerate(data)))
        self.stream.flush()

    def receive(self) -> str:
        """Return the next text message. The server drops clients that do not answer pings."""
        while True:
            first, second = self.stream.read(2)
            size = second & 0x7F
            if size in (126, 127):
                size = int.from_bytes(self.stream.read(2 if size == 126 else 8), "big")
            data, kind = self.stream.read(size), first & 0xF
            assert kind != CLOSE, data
            if kind == PING:
                self.send(data, PONG)
            if kind == TEXT:
                return data.decode()
