"""Types of an upgrade's request, nodes and plan."""

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
    """The options given with -e.

    batch: number of nodes at a time; 0 for a quarter of all nodes. wait: how many seconds to wait for a busy node.
    """

    torch: str = ""
    driver: str = ""
    kernel: str = ""
    rollback: bool = False
    canary: str = ""
    batch: int = 0
    wait: int = 0

    @property
    def kind(self) -> str:
        """What is upgraded: pytorch, driver or kernel."""
        return "kernel" if self.kernel else "driver" if self.driver else "pytorch"


@dataclass(frozen=True)
class VersionChange:
    """A change of a version on a node. before: "" if nothing was installed."""

    what: str
    before: str
    after: str

    def __str__(self) -> str:
        return f"{self.what} {self.before or 'none'} -> {self.after}"


@dataclass(frozen=True)
class UpgradeNode:
    """A node in the inventory.

    silent: why its state is unknown. busy: a text for each launch and process that uses the node.
    """

    name: str
    changes: tuple[VersionChange, ...] = ()
    busy: tuple[str, ...] = ()
    silent: str = ""
    quarantined: bool = False


@dataclass(frozen=True)
class Order:
    """The order of the nodes. A batch starts only after the previous batch succeeded. The first batch is the canary.

    proved: nodes that already have the requested version. refusals: why the upgrade is rejected; if there are any,
    nothing is changed.
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
        yield f"driver is {request.driver}, but must be a branch or a version: -e driver=580 or -e driver=580.95.05."
    if request.kernel not in ("", SECURITY):
        yield f"kernel is {request.kernel}. The only supported value is -e kernel={SECURITY} (newest security fixes)."
    asked = {"torch_version": request.torch, "driver": request.driver, "kernel": request.kernel}
    several = [name for name, value in asked.items() if value]
    if len(several) > 1:
        yield f"{' and '.join(several)} cannot be upgraded in one run. Use a separate run for each."
    if request.rollback and (request.kernel or request.driver):
        yield "rollback=true applies only to PyTorch. A failed driver or kernel upgrade prints its rollback commands."
    if not (several or request.rollback):
        yield "No upgrade is requested. Set -e torch_version=RELEASE, driver=BRANCH, kernel=security or rollback=true."
    for name, value in (("batch", request.batch), ("wait", request.wait)):
        if value < 0:
            yield f"{name} is {value}, but must be 0 or greater."
