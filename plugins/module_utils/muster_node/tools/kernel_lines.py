"""Classifies kernel log lines that are relevant for a cluster, and parses the output of journalctl and dmesg."""

from __future__ import annotations

import re
from typing import NamedTuple


class KernelLineKind(NamedTuple):
    """A kind of kernel log line. Only the newest lines of a kind are returned.

    pattern: lines with equal groups count as identical; the first group is the subject. each: limit for identical
    lines. most: limit for all lines of the kind.
    """

    pattern: re.Pattern[str]
    each: int = 20
    most: int = 100


def _kind(pattern: str, each: int = 20, most: int = 100) -> KernelLineKind:
    return KernelLineKind(re.compile(pattern, re.IGNORECASE), each, most)


# muster/health/kernel_log.py interprets the kinds. A line belongs to the first kind that matches.
KINDS = {
    "loaded": _kind(r"NVRM: loading NVIDIA", each=2),
    # A message of two lines, the first with the GPU (bug reports about 580; nv.c of open-gpu-kernel-modules).
    "unsupported": _kind(r"NVRM: (?:The NVIDIA GPU ([0-9a-f:.]+) )?.*(requires use of .*open|is not supported by)", 2),
    # Grouped by GPU, number and severity, so that 450 application faults do not displace a fatal one.
    "xid": _kind(r"NVRM: Xid \(PCI:([0-9a-f:.]{1,40})[^)]*\): (\d+)(?:,.*?\b((?:non-?)?fatal)\b)?", each=2, most=400),
    "sxid": _kind(r"SXid \(PCI:([0-9a-f:.]+)\): (\d+), (Fatal|Non-fatal)", most=400),
    "oom": _kind(r"out of memory: Killed process \d+ \((.+?)\)"),
    "read_only": _kind(r"Remounting filesystem read-only|md/raid.*: Disk failure on (\S+) .*failing array"),
    "disk": _kind(
        r"I/O error,? (?:on )?dev(?:ice)? ((?!loop|sr\d|fd\d)\w+)|nvme (nvme\d+): .*(?:timeout, reset|Disabling)",
        most=200,
    ),
    "hung": _kind(
        r"task (\S+?):\d+ blocked for more than \d+ seconds|soft lockup - CPU#\d+ stuck for \d+s! \[(.+?):\d+\]"
        r"|hard LOCKUP(?: on (cpu \d+))?"
    ),
    "machine_check": _kind(r"\[Hardware Error\]|Machine check events logged|EDAC .*\bUE\b"),
    "aer_uncorrected": _kind(r"AER: .*Uncorrect|PCIe Bus Error: severity=Uncorrect"),
    "aer_corrected": _kind(r"AER: .*Corrected|PCIe Bus Error: severity=Corrected"),
    "power": _kind(r"Detected insufficient power on the PCIe slot"),
    "module_hot": _kind(r"Port module event.*High Temperature"),
    "conntrack": _kind(r"nf_conntrack: .*table full"),
    "nccl": _kind(r"segfault at .* in libnccl"),
    "nfs": _kind(r"nfs: server (\S+) (not responding|OK)", each=4, most=200),
    "link": _kind(r"(?:^| )(\S+?): .*(?:Link is Up|link up|(Link is Down|link down|lost carrier|Lost Link))", most=400),
}


def kind_of(text: str) -> tuple[str, tuple[str | None, ...]]:
    """Return the kind of a line ("" for irrelevant lines), and the groups that distinguish the line from other lines of
    the same kind."""
    for name, kind in KINDS.items():
        if match := kind.pattern.search(text):
            return name, match.groups()
    return "", ()


def from_journal(text: str) -> list[tuple[float, str]]:
    """Return (seconds since boot, text) of each kernel line, oldest first. text: output of journalctl, newest first."""
    # Messages of NVIDIA's driver can have several lines. journalctl indents them; dmesg prints them without prefix.
    lines = re.finditer(r"^\[ *(\d+\.\d+)\] \S+ kernel: (.*(?:\n[ \t]+NVRM: .*)*)$", text, re.MULTILINE)
    return [(float(match[1]), " ".join(match[2].splitlines())) for match in lines][::-1]


def from_ring(text: str) -> list[tuple[float, str]]:
    lines = re.finditer(r"^<\d+>\[ *(\d+\.\d+)\] (.*(?:\nNVRM: .*)*)$", text, re.MULTILINE)
    return [(float(match[1]), " ".join(match[2].splitlines())) for match in lines]
