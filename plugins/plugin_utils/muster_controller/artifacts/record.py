"""Records who ran what, with the outcome: one line per run in artifacts/<cluster>/record.jsonl, append-only."""

from __future__ import annotations

import getpass
import json
import os
import socket
from typing import TYPE_CHECKING, Any

from .private_files import append

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

NAME = "record.jsonl"
MOST = 64_000  # bytes of a line


def operator() -> str:
    """Return the user and host of this run, such as alice@laptop. If sudo is used, return the original user."""
    try:
        user = os.environ.get("SUDO_USER") or getpass.getuser()
    except (KeyError, OSError):  # a uid without a name
        user = f"uid {os.getuid()}"
    return f"{user}@{socket.gethostname()}"[:100]


def add(cluster_folder: Path, entry: Mapping[str, Any]) -> None:
    """Append one line with a single write, so that lines of two runs never mix. If a line is too long, the names of
    nodes are omitted."""
    line = json.dumps({**entry, "who": operator()})
    if len(line) > MOST:
        line = json.dumps({"time": entry["time"], "who": operator(), "playbook": entry["playbook"], "cut": True})
    append(cluster_folder / NAME, f"{line}\n".encode())
