#!/usr/bin/env python3
"""Write docs/errors.md: the lines that people see when a launch fails, and what they can come from.

Run it by .venv-dev/bin/python after a change in muster/diagnosis; a test holds the file equal to what this prints with
--show. Lines name their causes by links; each cause is said once, with what shows it and what fixes it.
"""

from __future__ import annotations

import importlib
import re
import shlex
import sys
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "plugins/module_utils"))
TARGET = ROOT / "docs/errors.md"
HEAD = """\
# Errors

Find the line that you saw, and what it can come from. Search this page for a part of it without numbers, names and
paths; below the line is what it means, with links to its causes, in the order in which they are worth a look. Each
cause has what shows it and what fixes it.

For a launch that failed, Muster asks these questions by itself and says which of the causes it was
([diagnosis.md](diagnosis.md)); also for logs that it did not make. A line that only says that a peer, or the way to it,
is gone is printed by a *victim*: look at the other ranks first.

Commands are about node2, and node1 as the head node: put your nodes' names there. What is to be typed *on node2* can be
sent there as well, with `--become` in the place of `sudo`:

```console
$ .venv/bin/ansible node2 -i inventory/lab --become -m ansible.builtin.command -a 'ss -ltnp sport = :29500'
```

Written by script/errors.py from the table that the diagnosis uses; where each line was seen stands beside it there
(`plugins/module_utils/muster/diagnosis/texts`).
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
WITHOUT_A_LINE = "No line at all"
SAME = "the same as for the line before it"
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
# In the place of what a cause names.
EXAMPLES = {
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
    from collections.abc import Iterator, Sequence

    from muster.diagnosis.evidence import Text
    from muster.diagnosis.model import Cause, Question
    from muster.verdict.commands import OnNode


def page() -> str:
    """Return the text of the file."""
    causes = importlib.import_module("muster.diagnosis.causes").CAUSES
    others = importlib.import_module("muster.diagnosis.symptoms").OTHERS
    parts = [HEAD]
    for name, title in SECTIONS.items():
        texts = importlib.import_module(f"muster.diagnosis.texts.{name}").TEXTS
        links = [_links(text.id, causes) for text in texts]
        parts.append(f"## {title}\n")
        for text, before, mine in zip(texts, ("", *links), links, strict=False):
            parts.append(_line(text, SAME if len(mine) > len(SAME) and mine == before else mine))
    parts += [f"## {WITHOUT_A_LINE}\n", "| what is seen | it can be |", "|---|---|"]
    parts += [f"| {says} | {links} |" for name, says in others.items() if (links := _links(name, causes))]
    parts += ["", "## All causes\n"]
    for group, title in GROUPS.items():
        parts += [f"### {title}\n", *(_cause(cause) for cause in causes if cause.group == group)]
    return "\n".join(parts)


def _line(text: Text, links: str) -> str:
    """A line as it is printed, and what it leads to."""
    victim = " Printed by a *victim*." if text.victim else ""
    leads = f"It can be: {links}." if links else _next(text.id)
    return f"```text\n{text.example.strip()}\n```\n\n{_sentence(text.means)}{victim} (`{text.id}`)\n\n{leads}\n"


def _links(symptom: str, causes: Sequence[Cause]) -> str:
    """Its causes, by the first part of their names; where they are most of a group, that."""
    mine = [one for one in causes if symptom in one.symptoms]
    parts = []
    for name, some in groupby(mine, key=_group):
        found = [*some]
        others = [one for one in causes if _group(one) == one.group == name and one not in found]
        if name in GROUPS and len(found) > 2 * len(others) + 1:
            but = f" but {', '.join(one.id.partition('.')[2] for one in others)}" if others else ""
            parts.append(f"{name}: [any of them](#{_anchor(GROUPS[name])}){but}")
        else:
            parts.append(f"{name}: {', '.join(_link(one.id) for one in found)}")
    return "; ".join(parts)


def _group(cause: Cause) -> str:
    return cause.id.partition(".")[0]


def _link(cause: str) -> str:
    return f"[{cause.partition('.')[2]}](#{_anchor(cause)})"


def _anchor(heading: str) -> str:
    """The name that a forge gives to a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def _next(name: str) -> str:
    what, command = NEXT[name]
    return f"{what}: {_shown(_command(command))}." if command else f"{what}."


def _command(command: str) -> str:
    commands = importlib.import_module("muster.verdict.commands")
    typed: str = commands.on_node("node2", command, become=command.startswith("journalctl"))
    return typed


def _cause(cause: Cause) -> str:
    """What it is, what shows it and what fixes it. A command that shows it and is the next one to type is said once."""
    said: set[str | OnNode] = set()
    shows = " ".join(_shows((*cause.confirm, *cause.support), said))
    fix = f"- Fix: {_lower(_words(cause.fix))}"
    if cause.command and cause.command not in said:
        fix += f": {_shown(cause.command)}"
    return "\n".join(
        [f"#### {cause.id}\n", _sentence(_words(cause.says)), *([f"- Look: {shows}"] if shows else []), fix, ""]
    )


def _shows(questions: Sequence[Question], said: set[str | OnNode]) -> Iterator[str]:
    for question in questions:
        command = "" if question.command in said else question.command
        said.add(command)
        yield f"{_words(question.asks)} ({_shown(command)})" if command else _words(question.asks)


def _shown(command: str | OnNode) -> str:
    """A command as people type it: of what a cause names, commands ask for the head node's name alone."""
    if not isinstance(command, str):
        command = command.filled({**{name.strip("{}"): example for name, example in EXAMPLES.items()}, "what": "node1"})
    words = shlex.split(command)
    if "ansible.builtin.command" not in words:
        return f"`{_words(command)}`"
    return f"on {words[1]} `{'sudo ' if '--become' in words else ''}{words[-1]}`"


def _sentence(text: str) -> str:
    """Names stay as they are written."""
    word = text.split(maxsplit=1)[0]
    first = text[0] if word.isalnum() and not word.isalpha() else text[0].upper()
    return f"{first}{text[1:].rstrip('.')}."


def _lower(text: str) -> str:
    """Behind a colon; names and acronyms stay."""
    return text if text[:2].isupper() or "_" in text.split(maxsplit=1)[0] else f"{text[0].lower()}{text[1:]}"


def _examples(text: str) -> str:
    for name, example in EXAMPLES.items():
        text = text.replace(name, example)
    return text


def _words(text: str) -> str:
    commands = importlib.import_module("muster.verdict.commands")
    typed = commands.Terminal(".venv/bin/", ("inventory/lab",)).text(_examples(text))
    return " ".join(typed.split())


if __name__ == "__main__":
    if sys.argv[1:] == ["--show"]:
        sys.stdout.write(page())
    else:
        TARGET.write_text(page())
