"""What a running job of NCCL says of itself: since 2.24 every rank answers questions on a port of the node's own."""

from __future__ import annotations

import socket
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

HOST, PORT = "localhost", 28028
# It gathers from every process of the job, and gives the ones that do not answer 5 s.
SECONDS = 7.0
MOST_CHARACTERS = 200_000


def look(listeners: Mapping[str, str]) -> dict[str, Any]:
    """Ask only where somebody listens there; listeners: the look at them. {asked, why, text}."""
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
    return {"asked": True, "why": "" if text else "it said nothing", "text": text.decode("utf-8", "replace")}
