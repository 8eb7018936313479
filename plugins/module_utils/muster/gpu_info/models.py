"""Expected values of healthy GPUs by model (roles/gpu_stack/files/versions.yml, gpus).

GPUs of other models are checked against the limits that they report and against the other GPUs of the node.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..known.rows import BOARDS


@dataclass(frozen=True)
class Model:
    """names: prefixes of the product name. links: number of active NVLinks; None if it depends on the board. rate: GB/s
    of one link.

    offlines: whether the driver stops using a page with an uncorrectable error immediately, and not only after a reset.
    """

    names: tuple[str, ...]
    links: int | None
    rate: float
    offlines: bool


MODELS = tuple(Model(*board) for board in BOARDS)


def model_of(name: str | None) -> Model | None:
    """Return the model with the longest matching prefix: H200 NVL is not H200."""
    plain = (name or "").removeprefix("NVIDIA ").removeprefix("Tesla ")
    fits = [(len(begin), model) for model in MODELS for begin in model.names if _begins(plain, begin)]
    return max(fits, key=lambda fit: fit[0])[1] if fits else None


def _begins(name: str, begin: str) -> bool:
    """Return whether the prefix matches: H20 does not match H200, but B300 SXM matches B300 SXM6 AC."""
    rest = name[len(begin) :]
    return name.startswith(begin) and not (begin[-1].isdigit() and rest[:1].isdigit())
