"""Small files of the kernel in /proc and /sys, as what they hold."""

from __future__ import annotations

from . import files


def word(path: str) -> str:
    """What a small file of the kernel says; "" where it is not there, or cannot be read."""
    return (files.text(path, most=4096) or "").strip()


def whole(path: str) -> int | None:
    """The number that a small file of the kernel holds."""
    said = word(path)
    return int(said) if said.lstrip("-").isdecimal() else None


def pairs(path: str) -> dict[str, int]:
    """A file of lines "name number"."""
    found = {}
    for line in word(path).splitlines():
        words = line.split()
        if len(words) == 2 and words[1].isdecimal():
            found[words[0].rstrip(":")] = int(words[1])
    return found
