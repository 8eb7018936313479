"""What must be the same on every node, and who has something else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..verdict.majority import vote
from ..verdict.words import few

if TYPE_CHECKING:
    from collections.abc import Mapping

NAMES = {
    "os": "system",
    "kernel": "kernel",
    "python": "Python of the environment",
    "driver": "NVIDIA driver",
    "cuda": "CUDA",
    "torch": "torch",
    "nccl": "NCCL that is loaded",
    "gpu_model": "GPUs",
    "vbios": "firmware of the GPUs",
    "hca_firmware": "firmware of the HCAs",
    "mtu": "MTU",
    "link_speed": "link speed",
    "environment": "variables that every job inherits",
    "nccl_conf": "nccl.conf",
    "code": "training code",
}
# Values that are a word of ours, in words of the reader's.
MEANT = {
    ("environment", "empty"): "none that NCCL, Gloo, CUDA or PyTorch reads",
    ("nccl_conf", "empty"): "sets nothing, or is not there",
}


def table(health: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]] | None:
    """One row for each trait that is known of any node: what most have, and the odd ones with their names."""
    rows = []
    traits = {name: look.get("traits", {}) for name, look in health.items()}
    for trait in dict.fromkeys((*NAMES, *(trait for values in traits.values() for trait in values))):
        values = {name: _text(trait, known.get(trait)) for name, known in traits.items()}
        votes = vote(values)
        if not votes.holders:
            continue
        unknown = [name for name, value in values.items() if value is None]
        rows.append(
            {
                "trait": NAMES.get(trait, trait.replace("_", " ")),
                "usual": votes.usual,
                "count": len(votes.holders.get(votes.usual, [])),
                "agree": votes.agree,
                "others": [
                    {"value": value, "nodes": few(names), "all": ", ".join(names)}
                    for value, names in votes.holders.items()
                    if value != votes.usual
                ],
                "unknown": few(unknown) if unknown else "",
            }
        )
    return rows or None


def _text(trait: str, value: Any) -> str | None:
    return None if value is None else MEANT.get((trait, str(value)), str(value))
