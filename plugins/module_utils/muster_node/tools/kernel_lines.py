"""The kernel's log as journalctl and dmesg print it."""

from __future__ import annotations

import re


def from_journal(text: str) -> list[tuple[float, str]]:
    """Return seconds since the start and text of the kernel's own lines, the oldest first; the journal has the newest
    first."""
    lines = re.finditer(r"^\[ *(\d+\.\d+)\] \S+ kernel: (.*)$", text, re.MULTILINE)
    return [(float(match[1]), match[2]) for match in lines][::-1]


def from_ring(text: str) -> list[tuple[float, str]]:
    lines = re.finditer(r"^<\d+>\[ *(\d+\.\d+)\] (.*)$", text, re.MULTILINE)
    return [(float(match[1]), match[2]) for match in lines]
