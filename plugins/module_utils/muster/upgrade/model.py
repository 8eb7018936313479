"""What an upgrade is asked, what is known of the nodes, and what is made of both."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


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
