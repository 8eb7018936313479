"""What is said when a node is claimed by another administrator's run."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

from ..verdict.commands import again
from ..verdict.printable import printable
from ..verdict.words import few

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

LEASE = 60  # seconds that a node keeps the claim of a run that it does not hear of
MOST_TEXT = 120  # characters of what a node says of a holder


def changing(holders: Mapping[str, Any]) -> str:
    """Return a sentence for each run that claims nodes. holders: of each node, as the node says it."""
    nodes, began = defaultdict(list), defaultdict(list)
    for node, holder in holders.items():
        who, doing, since = _words(holder)
        nodes[who, doing].append(node)
        began[who, doing].append(since)
    return " ".join(
        f"{few(names)}: {run[0]} is changing {'it' if len(names) == 1 else 'them'} since {min(began[run])} ({run[1]})."
        for run, names in nodes.items()
    )


def refusal(holders: Mapping[str, Any], *, begun: bool) -> str:
    """Why a run does not go on. begun: an earlier step of it has claimed other nodes."""
    said = "Nothing was changed there." if begun else "Nothing was changed."
    end = f"Wait until that run has ended; once its last process is gone, its claim ends by itself within {LEASE} s."
    return f"{changing(holders)} {said} {end} To take it over at once: {again(cluster_take_over='true')}"


def loss(holders: Mapping[str, Any]) -> str:
    """Why a run does not go on that had the claim of these nodes, and may have changed something."""
    cause = f"It took this run's claim over, by cluster_take_over or because this one was not heard of for {LEASE} s."
    return f"{changing(holders)} {cause} What this run has changed stays; run it again when that one has ended."


def _words(holder: Any) -> Iterator[str]:
    for name in ("who", "doing", "since"):
        said = str(holder.get(name, "")) if isinstance(holder, dict) else ""
        yield " ".join(printable(said[:MOST_TEXT]).split()) or "unknown"
