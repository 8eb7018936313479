"""Run a short all-reduce with all ranks of this node, as the training user and in a unit like that of a launch."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..tools.pack import sent
from ..tools.program import BOOTSTRAP, answer_in
from ..tools.run import run
from ..units import collective_ranks
from .unit import unit, why_no_unit

if TYPE_CHECKING:
    from collections.abc import Mapping

# Time to import torch with CUDA from a cold disk for every rank, and to initialise NCCL.
SECONDS = 120.0
SLACK = 10.0


def look(request: Mapping[str, Any], interface: str, properties: Mapping[str, str]) -> dict[str, Any]:
    """Run the all-reduce; return {skipped, why, said, ...}. request: options of nccl_health."""
    python = str(Path(request["torchrun"]).parent / "python")
    why = why_no_unit(request["user"])
    if not why and not Path(python).exists():
        why = f"{python} does not exist"
    if why:
        return {"skipped": why, "why": "", "said": "", "wrong": []}
    given = {
        "backend": request["backend"],
        "nproc": request["nproc"],
        "interface": interface,
        "seconds": SECONDS,
    }
    argv = [*unit(properties, SECONDS + SLACK), "--", python, "-I", "-c", BOOTSTRAP, "start"]
    done = run(*argv, stdin=sent(collective_ranks.__name__, given), seconds=SECONDS + 2 * SLACK)
    found = answer_in(done.text)
    if found is not None:
        return {"skipped": "", "wrong": [], **found}
    return {"skipped": "", "why": done.why or "no response", "said": done.text[-1000:], "wrong": []}
