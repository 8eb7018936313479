"""What the program that made an environment has left in it: conda, mamba, pixi, venv and others like it.

Whoever reads them is somebody who may be led anywhere by what lies there: see as_user.
"""

from __future__ import annotations

import os

from . import files

# The beginning of conda's history has the command that made it, and pixi's file is small.
MARKS = ("conda-meta/pixi", "conda-meta/history", "pyvenv.cfg")
MOST = 4000  # bytes of each


def marks(environment: str) -> dict[str, str]:
    """The texts of its marks by their names, as far as they are there."""
    found = {name: files.text(f"{environment}/{name}", most=MOST) for name in MARKS}
    there = {name: text for name, text in found.items() if text is not None}
    if "conda-meta/history" not in there and os.path.isdir(f"{environment}/conda-meta"):
        # Whoever put it together by a library writes no history.
        there["conda-meta/history"] = ""
    return there
