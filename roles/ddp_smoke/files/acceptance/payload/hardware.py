"""What a node's hardware offers to those who talk: RDMA adapters, GPUDirect, NVLink. No torch, no right is needed."""

from __future__ import annotations

import re
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any

from .nccl_log import short

ADAPTERS = Path("/sys/class/infiniband")
# nvidia-smi answers in two seconds at most, but not when a GPU is lost.
PATIENCE = 10.0
MOST = 64
COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def offered(*, with_gpus: bool) -> dict[str, Any]:
    """{adapters: [{name, layer, rate, active}], peermem, nvlink}; nvlink: None where it cannot be seen."""
    return {
        "adapters": adapters(ADAPTERS),
        "peermem": any(Path("/sys/module", name).exists() for name in ("nvidia_peermem", "nv_peer_mem")),
        "nvlink": nvlinks(topology()) if with_gpus else None,
    }


def adapters(folder: Path) -> list[dict[str, Any]]:
    found = []
    for port in sorted(folder.glob("*/ports/*"))[:MOST]:
        said = {}
        for name in ("state", "link_layer", "rate"):
            with suppress(OSError):
                said[name] = short((port / name).read_text(encoding="ascii", errors="replace").strip())
        found.append(
            {
                "name": f"{port.parent.parent.name}:{port.name}",
                "layer": said.get("link_layer", ""),
                "rate": said.get("rate", ""),
                "active": "ACTIVE" in said.get("state", ""),
            }
        )
    return found


def topology() -> str:
    """What `nvidia-smi topo -m` prints; "" where it does not."""
    program = shutil.which("nvidia-smi")
    if not program:
        return ""
    try:
        done = subprocess.run(
            [program, "topo", "-m"], capture_output=True, text=True, check=False, timeout=PATIENCE, errors="replace"
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout if done.returncode == 0 else ""


def nvlinks(shown: str) -> bool | None:
    """Whether every GPU of the matrix has NVLink to every other one; None where there is no matrix of two or more."""
    rows = [COLOURS.sub("", line).split() for line in shown.splitlines()]
    heads = next((row for row in rows if row[:1] == ["GPU0"] and len(row) > 1 and row[1] != "X"), [])
    count = sum(bool(re.fullmatch(r"GPU\d+", head)) for head in heads)
    matrix = [row[1 : count + 1] for row in rows if row is not heads and row and re.fullmatch(r"GPU\d+", row[0])]
    if count < 2 or len(matrix) != count:
        return None
    return all(re.fullmatch(r"X|NV\d+", cell) for row in matrix for cell in row)
