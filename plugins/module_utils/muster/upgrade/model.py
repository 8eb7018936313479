"""What an upgrade is requested to do, what is known of the nodes, and the plan that follows."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

SECURITY = "security"
DRIVER = re.compile(r"\d{3}(\.\d+){0,2}")


@dataclass(frozen=True)
class UpgradeRequest:
    """What was given with -e. batch: nodes at a time, 0 for a quarter of all. wait: seconds for a busy node."""

    torch: str = ""
    driver: str = ""
    kernel: str = ""
    rollback: bool = False
    canary: str = ""
    batch: int = 0
    wait: int = 0

    @property
    def kind(self) -> str:
        """What becomes another one: pytorch, driver or kernel."""
        return "kernel" if self.kernel else "driver" if self.driver else "pytorch"


@dataclass(frozen=True)
class VersionChange:
    """What becomes another one on a node. before: empty for none."""

    what: str
    before: str
    after: str

    def __str__(self) -> str:
        return f"{self.what} {self.before or 'none'} -> {self.after}"


@dataclass(frozen=True)
class UpgradeNode:
    """A node of the inventory. silent: why nothing is known of it. busy: who is at work there, a text for each."""

    name: str
    changes: tuple[VersionChange, ...] = ()
    busy: tuple[str, ...] = ()
    silent: str = ""
    quarantined: bool = False


@dataclass(frozen=True)
class Order:
    """In which order nodes change. A batch is begun only when the one before it was good; the first is the canary's.

    proved: the nodes that have what is asked for already. refusals: sentences; nothing is changed where there are some.
    """

    batches: tuple[tuple[str, ...], ...] = ()
    proved: tuple[str, ...] = ()
    silent: Mapping[str, str] = field(default_factory=dict)
    refusals: tuple[str, ...] = ()

    @property
    def canary(self) -> str:
        return self.batches[0][0] if self.batches else ""


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
