"""Whether what was given with -e can be an upgrade: all that is wrong with it at once."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .model import UpgradeRequest

SECURITY = "security"
DRIVER = re.compile(r"\d{3}(\.\d+){0,2}")


def problems(request: UpgradeRequest) -> Iterator[str]:
    if request.driver and not DRIVER.fullmatch(request.driver):
        yield f"driver is {request.driver}. Give a branch or a version, such as -e driver=580 or -e driver=580.95.05."
    if request.kernel not in ("", SECURITY):
        yield f"kernel is {request.kernel}. What can be asked for is -e kernel={SECURITY}, the newest security fixes."
    asked = {"torch_version": request.torch, "driver": request.driver, "kernel": request.kernel}
    several = [name for name, value in asked.items() if value]
    if len(several) > 1:
        yield f"{' and '.join(several)} are several upgrades. Give each its own run: then it is known what failed."
    if request.rollback and (request.kernel or request.driver):
        yield "rollback=true goes back to an earlier PyTorch. For drivers and kernels, an upgrade that fails shows how."
    if not (several or request.rollback):
        yield "Nothing is asked for. Give -e torch_version=RELEASE, driver=BRANCH, kernel=security or rollback=true."
    for name, value in (("batch", request.batch), ("wait", request.wait)):
        if value < 0:
            yield f"{name} is {value}, and cannot be below 0."
