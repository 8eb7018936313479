"""What a healthy GPU of each model has (roles/gpu_stack/files/versions.yml, gpus).

A model that is not here is judged by what it says of itself and by its neighbours; nothing is expected of it.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..known.rows import BOARDS


@dataclass(frozen=True)
class Model:
    """names: what its name may begin with. links: active NVLinks; None where the board decides. rate: of one, in GB/s.

    offlines: whether the driver takes a page with an uncorrectable error out of use at once, not only after a reset.
    """

    names: tuple[str, ...]
    links: int | None
    rate: float
    offlines: bool


MODELS = tuple(Model(*board) for board in BOARDS)


def model_of(name: str | None) -> Model | None:
    """Return the model with the longest name that this one begins with: H200 NVL is no H200."""
    plain = (name or "").removeprefix("NVIDIA ").removeprefix("Tesla ")
    fits = [(len(begin), model) for model in MODELS for begin in model.names if _begins(plain, begin)]
    return max(fits, key=lambda fit: fit[0])[1] if fits else None


def _begins(name: str, begin: str) -> bool:
    """Whether the name begins so, at a whole word: H20 is no H200, and B300 SXM is one with B300 SXM6 AC."""
    rest = name[len(begin) :]
    return name.startswith(begin) and not (begin[-1].isdigit() and rest[:1].isdigit())
