"""Check the coverage of the GPU rules on a real GPU: available readings, and commands that address the GPU."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING, Any

from muster.gpu_info.values import address
from muster.health.gpu_node import GpuNode
from muster.health.gpu_readings import READINGS, apart, unread
from muster_node.looks import kernel_log

if TYPE_CHECKING:
    from collections.abc import Callable


def show(facts: dict[str, Any], say: Callable[[str], None]) -> bool:
    """Run the second half of part 2 of run.py. Return whether commands can address each GPU by its bus address."""
    wrong = [gpu for gpu in facts["gpus"] if not reached(gpu, say)]
    readings(facts, say)
    links(facts, say)
    slots(facts, say)
    log(say)
    return not wrong


def reached(gpu: dict[str, Any], say: Callable[[str], None]) -> bool:
    place = address(gpu["slot"])
    argv = ["nvidia-smi", "-i", place, "--query-gpu=index,uuid", "--format=csv,noheader"]
    done = subprocess.run(argv, check=False, capture_output=True, text=True, timeout=60)
    right = done.stdout.strip() == f"{gpu['index']}, {gpu['uuid']}"
    say(f"  nvidia-smi -i {place} {'reaches' if right else 'DOES NOT REACH'} GPU {gpu['index']}: {done.stdout.strip()}")
    return right


def readings(facts: dict[str, Any], say: Callable[[str], None]) -> None:
    """Print the checks that have readings on this machine."""
    node = GpuNode(facts, {"node": "here", "gpus": len(facts["gpus"])})
    missing = {one["id"] for one in unread(node)} | set(apart(node))
    there = sorted(check.id for check in READINGS if check.id not in missing)
    say(f"  checks with readings: {', '.join(there)}")
    say(f"  checks without readings: {', '.join(sorted(missing)) or 'none'}")


def links(facts: dict[str, Any], say: Callable[[str], None]) -> None:
    counted = sorted({name for gpu in facts["gpus"] for link in gpu["nvlinks"] for name in link["errors"]})
    unknown = sorted({name for gpu in facts["gpus"] for link in gpu["nvlinks"] for name in link["unknown"]})
    say(f"  NVLinks count: {', '.join(counted) or 'nothing'}; unknown names: {', '.join(unknown) or 'none'}")


def slots(facts: dict[str, Any], say: Callable[[str], None]) -> None:
    """Print the capabilities of the bridge above each GPU, with which the link of the GPU is compared."""
    for device in facts["bus"]:
        link = device["link"]
        now, most = f"{link['speed']} GT/s x{link['width']}", f"{link['speed_max']} GT/s x{link['width_max']}"
        slot = f"{link['slot_speed']} GT/s x{link['slot_width']}"
        say(f"  {device['slot']}: {now}, the GPU can {most}, its slot {slot}; virtual: {facts['virtual'] or 'no'}")


def log(say: Callable[[str], None]) -> None:
    seen = kernel_log.look()
    back = "to the start" if seen["reach"] is None else f"{seen['reach']} s"
    shown = f"{seen['read']} lines, {len(seen['lines'])} kept, back {back}, cut: {seen['cut'] or 'nothing'}"
    say(f"  kernel log: {seen['why'] or shown} ({seen['source']})")
