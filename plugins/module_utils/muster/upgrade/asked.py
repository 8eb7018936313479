"""Whether what was given with -e can be an upgrade: all that is wrong with it at once."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .model import Request

KERNELS = ("", "security")
_DRIVER = re.compile(r"\d{3}(\.\d{1,3}){0,2}")
WAYS = "-e torch_version=2.13.0, -e driver=580, -e kernel=security, or -e rollback=true"


def problems(request: Request) -> Iterator[str]:
    if not (request.torch or request.driver or request.kernel or request.rollback):
        yield f"Nothing is asked for. Give one or more of {WAYS}."
    if request.rollback and (request.driver or request.kernel):
        yield (
            "rollback switches environments of PyTorch alone. A driver goes back with -e driver=VERSION, the one that"
            " it was; a kernel by starting the one before it."
        )
    if request.driver and not _DRIVER.fullmatch(request.driver):
        yield f"driver is {request.driver!r}, and neither a branch such as 580 nor a version such as 580.159.04."
    if request.kernel not in KERNELS:
        yield f"kernel is {request.kernel!r}. The one thing that it can be is security."
    for name, value in (("batch", request.batch), ("wait", request.wait)):
        if value < 0:
            yield f"{name} is {value}, and cannot be below 0."
