"""A stub package index that serves a folder of wheels (PEP 503) and counts the bytes sent."""

from __future__ import annotations

import hashlib
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class PackageIndex:
    """A server that listens on a free port of this address between start and stop."""

    def __init__(self, folder: Path, address: str) -> None:
        self.folder = folder
        self.sent = 0
        self.rate = 0  # bytes per second; 0 without a limit
        self.askers: list[str] = []
        self._counts = threading.Lock()
        self._server = ThreadingHTTPServer((address, 0), self._handler())
        self.url = f"http://{address}:{self._server.server_address[1]}/simple"

    def start(self) -> None:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def take_count(self) -> int:
        """Return the number of wheel bytes sent since the previous call."""
        with self._counts:
            sent, self.sent = self.sent, 0
            self.askers.clear()
            return sent

    def _wheels(self, project: str) -> Iterator[Path]:
        for path in sorted(self.folder.glob("*.whl")):
            if path.name.split("-")[0].lower() == project:
                yield path

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        index = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                name = self.path.strip("/").rpartition("/")[2].replace("%2B", "+")
                if name.endswith(".whl"):
                    body, kind = (index.folder / name).read_bytes(), "application/octet-stream"
                    with index._counts:
                        index.sent += len(body)
                        index.askers.append(self.client_address[0])
                else:
                    links = [
                        f'<a href="/files/{path.name.replace("+", "%2B")}#sha256='
                        f'{hashlib.sha256(path.read_bytes()).hexdigest()}">{path.name}</a>'
                        for path in index._wheels(name)
                    ]
                    if not links:
                        self.send_error(404)
                        return
                    body, kind = "<br>".join(links).encode(), "text/html"
                self.send_response(200)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                step = index.rate // 10 or len(body)
                for begin in range(0, len(body), step):
                    self.wfile.write(body[begin : begin + step])
                    time.sleep(0.1 if index.rate else 0)

            def log_message(self, *_: object) -> None:
                """Print nothing, because requests are counted."""

        return Handler
