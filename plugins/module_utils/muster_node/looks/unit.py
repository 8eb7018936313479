"""Collect data inside a unit like that of a launch, because its settings differ from those of a login session or
root."""

from __future__ import annotations

import os
import pwd
import secrets
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..tools.pack import pack, sent
from ..tools.program import BOOTSTRAP, answer_in
from ..tools.run import run
from ..units import inside, torch_facts

if TYPE_CHECKING:
    from collections.abc import Mapping

# Starting Python takes 0.05 s, or seconds on a busy node with a cold disk; importing torch with CUDA reads 3 GB.
SECONDS = {"build": 15.0, "load": 50.0}
SLACK = 5.0


def look(user: str, torchrun: str, load: bool, properties: Mapping[str, str]) -> dict[str, Any]:
    """Collect the data as the user, in a unit if possible; return {way, why, inside}. way: unit, self or none."""
    depth = "load" if load else "build"
    request = {
        "torchrun": torchrun,
        "ask": pack(torch_facts.__name__),
        "depth": depth,
        "seconds": SECONDS[depth],
    }
    why = why_no_unit(user)
    argv = [sys.executable, "-I", "-S", "-c", BOOTSTRAP, "look"]
    if not why:
        argv = [*unit(properties, SECONDS[depth] + SLACK), "--", *argv]
    done = run(*argv, stdin=sent(inside.__name__, request), seconds=SECONDS[depth] + SLACK)
    seen = answer_in(done.text)
    if seen is None:
        failed = done.why or "the test program in the unit did not respond"
        return {"way": "self" if why else "none", "why": why or failed, "inside": None}
    return {"way": "self" if why else "unit", "why": why, "inside": seen}


def unit(properties: Mapping[str, str], seconds: float) -> list[str]:
    """Return the systemd-run prefix that runs a command in a transient unit, forwards the output and removes the
    unit."""
    limits = {**properties, "RuntimeMaxSec": f"{seconds:.0f}s"}
    name = f"muster-look-{secrets.token_hex(4)}.service"
    words = ["systemd-run", "--quiet", "--wait", "--pipe", "--collect", "--unit", name]
    return [*words, *(word for key, value in limits.items() for word in ("--property", f"{key}={value}"))]


def why_no_unit(user: str) -> str:
    try:
        pwd.getpwnam(user)
    except KeyError:
        return f"the training user {user} does not exist"
    if os.geteuid() != 0:
        return "only root can start a unit as the training user (ansible_become)"
    if not Path("/run/systemd/system").is_dir():
        return "systemd is not running"
    return ""
