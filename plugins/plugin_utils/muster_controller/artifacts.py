"""Files that the controller keeps of a run: artifacts/<cluster>/<run>/."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from muster_node.tools import files

from .terminal import terminal

if TYPE_CHECKING:
    from pathlib import Path


def write_json(path: Path, value: Any, *, private: bool = False) -> None:
    """Write a value, with the commands of its findings as they can be typed; see write_text."""
    shape = terminal().shapes(value)
    write_text(path, json.dumps(shape, indent=2, sort_keys=False, ensure_ascii=False) + "\n", private=private)


def write_text(path: Path, text: str, *, private: bool = False) -> None:
    """Write atomically: a reader never meets half a file. A private one can be read by its owner only."""
    path.parent.mkdir(parents=True, exist_ok=True)
    files.replace(str(path), text.encode("utf-8", "replace"), mode=0o600 if private else None)


def point_latest(folder: Path) -> None:
    """Let `latest` beside this run's folder point to it."""
    files.link(str(folder.parent / "latest"), folder.name)
