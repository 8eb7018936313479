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


def table(path: str) -> dict[str, dict[str, int]]:
    """Parse pairs of lines: a line of names, then a line of numbers. Both lines begin with the row name."""
    lines = (files.text(path) or "").splitlines()
    found = {}
    for names_, numbers in zip(lines[::2], lines[1::2], strict=False):
        row, _, rest = names_.partition(":")
        values = [int(each) for each in numbers.partition(":")[2].split() if each.lstrip("-").isdecimal()]
        found[row] = dict(zip(rest.split(), values, strict=False))
    return found


def filtered() -> int | None:
    """Return how many incoming IPv4 packets this node's packet filters have dropped: the packets that arrived, but were
    neither delivered nor forwarded. None if the kernel does not report them."""
    counts = table("/proc/net/snmp").get("Ip", {})
    arrived, *taken = (counts.get(name) for name in ("InReceives", "InDelivers", "ForwDatagrams"))
    known = [number for number in taken if number is not None]
    return None if arrived is None or len(known) < len(taken) else arrived - sum(known)
