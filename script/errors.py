#!/usr/bin/env python3
"""Write docs/errors.md: the lines that people see when a launch fails, and what they can come from.

Run it with .venv/bin/python after a change in muster/diagnosis; a test holds the file equal to what this prints with
--show.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "plugins/module_utils"))
TARGET = ROOT / "docs/errors.md"
HEAD = """\
# Errors

Find the line that you saw, what it means, and what it can come from. For a launch that failed, Muster asks these
questions by itself and says which of the causes it was ([diagnosis.md](diagnosis.md)); with nothing but the line, here
is what to look at. Commands are as they are typed for inventory/lab, about node2 (and node1 as the head node); put your
node's name there. Written by script/errors.py from the table that the diagnosis uses.

A line that only says that a peer, or the way to it, is gone is printed by a *victim*: look at the other ranks first.
"""
SECTIONS = {
    "store": "torch's store, its rendezvous and torchrun",
    "gloo": "Gloo",
    "nccl": "NCCL",
    "cuda": "CUDA",
    "program": "The program",
    "python": "Python",
    "system": "The kernel and the C library",
}
GROUPS = {
    "head": "The head node cannot be reached",
    "agreement": "The nodes disagree on the launch",
    "absent": "A node or a rank is absent or late",
    "address": "A node has a wrong address",
    "network": "Ports, packets and links",
    "process": "A process ended, was ended, or stands still",
    "program": "What the ranks compute",
    "resources": "Something ran out",
    "drift": "The nodes differ",
    "access": "A node, or the way to it, is gone",
    "gpu": "GPUs and their fabric",
    "interference": "Something else is in the way",
}
HEADING = 100  # characters
# In the place of what a cause names.
EXAMPLES = {
    "'{node}'": "node2",
    "{node}": "node2",
    "{peer}": "node1",
    "{rank}": "3",
    "{what}": "...",
    "{address}": "192.0.2.1",
    "{port}": "29500",
}

# Of a line from which no cause follows by itself: where to look next, and what to type there.
NEXT = {
    "torchrun.endpoint": (
        "Give every node --master-addr, --master-port and a --node-rank of its own. What they were given",
        "ps -eo pid,user,args",
    ),
    "gloo.closed.timeout": ("Look further up in the log of the same rank for the first collective that timed out", ""),
    "nccl.work": (
        "Compare the numbers of all ranks: the one with the lowest `last enqueued` did something else; see its log",
        "",
    ),
    "nccl.unique_id": (
        "Look at the rank that the line names behind `from`: its log says why it did not come, or when it ended",
        "",
    ),
    "nccl.no_interface": (
        "Name an interface in NCCL_SOCKET_IFNAME that is there on every node. Those of a node",
        "ip -brief address",
    ),
    "system.killed": (
        "Look whether the kernel did it for want of memory; if not, somebody else's kill is recorded nowhere",
        "journalctl --dmesg --lines=50",
    ),
    "system.quota": (
        "Take files away there, write elsewhere, or ask for more: `quota -s` on the node shows the limits",
        "",
    ),
}

if TYPE_CHECKING:
    from collections.abc import Iterable

    from muster.diagnosis.model import Cause, Question, Text


def page() -> str:
    """Return the text of the file."""
    causes = importlib.import_module("muster.diagnosis.causes").CAUSES
    parts = [HEAD]
    for name, title in SECTIONS.items():
        texts = importlib.import_module(f"muster.diagnosis.texts.{name}").TEXTS
        if texts:
            parts.append(f"## {title}\n")
            parts += [_entry(text, [cause for cause in causes if text.id in cause.symptoms]) for text in texts]
    parts.append("## All causes\n")
    for group, title in GROUPS.items():
        parts += [f"### {title}\n", "| cause | it is | what shows it |", "|---|---|---|"]
        parts += [
            f"| `{cause.id}` | {_cell(cause.says)} | {'<br>'.join(_cell(one.asks) for one in cause.confirm)} |"
            for cause in causes
            if cause.group == group
        ]
        parts.append("")
    return "\n".join(parts)


def _entry(text: Text, causes: Iterable[Cause]) -> str:
    victim = " The rank that prints it is a victim." if text.victim else ""
    line = text.example.strip()
    shown = line if len(line) <= HEADING else f"{line[:HEADING].rsplit(' ', 1)[0]} ..."
    lines = [f"### `{shown.replace('`', '')}`\n"]
    if shown != line:
        lines.append(f"```text\n{line}\n```\n")
    lines.append(f"{text.means[0].upper()}{text.means[1:]}.{victim} (`{text.id}`; seen in: {text.source})\n")
    rows = [f"| {_cell(cause.says)} | {_proofs(cause)} | {_fix(cause)} |" for cause in causes]
    if rows:
        lines += ["| it can be | what shows it | what fixes it |", "|---|---|---|", *rows, ""]
    else:
        lines.append(_next(text.id))
    return "\n".join(lines)


def _next(name: str) -> str:
    what, command = NEXT[name]
    if not command:
        return f"{what}.\n"
    commands = importlib.import_module("muster.verdict.commands")
    typed = commands.on_node("node2", command, become=command.startswith("journalctl"))
    return f"{what}: `{_cell(typed)}`\n"


def _proofs(cause: Cause) -> str:
    return "<br>".join(_question(question) for question in (*cause.confirm, *cause.support))


def _question(question: Question) -> str:
    asked = question.asks[0].upper() + question.asks[1:]
    return f"{_cell(asked)} `{_typed(question.command)}`" if question.command else _cell(asked)


def _fix(cause: Cause) -> str:
    return f"{_cell(cause.fix)}: `{_typed(cause.command)}`" if cause.command else _cell(cause.fix)


def _typed(command: str) -> str:
    """So that it can be typed: of what a cause names, commands ask for the head node's name alone."""
    return _cell(command.replace("{what}", "node1"))


def _cell(text: str) -> str:
    for name, example in EXAMPLES.items():
        text = text.replace(name, example)
    commands = importlib.import_module("muster.verdict.commands")
    typed = commands.Terminal(".venv/bin/", ("inventory/lab",)).text(text)
    return " ".join(typed.split()).replace("|", r"\|")


if __name__ == "__main__":
    if sys.argv[1:] == ["--show"]:
        sys.stdout.write(page())
    else:
        TARGET.write_text(page())
