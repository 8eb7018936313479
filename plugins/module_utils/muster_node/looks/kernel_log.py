"""The kernel's own log since the start: lines that a cluster has to do with, each with its age."""

from __future__ import annotations

import re
import time
from typing import Any

from ..tools.run import read, run

# What a line must have in it to be brought back at all; muster/health/kernel_log.py says what it means.
WORTH = re.compile(
    r"NVRM|nvidia-nvswitch|SXid|AER:|PCIe Bus Error|pcieport.*error|available PCIe bandwidth|insufficient power|"
    r"Killed process|oom-kill:|I/O error|Remounting filesystem|failing array|nvme .*(timeout|Disabling|reset)|"
    r"blocked for more than|soft lockup|hard LOCKUP|Machine Check|mce: |Hardware Error|EDAC .* [CU]E|"
    r"nfs: server|Link is (Up|Down)|NIC Link is|link (up|down)|lost carrier|Port module event|nf_conntrack: .*full|"
    r"clocksource: .*(unstable|Override)|segfault at|file-max limit|neighbour: .*overflow",
    re.IGNORECASE,
)
MOST_READ = 50_000
MOST_LINES = 400
# A whole ring buffer of messages can be asked for in less; a journal on a slow disk takes a while.
SECONDS = 8.0


def look() -> dict[str, Any]:
    """Return {why, lines: [{age, text}]}; the journal goes further back than the kernel's ring buffer."""
    journal = run(
        *("journalctl", "--dmesg", "--boot", "--no-pager", "--quiet", f"--lines={MOST_READ}", "--output=short-unix"),
        seconds=SECONDS,
    )
    lines = from_journal(journal.text, time.time())
    source, why = "journalctl -k -b", ""
    if not lines:
        ring = run("dmesg", "--raw")
        lines = from_ring(ring.text, float((read("/proc/uptime").text.split() or ["0"])[0]))
        source, why = "dmesg", ring.why or journal.why or "the kernel's log is empty"
    worth = [{"age": round(age), "text": text[:400]} for age, text in lines if WORTH.search(text)]
    return {"why": "" if lines else why, "source": source, "lines": worth[-MOST_LINES:], "read": len(lines)}


def from_journal(text: str, now: float) -> list[tuple[float, str]]:
    """Return age and text of the kernel's own lines."""
    lines = re.finditer(r"^(\d+\.\d+) \S+ kernel: (.*)$", text, re.MULTILINE)
    return [(round(now - float(match[1]), 3), match[2]) for match in lines]


def from_ring(text: str, uptime: float) -> list[tuple[float, str]]:
    lines = re.finditer(r"^<\d+>\[ *(\d+\.\d+)\] (.*)$", text, re.MULTILINE)
    return [(round(uptime - float(match[1]), 3), match[2]) for match in lines]
