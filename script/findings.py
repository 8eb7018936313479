#!/usr/bin/env python3
"""Write docs/findings.md: every finding that Muster can make, from what the rules declare beside themselves.

Run it with .venv-dev/bin/python after a change there; a test holds the file equal to what this prints with --show. With
--seen it prints what each was seen by, and how many by each.
"""

from __future__ import annotations

import importlib
import re
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
`unknown` (it matters, and could not be found out). What was not looked at is no finding: it is listed under `skipped`,
with the reason. Commands are as they are typed for inventory/lab. Written by script/findings.py from the code.

Not every rule has met its fault in life. The last column says the best that has made it fire:

| seen by | what that is | how many |
|---|---|---|
{counts}

So where it says `stand-in` of what another program or the kernel prints (above all of GPUs, NVLink, RDMA, the bus and
the kernel's log), the format is known from documentation and source code only, and no real output has been seen here.

"""
MEANINGS = {
    "sandbox": "a test brought the fault about on a node of the sandbox (a container with its own systemd and network)",
    "recording": "a case goes by the recorded output of a real program or kernel, the fault written into it where no"
    " machine with it could be had. Of GPUs: nvidia-smi is real, and what it shows was answered by a stand-in of NVML",
    "stand-in": "a case goes by input that was made by hand. Of launches, torch and the network between the nodes it"
    " has the shape of what Muster's own programs answer",
    "never": "nothing yet",
}

if TYPE_CHECKING:
    from muster.verdict.check import Check


def declared() -> dict[str, Check]:
    """Return every check by its id. Raises ValueError where two are declared with the same."""
    kind = importlib.import_module("muster.verdict.check").Check
    found: dict[str, Check] = {}
    for path in sorted((UTILS / "muster").rglob("*.py")):
        if not any(word in path.read_text() for word in ("CHECKS", "Check(")):
            continue
        module = importlib.import_module(".".join(path.relative_to(UTILS).with_suffix("").parts))
        for check in (*vars(module).values(), *getattr(module, "CHECKS", ())):
            if isinstance(check, kind) and found.setdefault(check.id, check) is not check:
                raise ValueError(f"two checks are called {check.id}, and {module.__name__} has one of them")
    return found


def catalogue() -> str:
    """Return the text of the file."""
    checks = declared()
    families = importlib.import_module("muster.verdict.families")
    counts = "\n".join(
        f"| {seen} | {meaning} | {sum(check.seen == seen for check in checks.values())} |"
        for seen, meaning in MEANINGS.items()
    )
    groups = {families.family(finding): families.title(finding) for finding in sorted(checks, key=families.place)}
    return HEAD.format(counts=counts) + "\n".join(_group(group, title, checks) for group, title in groups.items())


def seen() -> str:
    """Return every id with what it was seen by, and the count of each."""
    checks = declared()
    kinds = importlib.import_module("muster.verdict.check").SEEN
    lines = [
        f"{kind:10} {finding}" for kind in kinds for finding, check in sorted(checks.items()) if check.seen == kind
    ]
    counts = ", ".join(f"{kind} {sum(check.seen == kind for check in checks.values())}" for kind in kinds)
    return "\n".join([*lines, counts]) + "\n"


def _group(group: str, title: str, checks: dict[str, Check]) -> str:
    lines = [f"## {title}\n", "| id | reads | fires when | what fixes it | seen by |", "|---|---|---|---|---|"]
    lines += [
        f"| `{finding}` | {_cell(check.reads)} | {_cell(check.fires)} | {_cell(_fix(check))} | {check.seen} |"
        for finding, check in sorted(checks.items())
        if finding.partition(".")[0] == group
    ]
    return "\n".join(lines) + "\n"


def _fix(check: Check) -> str:
    text = f"{check.fix}: {check.command}" if check.command else check.fix
    return re.sub(r"\{(\w+)\}", lambda field: field[1].upper(), text)


def _cell(text: str) -> str:
    commands = importlib.import_module("muster.verdict.commands")
    typed = commands.Terminal(".venv/bin/", ("inventory/lab",)).text(text)
    return " ".join(typed.split()).replace("|", r"\|")


if __name__ == "__main__":
    if sys.argv[1:] == ["--show"]:
        sys.stdout.write(catalogue())
    elif sys.argv[1:] == ["--seen"]:
        sys.stdout.write(seen())
    else:
        TARGET.write_text(catalogue())
