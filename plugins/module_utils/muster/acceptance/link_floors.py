"""What links of a GPU model reach at other sites, from gpu_rates.yml. A lower rate is a warning, never a failure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

PEER, FABRIC = "peer", "fabric"


class LinkFloor(NamedTuple):
    """gbps: GB/s. source: a URL. causes: [{from, to, text}], known causes of rates in a range."""

    gbps: float
    source: str
    causes: Sequence[Mapping[str, Any]] = ()

    @property
    def basis(self) -> str:
        return f"at least {self.gbps:g} GB/s, which other sites reach ({self.source})"

    def known_causes(self, rate: float) -> str:
        """Return the causes that produce such a rate; "" if none is known. The rate alone confirms none of them."""
        found = [str(cause["text"]) for cause in self.causes if cause["from"] <= rate <= cause["to"]]
        return f"Known causes of this rate, not confirmed: {'; '.join(found)}" if found else ""


def link_floor(table: Mapping[str, Any], what: str, model: str, ranks: int = 0) -> LinkFloor | None:
    """Return the floor of a link. model: without the vendor. ranks: GPUs per node of the launch, for FABRIC."""
    rows = [
        (begin, row)
        for row in table.get("links", [])
        for begin in row["names"]
        if row["what"] == what and row.get("ranks", 0) == ranks and f"{model} ".startswith(f"{begin} ")
    ]
    if not rows or " MIG " in model:
        return None
    _, row = max(rows, key=lambda found: len(found[0]))
    return LinkFloor(row["gbps"], row["source"], row.get("causes", ()))
