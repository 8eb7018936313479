"""Files that the controller keeps of a run: artifacts/<cluster>/<run>/."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

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
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    fresh.touch(mode=0o600 if private else 0o666)
    fresh.write_text(text, encoding="utf-8", errors="replace")
    fresh.replace(path)


def point_latest(folder: Path) -> None:
    """Let `latest` beside this run's folder point to it."""
    fresh = folder.parent / f".latest.{os.getpid()}"
    fresh.unlink(missing_ok=True)
    fresh.symlink_to(folder.name)
    fresh.replace(folder.parent / "latest")
