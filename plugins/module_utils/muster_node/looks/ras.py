"""Query NCCL RAS of a running job. Since NCCL 2.24, ranks serve their status on a local port."""

from __future__ import annotations

import socket
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

HOST, PORT = "localhost", 28028
# RAS collects from every process of the job, with a timeout of 5 s per silent process.
SECONDS = 7.0
MOST_CHARACTERS = 200_000


def look(listeners: Mapping[str, str]) -> dict[str, Any]:
    """Query RAS if a process listens on its port; return {asked, why, text}. listeners: data from listeners.py."""
    if f":{PORT} " not in listeners["ss"]:
        return {"asked": False, "why": "", "text": ""}
    deadline = time.monotonic() + SECONDS
    text = b""
    try:
        with socket.create_connection((HOST, PORT), timeout=SECONDS) as line:
            line.sendall(b"verbose status\n")
            while len(text) < MOST_CHARACTERS and (left := deadline - time.monotonic()) > 0:
                line.settimeout(left)
                part = line.recv(65536)
                if not part:
                    break
                text += part
    except OSError as error:
        return {"asked": True, "why": str(error), "text": text.decode("utf-8", "replace")}
    return {"asked": True, "why": "" if text else "empty response", "text": text.decode("utf-8", "replace")}
