"""Between two attempts of a launch: whether the node can take part in the next one, and its newest checkpoint."""

from __future__ import annotations

import pwd
from typing import Any

from ..tools.as_user import SilentError, as_user
from ..tools.run import run
from . import state
from .checkpoints import newest

Json = dict[str, Any]

SMI_SECONDS = 15.0
CHECKPOINT_SECONDS = 15.0
FIELDS = "index,memory.used,ecc.errors.uncorrected.volatile.total"


def fit(request: Json) -> Json:
    """Look, and change nothing; see FitRequest and Fit."""
    gpus, error = gpu_use() if request["gpus"] else ([], "")
    return {
        "running": [launch_id for launch_id in request["earlier"] if not state.is_over(launch_id)],
        "gpus": gpus,
        "gpu_error": error,
        "checkpoint": checkpoint_of(request) if request["checkpoints"] else None,
    }


def gpu_use() -> tuple[list[Json], str]:
    """({index, used_mib, uncorrected} of each GPU, why there is nothing to say of them)."""
    said = run("nvidia-smi", f"--query-gpu={FIELDS}", "--format=csv,noheader,nounits", seconds=SMI_SECONDS)
    if said.code != 0:
        return [], said.why
    rows = [[word.strip() for word in line.split(",")] for line in said.text.splitlines() if line.strip()]
    # A GPU without such a memory, or without memory of its own, says [N/A] or [Not Supported].
    return [
        {"index": count(row[0]), "used_mib": count(row[1]), "uncorrected": count(row[2])}
        for row in rows
        if len(row) == 3 and row[0].isdecimal()
    ], ""


def count(text: str) -> int:
    return int(text) if text.isdecimal() else 0


def checkpoint_of(request: Json) -> Json | None:
    """Looked for in the name of the launch's user: whoever has written them may have laid links."""
    try:
        user = pwd.getpwnam(request["user"])
        found: Json | None = as_user(
            user, lambda: newest(request["checkpoints"], request["work_dir"]), seconds=CHECKPOINT_SECONDS
        )
    except (KeyError, SilentError):
        return None
    return found
