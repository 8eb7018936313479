"""Versions that must match on every node, and drift since the installation, with the time and the author of each
change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..verdict.majority import vote
from ..verdict.words import few

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .artifacts import Artifacts

NAMES = {
    "os": "operating system",
    "kernel": "kernel",
    "python": "Python of the environment",
    "driver": "NVIDIA driver",
    "cuda": "CUDA",
    "torch": "torch",
    "nccl": "loaded NCCL",
    "gpu_model": "GPUs",
    "vbios": "GPU firmware",
    "hca_firmware": "HCA firmware",
    "mtu": "MTU",
    "link_speed": "link speed",
    "environment": "environment variables of every job",
    "nccl_conf": "nccl.conf",
    "code": "training code",
}
# Display texts of internal values.
MEANT = {
    ("environment", "empty"): "none that NCCL, Gloo, CUDA or PyTorch reads",
    ("nccl_conf", "empty"): "missing or empty",
}
MOST = 500  # rows
UNFOLDED = 30


def table(health: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]] | None:
    """Return one row per known trait, with the value of the majority and the nodes that have other values."""
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


def drift_section(kept: Artifacts) -> dict[str, Any] | None:
    """Return the drift section; None if drift was not checked."""
    if not kept.drift.get("nodes"):
        return None
    differences = [one for one in kept.drift.get("differences", []) if one["status"] != "pass"]
    rows = [
        {
            "mark": one["status"],
            "node": one["node"],
            "what": one["what"],
            "seen": one["observed"],
            "expected": one["expected"],
            "since": one["since"] or "unknown",
            "by": one["by"] or "unknown",
            "maybe": list(one.get("others", [])),
            "how": one["how"],
            "source": one["source"],
        }
        for one in differences[:MOST]
    ]
    return {
        "rows": rows[:UNFOLDED],
        "folded": rows[UNFOLDED:],
        "left_out": max(0, len(differences) - MOST),
        "repairs": list(kept.drift.get("repairs", [])),
        "down": [name for name, one in kept.drift["nodes"].items() if not one["reached"]],
    }
