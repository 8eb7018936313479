"""A short all-reduce of all ranks of this node, in a unit like a launch's, as the training user."""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..programs import collective_ranks
from ..tools.run import run
from .unit import unit, why_no_unit

if TYPE_CHECKING:
    from collections.abc import Mapping

# Importing torch for every rank, with CUDA from a cold disk, and NCCL's own start.
SECONDS = 120.0
SLACK = 10.0


def look(request: Mapping[str, Any], interface: str, properties: Mapping[str, str]) -> dict[str, Any]:
    """Return {skipped, why, said, ...}; request: that of nccl_health."""
    python = str(Path(request["torchrun"]).parent / "python")
    why = why_no_unit(request["user"])
    if not why and not Path(python).exists():
        why = f"{python} is not there"
    if why:
        return {"skipped": why, "why": "", "said": "", "wrong": []}
    given = {
        "backend": request["backend"],
        "nproc": request["nproc"],
        "interface": interface,
        "seconds": SECONDS,
        "program": inspect.getsource(collective_ranks),
    }
    program = f"{inspect.getsource(collective_ranks)}\nstart({json.dumps(given)!r})\n"
    done = run(*unit(properties, SECONDS + SLACK), "--", python, "-I", "-", stdin=program, seconds=SECONDS + 2 * SLACK)
    for line in reversed(done.text.splitlines()):
        if line.startswith(collective_ranks.MARK):
            return {"skipped": "", "wrong": [], **json.loads(line.removeprefix(collective_ranks.MARK))}
    return {"skipped": "", "why": done.why or "it gave no answer", "said": done.text[-1000:], "wrong": []}
