"""What the catalogue of findings (docs/findings.md) says of one id.

Each module that makes findings declares `FINDINGS`, an Entry by id, beside its rules. script/findings.py
writes the catalogue from them.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Entry:
    """One kind of finding, in words for the user.

    reads: what is looked at. fires: when it is not a `pass`, with the threshold and what it is based on.
    fix: what fixes it.
    """

    reads: str
    fires: str
    fix: str
