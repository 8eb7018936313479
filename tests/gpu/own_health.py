"""Run nccl_health on a machine with GPUs, including the short collective over NCCL."""

from __future__ import annotations

import importlib.util
import json
import os
import platform
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from muster.health import node
from muster.launch.unit import unit_properties
from muster_node.looks import health
from muster_node.tools.pack import sent
from muster_node.tools.program import BOOTSTRAP, answer_in
from muster_node.tools.run import run as command
from muster_node.units import collective_ranks

if TYPE_CHECKING:
    from collections.abc import Callable

STOP_TIMEOUT = 5


def request(count: int) -> dict[str, Any]:
    """Return the options of nccl_health for a machine with this number of GPUs, with the module's defaults."""
    defaults = {name: option["default"] for name, option in health.OPTIONS.items() if "default" in option}
    return {
        **defaults,
        "node": platform.node(),
        "user": "root",
        "address": "127.0.0.1",
        "gpus": count,
        "nproc": count,
        "torchrun": str(Path(sys.executable).with_name("torchrun")),
        "backend": "nccl",
        "head": True,
        "run_root": "/var/tmp",
        "collective": True,
    }


def run(count: int, out: Path, say: Callable[[str], None]) -> bool:
    """Run part 3 of run.py: nccl_health. The collective uses systemd units like a launch, or plain processes on a
    machine without systemd."""
    asked = request(count)
    looked = health.look(asked, unit_properties(asked["user"], "/", STOP_TIMEOUT))
    answer = node.judge_looks(looked, asked)
    verdict = answer["verdict"]
    out.mkdir(parents=True, exist_ok=True)
    kept = json.dumps({"facts": answer["facts"], "verdict": verdict}, indent=2, sort_keys=True, default=str)
    (out / "nccl_health.json").write_text(f"{kept}\n")
    say(f"nccl_health: {verdict['status']}")
    for one in verdict["findings"]:
        say(f"  {one['status']} {one['id']}: {one['summary']}")
    for skip in verdict["coverage"]["skipped"]:
        say(f"  skipped {skip['id']}: {skip['why']}")
    if not looked["collective"]["skipped"]:
        return not looked["collective"]["why"] and not looked["collective"]["wrong"]
    return collective(count, out, say)


def collective(count: int, out: Path, say: Callable[[str], None]) -> bool:
    if importlib.util.find_spec("torch") is None:
        say("collective: skipped, because this Python has no torch")
        return True
    given = {"backend": "nccl", "nproc": count, "interface": "", "seconds": 120.0}
    argv = [sys.executable, "-I", "-c", BOOTSTRAP, "start"]
    done = command(*argv, stdin=sent(collective_ranks.__name__, given), seconds=180, env=os.environ)
    (out / "collective.txt").write_text(done.text + done.aside)
    result = answer_in(done.text) or {"why": done.aside[-500:] or done.why, "wrong": []}
    say(f"collective without a unit: {result['why'] or 'right'}, {result.get('speeds', [])}")
    return not result["why"] and not result["wrong"]
