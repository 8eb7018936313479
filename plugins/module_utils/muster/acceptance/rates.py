"""What a GPU of a known model reaches at least: rows of roles/ddp_smoke/files/gpu_rates.yml."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from .reports import finite

if TYPE_CHECKING:
    from collections.abc import Mapping

# GB/s that a lane of PCIe carries in one direction, by generation, without its line code (8b/10b, then 128b/130b; flits
# since 6): https://pcisig.com/specifications. Times the width it is what no copy can exceed.
LANE_GBPS = {1: 0.25, 2: 0.5, 3: 0.985, 4: 1.969, 5: 3.938, 6: 7.563}


class Floor(NamedTuple):
    """gemm: TFLOPS, memory: GB/s; None where none is known. basis: of which row, from where."""

    gemm: float | None
    memory: float | None
    basis: str


NONE = Floor(None, None, "")


def floor(table: Mapping[str, Any], model: str) -> Floor:
    """By the longest name whose words the model's begins with: an A100 is no A10, a share of an A40 (A40-48Q) no A40.

    A part of a GPU (MIG) is not held to what the whole one does.
    """
    name = short(model)
    if " MIG " in name:
        return NONE
    rows = [
        (begin, row) for row in table.get("gpus", []) for begin in row["names"] if f"{name} ".startswith(f"{begin} ")
    ]
    if not rows:
        return NONE
    begin, row = max(rows, key=lambda found: len(found[0]))
    gemm, memory = table["floors"]["gemm"], table["floors"]["memory"]
    return Floor(
        row["tflops"] * row.get("gemm_floor", gemm), row["gbps"] * memory, f"data sheet of {begin}: {row['source']}"
    )


def short(model: str) -> str:
    """As the rows have it, and versions.yml of the role gpu_stack: without its maker's name."""
    return model.removeprefix("NVIDIA ").removeprefix("Tesla ")


def link_gbps(smi: Any) -> tuple[float, str] | None:
    """What the GPU's link carries at most, and its name; None where nvidia-smi does not tell it."""
    if not isinstance(smi, dict):
        return None
    generation, width = finite(smi.get("link_generation")), finite(smi.get("link_width"))
    if generation is None or not width or generation not in LANE_GBPS:
        return None
    return LANE_GBPS[int(generation)] * width, f"PCIe {generation:.0f} x{width:.0f}"
