"""Reads small files of the kernel in /proc and /sys."""

from __future__ import annotations

from . import files


def word(path: str) -> str:
    """Return the stripped text of a kernel file, or "" if the file cannot be read."""
    return (files.text(path, most=4096) or "").strip()


def whole(path: str) -> int | None:
    """Return the number in a kernel file; None if there is no number."""
    said = word(path)
    return int(said) if said.lstrip("-").isdecimal() else None


def pairs(path: str) -> dict[str, int]:
    """Parse a file with lines "name number"."""
    found = {}
    for line in word(path).splitlines():
        words = line.split()
        if len(words) == 2 and words[1].isdecimal():
            found[words[0].rstrip(":")] = int(words[1])
    return found
