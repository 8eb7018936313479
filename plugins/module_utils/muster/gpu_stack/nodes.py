"""The nodes with GPUs, and the rows of the table that belong to each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .model import Refusal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .model import StackNodeFacts, StackRequest
    from .table import Chip, System, VersionsTable


@dataclass(frozen=True)
class StackNode:
    """A node with GPUs: what is known of it, and the rows that belong to it."""

    seen: StackNodeFacts
    system: System
    chips: tuple[Chip, ...]

    @property
    def name(self) -> str:
        return self.seen.node

    @property
    def python(self) -> str:
        return self.seen.python or self.system.python

    @property
    def distribution(self) -> str:
        return self.system.name.partition("-")[0]

    @property
    def installed_branch(self) -> int:
        """The branch of the driver that is there; 0 for none."""
        return int(self.seen.driver.partition(".")[0] or 0)

    @property
    def only_open(self) -> Chip | None:
        """A GPU that works with open kernel modules alone."""
        return next((chip for chip in self.chips if chip.architecture.open == "must" or chip.grace), None)

    @property
    def only_proprietary(self) -> Chip | None:
        """A GPU that works with proprietary kernel modules alone."""
        return next((chip for chip in self.chips if chip.architecture.open == "no"), None)

    @property
    def locked(self) -> bool:
        """Whether the kernel takes only modules whose key is enrolled, and that of dkms is not."""
        return bool(self.seen.secure_boot) and not self.seen.key_enrolled

    @property
    def has_fabric(self) -> bool:
        """Whether it has NVSwitches: on its bus, or behind the network adapters of an NVLink 5 board of eight GPUs."""
        board = any(chip.nvlink5 and not chip.grace for chip in self.chips) and not self.seen.virtual
        return bool(self.seen.nvswitches) or (board and max(self.seen.gpu_count, len(self.seen.gpus)) >= 8)

    def gpu(self, chip: Chip) -> str:
        what = self.seen.model or f"{chip.architecture.name.capitalize()} GPU"
        return f"its {what} (compute capability {chip.capability})"


@dataclass(frozen=True)
class StackCase:
    """What every decision is made from. month: this one, as 2026-11. kept: the nodes that keep a driver that works."""

    table: VersionsTable
    request: StackRequest
    nodes: tuple[StackNode, ...]
    month: str
    kept: frozenset[str] = frozenset()

    @property
    def managed(self) -> tuple[StackNode, ...]:
        return tuple(node for node in self.nodes if node.seen.managed)

    @property
    def given(self) -> tuple[StackNode, ...]:
        """The nodes that are given a driver, whatever they have."""
        return tuple(node for node in self.managed if node.name not in self.kept)


def nodes_with_gpus(
    table: VersionsTable, everybody: Sequence[StackNodeFacts]
) -> tuple[tuple[StackNode, ...], list[Refusal]]:
    """Return the nodes with GPUs, and what has to be said of those that no row fits."""
    nodes, refusals = [], []
    for seen in everybody:
        if not seen.has_gpus:
            continue
        system = table.systems.get(seen.system)
        if system is None:
            what = seen.system or "an unknown system"
            known = ", ".join(table.systems)
            refusals.append(
                Refusal(seen.node, f"no driver is known for {what}", f"Install one of {known}, or leave the node out")
            )
            continue
        chips, unknown = _chips(table, seen)
        refusals += unknown
        nodes.append(StackNode(seen, system, chips))
    return tuple(nodes), refusals


def _chips(table: VersionsTable, seen: StackNodeFacts) -> tuple[tuple[Chip, ...], list[Refusal]]:
    """Return the kinds of GPU of a node: what is on the bus, and the declared model where that is not known."""
    declared = table.chip_of_model(seen.model) if seen.model else None
    if not seen.gpus:
        if declared is not None:
            return (declared,), []
        if seen.model:
            why, fix = (
                f"cluster_gpu_model {seen.model} is in no row of the table",
                "Write it like H100, L40S or RTX 4090",
            )
        else:
            why, fix = (
                "which GPUs it has is not known before it is looked at",
                "Set cluster_gpu_model, for example to H100",
            )
        return (), [Refusal(seen.node, why, fix)]
    chips: dict[str, Chip] = {}
    refusals = []
    for pci_id in dict.fromkeys(seen.gpus):
        chip = table.chip_of_id(pci_id) or declared
        if chip is None:
            fix = "Set cluster_gpu_model to what it resembles"
            refusals.append(Refusal(seen.node, f"its GPU {pci_id} is in no row of the table", fix))
        else:
            chips[chip.capability] = chip
    return tuple(chips.values()), refusals
