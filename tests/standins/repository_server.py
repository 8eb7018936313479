#!/usr/bin/python3
"""Serve a folder over HTTP on one address, and log the requests as JSON lines.

served.py installs this program as a unit on a sandbox machine. Usage: repository_server.py ADDRESS FOLDER LOG
"""

from __future__ import annotations

import json
import sys
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

LOCK = threading.Lock()


class Handler(SimpleHTTPRequestHandler):
    """Request handler that counts the body bytes of every response."""

    protocol_version = "HTTP/1.1"

    def __init__(self, *arguments: Any, log: Path, **options: Any) -> None:
        self.log = log
        self.sent = 0
        self.answered = 0
        super().__init__(*arguments, **options)

    def do_GET(self) -> None:
        self.sent = 0
        super().do_GET()
        line = {"client": self.client_address[0], "path": self.path, "status": self.answered, "bytes": self.sent}
        with LOCK, self.log.open("a") as stream:
            stream.write(json.dumps(line) + "\n")

    def copyfile(self, source: Any, outputfile: Any) -> None:
        while chunk := source.read(65536):
            outputfile.write(chunk)
            self.sent += len(chunk)

    def send_response(self, code: int, message: str | None = None) -> None:
        self.answered = int(code)
        super().send_response(code, message)

    def log_message(self, *arguments: Any) -> None:
        """Print nothing, because the log is written after each response."""


def main() -> None:
    address, folder, log = sys.argv[1:]
    handler = partial(Handler, directory=folder, log=Path(log))
    ThreadingHTTPServer((address, 80), handler).serve_forever()


if __name__ == "__main__":
    main()
