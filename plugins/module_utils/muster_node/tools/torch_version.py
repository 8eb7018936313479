"""Reads torch's version.py without importing torch."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

from . import files

if TYPE_CHECKING:
    from pathlib import Path

MOST = 100_000  # bytes


def said_in(site: Path) -> dict[str, Any] | None:
    """Return the variables in version.py, such as __version__ and cuda; None if torch is missing. site: site-packages
    folder."""
    text = files.text(str(site / "torch" / "version.py"), most=MOST, links=True)
    if text is None:
        return None
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return {}
    said: dict[str, Any] = {}
    for statement in tree.body:
        target = getattr(statement, "target", None) or (getattr(statement, "targets", None) or [None])[0]
        value = getattr(statement, "value", None)
        if isinstance(target, ast.Name) and isinstance(value, ast.Constant):
            said[target.id] = value.value
    return said
