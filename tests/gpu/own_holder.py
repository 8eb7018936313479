"""Check that status, the preflight check of a launch, and health report a process that holds GPU memory."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from muster.gpu_info.facts import facts as gpu_facts
from muster_node.launch import computing
from muster_node.looks import gpu
from muster_node.looks import gpu as look_gpu
from muster_node.programs.status import gpu_facts as status_facts

if TYPE_CHECKING:
    from collections.abc import Callable

HOLDS = "import sys, torch; held = torch.ones(1 << 28, device='cuda'); print('held', flush=True); sys.stdin.read()"


def run(say: Callable[[str], None]) -> tuple[bool, dict[str, Any], dict[str, Any]]:
    """Run part 4 of run.py. Return whether status, launch and health report the process, and the probe data and facts
    collected while the process was running."""
    argv = [sys.executable, "-c", HOLDS]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdin is not None
        child.stdout.readline()
        look = look_gpu.look()
        facts = gpu_facts(look)
        seen: dict[str, Any] = {
            "status": status_facts(20.0),
            "launch": computing.computing(gpus=True),
            "health": [gpu["processes"] for gpu in facts["gpus"]],
            "files": gpu.driver_holders(),
        }
        child.stdin.close()
        child.wait(30)
    pid = child.pid
    named = {
        "status": any(one.get("pid") == pid for there in seen["status"]["computing"].values() for one in there),
        "launch": any(one.get("pid") == pid for there in seen["launch"]["computing"].values() for one in there),
        "health": any(one.get("pid") == pid for there in seen["health"] for one in there),
        "files": any(one.get("pid") == pid for one in seen["files"]["holders"]),
    }
    for who, right in named.items():
        say(f"  a process that holds 1 GiB is {'named' if right else 'NOT NAMED'} by {who}: {str(seen[who])[:400]}")
    say(f"  here: {Path('/proc/1/comm').read_text().strip()} is process 1")
    return all(named.values()), look, facts
