"""Reads the files that conda, mamba, pixi, venv and similar programs use to mark environments.

Call this as an unprivileged user (see as_user), because the files could be links to any file.
"""

from __future__ import annotations

import os

from . import files

# conda's history begins with the command that created the environment. pixi's file is small.
MARKS = ("conda-meta/pixi", "conda-meta/history", "pyvenv.cfg")
MOST = 4000  # bytes of each


def marks(environment: str) -> dict[str, str]:
    """Return the contents of existing mark files by file name."""
    found = {name: files.text(f"{environment}/{name}", most=MOST) for name in MARKS}
    there = {name: text for name, text in found.items() if text is not None}
    if "conda-meta/history" not in there and os.path.isdir(f"{environment}/conda-meta"):
        # Environments created through a library have no history.
        there["conda-meta/history"] = ""
    return there
