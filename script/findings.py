#!/usr/bin/env python3
"""Write docs/findings.md: every finding that Muster can make, from what the rules declare beside themselves.

Run it with .venv/bin/python after a change there; a test holds the file equal to what this prints with --show.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING

ROOT = Path(__file__).resolve().parents[1]
UTILS = ROOT / "plugins/module_utils"
sys.path.insert(0, str(UTILS))
TARGET = ROOT / "docs/findings.md"
HEAD = """\
# Findings

What Muster can find, by id. The ids stay the same from one version to the next, so scripts and dashboards may go by
them. A finding is `pass`, `warn` (slower, or it will break later), `fail` (a launch breaks, or computes wrongly) or
`unknown` (it matters, and could not be told). What was not looked at is no finding: it is listed under `skipped`, with
the reason. Written by script/findings.py from the code.

"""
GROUPS = {
    "launch": "Launches",
    "smoke": "The smoke launch",
    "inspect": "Inspection",
    "node": "The node as a whole",
    "user": "The training user",
    "time": "Clocks",
    "gpu": "GPUs",
    "nvlink": "NVLink",
    "fabric_manager": "Fabric manager",
    "pci": "PCI Express",
    "sw": "Software on the node",
    "torch": "The environment of PyTorch",
    "rdma": "InfiniBand and RoCE",
    "eth": "Ethernet",
    "os": "Limits, memory, disk and kernel log",
    "env": "Environment of a job",
    "job": "Jobs that run",
    "net": "The network between the nodes",
    "versions": "The same on every node",
    "firewall": "Firewall",
}

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

    from muster.verdict.check import Check
    from muster.verdict.entry import Entry


def declared() -> dict[str, tuple[str, Check | Entry]]:
    """By id: the module that declares it, and what it says. Raises ValueError where two declare the same."""
    found: dict[str, tuple[str, Check | Entry]] = {}
    for path in sorted((UTILS / "muster").rglob("*.py")):
        if not any(word in path.read_text() for word in ("FINDINGS", "CHECKS", "Check(")):
            continue
        name = ".".join(path.relative_to(UTILS).with_suffix("").parts)
        for finding, entry in _of_module(importlib.import_module(name)):
            if finding in found and found[finding][1] is not entry:
                raise ValueError(f"{finding} is declared by {found[finding][0]} and by {name}")
            found.setdefault(finding, (name, entry))
    return found


def _of_module(module: ModuleType) -> Iterator[tuple[str, Check | Entry]]:
    """What can be found by the names of a module, or by what it lists in CHECKS."""
    check = importlib.import_module("muster.verdict.check").Check
    for value in (*vars(module).values(), *getattr(module, "CHECKS", ())):
        if isinstance(value, check):
            yield value.id, value
    # Where Check has not been taken up yet.
    yield from getattr(module, "FINDINGS", {}).items()


def catalogue() -> str:
    """Return the text of the file."""
    entries = {finding: entry for finding, (_, entry) in declared().items()}
    order = list(GROUPS)
    groups = sorted({finding.partition(".")[0] for finding in entries}, key=order.index)
    return HEAD + "\n".join(_group(group, entries) for group in groups)


def _group(group: str, entries: dict[str, Check | Entry]) -> str:
    lines = [f"## {GROUPS[group]}\n", "| id | reads | fires when | what fixes it |", "|---|---|---|---|"]
    lines += [
        f"| `{finding}` | {_cell(entry.reads)} | {_cell(entry.fires)} | {_cell(_fix(entry))} |"
        for finding, entry in sorted(entries.items())
        if finding.partition(".")[0] == group
    ]
    return "\n".join(lines) + "\n"


def _fix(entry: Check | Entry) -> str:
    command = getattr(entry, "command", "")
    return f"{entry.fix}: {command}" if command else entry.fix


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", r"\|")


if __name__ == "__main__":
    if sys.argv[1:] == ["--show"]:
        sys.stdout.write(catalogue())
    else:
        TARGET.write_text(catalogue())
