"""Find the nodes with GPUs, and the rows of the compatibility table that apply to each node."""

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
    """A node with GPUs: its facts, and the rows of the compatibility table that apply to it."""

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
        """The branch of the installed driver; 0 for none."""
        return int(self.seen.driver.partition(".")[0] or 0)

    @property
    def only_open(self) -> Chip | None:
        """Return a GPU that requires open kernel modules, if any."""
        return next((chip for chip in self.chips if chip.architecture.open == "must" or chip.grace), None)

    @property
    def only_proprietary(self) -> Chip | None:
        """Return a GPU that requires proprietary kernel modules, if any."""
        return next((chip for chip in self.chips if chip.architecture.open == "no"), None)

    @property
    def locked(self) -> bool:
        """Whether the kernel loads only modules signed with an enrolled key, and the key of dkms is not enrolled."""
        return bool(self.seen.secure_boot) and not self.seen.key_enrolled

    @property
    def has_fabric(self) -> bool:
        """Whether the node has NVSwitches.

        On NVLink 5 boards with 8 GPUs they are behind network adapters instead of on the bus.
        """
        board = any(chip.nvlink5 and not chip.grace for chip in self.chips) and not self.seen.virtual
        return bool(self.seen.nvswitches) or (board and max(self.seen.gpu_count, len(self.seen.gpus)) >= 8)

    def gpu(self, chip: Chip) -> str:
        what = self.seen.model or f"{chip.architecture.name.capitalize()} GPU"
        return f"the {what} (compute capability {chip.capability})"


@dataclass(frozen=True)
class StackCase:
    """The data on which all decisions are based.

    month: the current month, such as 2026-11. kept: nodes that keep a working driver.
    """

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
        """The nodes on which a driver will be installed."""
        return tuple(node for node in self.managed if node.name not in self.kept)


def nodes_with_gpus(
    table: VersionsTable, everybody: Sequence[StackNodeFacts]
) -> tuple[tuple[StackNode, ...], list[Refusal]]:
    """Return the nodes with GPUs, and a refusal for each node with no row in the table."""
    nodes, refusals = [], []
    for seen in everybody:
        if not seen.has_gpus:
            continue
        system = table.systems.get(seen.system)
        if system is None:
            what = seen.system or "an unknown system"
            known = ", ".join(table.systems)
            refusals.append(
                Refusal(
                    seen.node,
                    f"no driver is known for {what}",
                    f"Install one of {known}, or remove the node from the inventory",
                )
            )
            continue
        chips, unknown = _chips(table, seen)
        refusals += unknown
        nodes.append(StackNode(seen, system, chips))
    return tuple(nodes), refusals


def _chips(table: VersionsTable, seen: StackNodeFacts) -> tuple[tuple[Chip, ...], list[Refusal]]:
    """Return the GPU chips of a node: those on the bus or, if the bus is unknown, those of the declared model."""
    declared = table.chip_of_model(seen.model) if seen.model else None
    if not seen.gpus:
        if declared is not None:
            return (declared,), []
        if seen.model:
            why, fix = (
                f"cluster_gpu_model {seen.model} is not in the table of versions",
                "Use a model name such as H100, L40S or RTX 4090",
            )
        else:
            why, fix = (
                "the node was not inspected yet, so its GPU model is unknown",
                "Set cluster_gpu_model, for example to H100",
            )
        return (), [Refusal(seen.node, why, fix)]
    chips: dict[str, Chip] = {}
    refusals = []
    for pci_id in dict.fromkeys(seen.gpus):
        chip = table.chip_of_id(pci_id) or declared
        if chip is None:
            fix = "Set cluster_gpu_model to a similar model"
            refusals.append(Refusal(seen.node, f"the GPU {pci_id} is not in the table of versions", fix))
        else:
            chips[chip.capability] = chip
    return tuple(chips.values()), refusals
