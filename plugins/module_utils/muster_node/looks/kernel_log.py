"""The kernel's own log since the start: lines that a cluster has to do with, each with its age.

Noise must not hide a fault: lines are sorted by kind first, and each kind is bounded by itself. What did not fit is
counted, and so is how far back the log goes, since neither counts as looked at.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

from ..tools.run import run

if TYPE_CHECKING:
    from collections.abc import Iterable


class Kind(NamedTuple):
    """Lines of one kind, of which only so many are brought back: the newest of the same, and the newest of all.

    pattern: its groups tell which lines are the same. each: at most so many of the same. most: of all together.
    """

    pattern: re.Pattern[str]
    each: int = 20
    most: int = 100


def _kind(pattern: str, each: int = 20, most: int = 100) -> Kind:
    return Kind(re.compile(pattern, re.IGNORECASE), each, most)


# muster/health/kernel_log.py says what they mean. A line is of the first kind that it fits.
KINDS = {
    "loaded": _kind(r"NVRM: loading NVIDIA", each=2),
    # By GPU, number and severity: 450 faults of an application leave room for the one that is fatal.
    "xid": _kind(r"NVRM: Xid \(PCI:([0-9a-f:.]+)[^)]*\): (\d+)(?:,.*?\b((?:non-?)?fatal)\b)?", each=2, most=400),
    "sxid": _kind(r"SXid \(PCI:([0-9a-f:.]+)\): (\d+), (Fatal|Non-fatal)", most=400),
    "oom": _kind(r"out of memory: Killed process"),
    "read_only": _kind(r"Remounting filesystem read-only|md/raid.*: Disk failure on \S+ .*failing array"),
    "disk": _kind(r"I/O error,? (?:on )?dev(?:ice)? (\w+)|nvme (nvme\d+): .*(?:timeout, reset|Disabling)", most=200),
    "hung": _kind(r"blocked for more than \d+ seconds|soft lockup|hard LOCKUP"),
    "machine_check": _kind(r"\[Hardware Error\]|Machine check events logged|EDAC .*\bUE\b"),
    "aer_uncorrected": _kind(r"AER: .*Uncorrect|PCIe Bus Error: severity=Uncorrect"),
    "aer_corrected": _kind(r"AER: .*Corrected|PCIe Bus Error: severity=Corrected"),
    "power": _kind(r"Detected insufficient power on the PCIe slot"),
    "module_hot": _kind(r"Port module event.*High Temperature"),
    "conntrack": _kind(r"nf_conntrack: .*table full"),
    "nccl": _kind(r"segfault at .* in libnccl"),
    "nfs": _kind(r"nfs: server (\S+) (?:not responding|OK)", each=4, most=200),
    "link": _kind(r"(?:^| )(\S+?): .*(?:Link is (?:Up|Down)|link (?:up|down)|lost carrier|Lost Link)", most=400),
}
MOST_READ = 100_000
MOST_BYTES = 24_000_000
# A whole ring buffer of messages can be asked for in less; a journal on a slow disk takes a while.
SECONDS = 8.0
# The first line of a kernel is its version, at 0 s; a log that begins later has lost some.
FROM_THE_START = 30.0


def look() -> dict[str, Any]:
    """Return {why, source, lines: [{age, text}], read, reach, cut}; the journal goes further back than the ring buffer.

    reach: the age of the oldest line that was there; None where that is the kernel's first. cut: {kind: how many lines
    did not fit}, without repetitions of what is among those that did.
    """
    # The newest first: what is too much is at the end then.
    newest = ("--reverse", f"--lines={MOST_READ}")
    journal = run(
        *("journalctl", "--dmesg", "--boot", "--no-pager", "--quiet", *newest, "--output=short-monotonic"),
        seconds=SECONDS,
        most=MOST_BYTES,
    )
    lines = from_journal(journal.text)
    source, why = "journalctl -k -b", ""
    if not lines:
        ring = run("dmesg", "--raw", most=MOST_BYTES)
        lines = from_ring(ring.text)
        source, why = "dmesg", ring.why or journal.why or "the kernel's log is empty"
    now = time.monotonic()
    worth, cut = sort(lines)
    return {
        "why": "" if lines else why,
        "source": source,
        "lines": [{"age": round(now - when), "text": text[:400]} for when, text in worth],
        "read": len(lines),
        "reach": round(now - lines[0][0]) if lines and lines[0][0] > FROM_THE_START else None,
        "cut": cut,
    }


def sort(lines: Iterable[tuple[float, str]]) -> tuple[list[tuple[float, str]], dict[str, int]]:
    """Return the lines that are worth it, the oldest first, and how many of each kind did not fit."""
    kept: list[tuple[float, str]] = []
    same: Counter[tuple[str | None, ...]] = Counter()
    of_kind: Counter[str] = Counter()
    cut: Counter[str] = Counter()
    for when, text in reversed(list(lines)):
        name, which = kind_of(text)
        line = (name, *which)
        if not name or same[line] >= KINDS[name].each:
            continue
        if of_kind[name] >= KINDS[name].most:
            cut[name] += 1
            continue
        same[line] += 1
        of_kind[name] += 1
        kept.append((when, text))
    return kept[::-1], dict(cut)


def kind_of(text: str) -> tuple[str, tuple[str | None, ...]]:
    """Return the kind of a line, "" for one that nobody asks for, and what tells it from others of its kind."""
    for name, kind in KINDS.items():
        if match := kind.pattern.search(text):
            return name, match.groups()
    return "", ()


def from_journal(text: str) -> list[tuple[float, str]]:
    """Return seconds since the start and text of the kernel's own lines, the oldest first; the journal has the newest
    first."""
    lines = re.finditer(r"^\[ *(\d+\.\d+)\] \S+ kernel: (.*)$", text, re.MULTILINE)
    return [(float(match[1]), match[2]) for match in lines][::-1]


def from_ring(text: str) -> list[tuple[float, str]]:
    lines = re.finditer(r"^<\d+>\[ *(\d+\.\d+)\] (.*)$", text, re.MULTILINE)
    return [(float(match[1]), match[2]) for match in lines]
