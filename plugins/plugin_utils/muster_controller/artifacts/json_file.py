"""JSON among the files of a run: for scripts, and for people, who type the commands in it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from muster.verdict.printable import printable

from .private_files import write_text
from ..playbook.terminal import terminal

if TYPE_CHECKING:
    from pathlib import Path


def write_json(path: Path, value: Any) -> None:
    """Write a value, printable, with the commands of its findings as they can be typed; see write_text."""
    text = json.dumps(terminal().shapes(value), indent=2, sort_keys=False, ensure_ascii=False)
    write_text(path, printable(text) + "\n")
