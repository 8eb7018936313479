"""A proxy and mirror for tests, which counts its traffic and runs on the controller's side of the sandbox network.

As a proxy, it fetches absolute URLs and opens tunnels (CONNECT). As a mirror, it serves given paths from a local folder
or another server.
"""

from __future__ import annotations

import http.client
import select
import socket
import ssl
import threading
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

CHUNK = 1 << 16
PASSED_ON = ("Range", "If-Range", "If-Modified-Since", "Accept", "User-Agent")
GIVEN_BACK = ("Content-Type", "Content-Length", "Last-Modified", "Content-Range", "ETag")


@dataclass(frozen=True)
class Request:
    """A request. body: number of bytes in the response; for a tunnel, bytes in both directions."""

    client: str
    method: str
    target: str
    body: int


@dataclass
class Proxy:
    """A proxy and mirror. places: source (a folder or a URL) by path prefix.

    hosts: nonexistent host names, served from a folder. A request for such a host proves that the client used the
    proxy.
    """

    address: str
    places: Mapping[str, str | Path] = field(default_factory=dict)
    hosts: Mapping[str, Path] = field(default_factory=dict)
    certificate: Path | None = None

    port: int = 0
    _noted: list[Request] = field(default_factory=list)
    _under_way: int = 0
    _changed: threading.Condition = field(default_factory=threading.Condition)

    @contextmanager
    def running(self) -> Iterator[Proxy]:
        handler = type("Bound", (_Handler,), {"proxy": self})
        with ThreadingHTTPServer((self.address, self.port), handler) as server:
            self.port = server.server_address[1]
            if self.certificate:
                context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
                context.load_cert_chain(self.certificate)
                server.socket = context.wrap_socket(server.socket, server_side=True)
            threading.Thread(target=server.serve_forever, daemon=True).start()
            try:
                yield self
            finally:
                server.shutdown()

    @property
    def url(self) -> str:
        scheme = "https" if self.certificate else "http"
        return f"{scheme}://{self.address}:{self.port}"

    @property
    def requests(self) -> list[Request]:
        """Wait for responses in progress, then return all requests. Requests are recorded when their responses end."""
        with self._settled():
            return list(self._noted)

    def forget(self) -> None:
        """Clear the recorded requests."""
        with self._settled():
            self._noted.clear()

    @contextmanager
    def _settled(self) -> Iterator[None]:
        with self._changed:
            assert self._changed.wait_for(lambda: not self._under_way, timeout=60), "a response did not end"
            yield

    @contextmanager
    def answering(self) -> Iterator[None]:
        """Mark a response as in progress until its request is recorded."""
        with self._changed:
            self._under_way += 1
        try:
            yield
        finally:
            with self._changed:
                self._under_way -= 1
                self._changed.notify_all()

    def note(self, request: Request) -> None:
        with self._changed:
            self._noted.append(request)

    def count(self, end: str = "") -> int:
        """Return the number of bytes in responses to requests for targets with this suffix."""
        return sum(request.body for request in self.requests if request.target.endswith(end))


class _Handler(BaseHTTPRequestHandler):
    proxy: Proxy
    protocol_version = "HTTP/1.1"
    # A client that disappears silently must not block a thread.
    timeout = 60

    def do_GET(self) -> None:
        given = 0
        with self.proxy.answering():
            with suppress(ConnectionError):
                given = self._answer()
            self._note(given)

    def do_CONNECT(self) -> None:
        host, _, port = self.path.rpartition(":")
        try:
            there = socket.create_connection((host, int(port)), timeout=30)
        except OSError:
            self.send_error(502)
            return
        self.send_response(200)
        self.end_headers()
        passed = 0
        with there, suppress(OSError):
            while ready := select.select([self.connection, there], [], [], 30)[0]:
                chunk = ready[0].recv(CHUNK)
                if not chunk:
                    break
                (there if ready[0] is self.connection else self.connection).sendall(chunk)
                passed += len(chunk)
        self.close_connection = True
        self._note(passed)

    def log_message(self, *arguments: Any) -> None:
        """Print nothing, because requests are recorded in a list."""

    def _note(self, body: int) -> None:
        self.proxy.note(Request(self.client_address[0], self.command, self.path, body))

    def _answer(self) -> int:
        parts = urlsplit(self.path)
        host = parts.hostname or ""
        if parts.scheme == "http" and host in self.proxy.hosts:
            return self._file(self.proxy.hosts[host], parts.path)
        if parts.scheme == "http":
            return self._from(self.path)
        for prefix, place in self.proxy.places.items():
            rest = parts.path.removeprefix(prefix)
            if rest != parts.path:
                return self._file(place, rest) if isinstance(place, Path) else self._from(place + rest)
        return self._nothing(404)

    def _file(self, folder: Path, name: str) -> int:
        path = folder / unquote(name).lstrip("/")
        if path.is_dir():
            page = "".join(f'<a href="{entry.name}">{entry.name}</a>\n' for entry in sorted(path.iterdir())).encode()
            return self._give([page], {"Content-Type": "text/html", "Content-Length": str(len(page))})
        if not path.is_file():
            return self._nothing(404)
        return self._give([path.read_bytes()], {"Content-Length": str(path.stat().st_size)})

    def _from(self, url: str) -> int:
        parts = urlsplit(url)
        connection = http.client.HTTPConnection(parts.hostname or "", parts.port or 80, timeout=30)
        headers = {name: self.headers[name] for name in PASSED_ON if name in self.headers}
        try:
            connection.request("GET", parts.path + (f"?{parts.query}" if parts.query else ""), headers=headers)
            answer = connection.getresponse()
        except OSError:
            return self._nothing(502)
        with answer:
            given = {name: answer.headers[name] for name in GIVEN_BACK if name in answer.headers}
            if answer.status in (204, 304):
                given["Content-Length"] = "0"
            return self._give(iter(lambda: answer.read(CHUNK), b""), given, answer.status)

    def _give(self, chunks: Iterator[bytes] | list[bytes], headers: Mapping[str, str], status: int = 200) -> int:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if "Content-Length" not in headers:
            self.send_header("Connection", "close")
            self.close_connection = True
        self.end_headers()
        given = 0
        for chunk in chunks:
            self.wfile.write(chunk)
            given += len(chunk)
        return given

    def _nothing(self, status: int) -> int:
        return self._give([], {"Content-Length": "0"}, status)
