"""Messages for nodes that another administrator's run has claimed."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

from ..verdict.commands import again
from ..verdict.printable import printable
from ..verdict.words import few

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

LEASE = 60  # seconds for which a node keeps a claim without renewal
MOST_TEXT = 120  # characters of a holder's fields


def changing(holders: Mapping[str, Any]) -> str:
    """Return a sentence about each run that has claimed nodes. holders: for each node, the run that holds its claim."""
    nodes, began = defaultdict(list), defaultdict(list)
    for node, holder in holders.items():
        who, doing, since = _words(holder)
        nodes[who, doing].append(node)
        began[who, doing].append(since)
    return " ".join(
        f"{few(names)}: claimed by {run[0]} since {min(began[run])} ({run[1]})." for run, names in nodes.items()
    )


def refusal(holders: Mapping[str, Any], *, begun: bool) -> str:
    """Return why a run stops before it changes these nodes.

    begun: whether an earlier step of the run has claimed other nodes.
    """
    said = "Nothing was changed on these nodes." if begun else "Nothing was changed."
    end = f"Wait until that run has finished. If it was killed, its claim expires after {LEASE} s."
    return f"{changing(holders)} {said} {end} To take over the claim now: {again(cluster_take_over='true')}"


def loss(holders: Mapping[str, Any]) -> str:
    """Return why a run stops after it lost its claim on these nodes. The run may have changed something."""
    cause = f"It took over this run's claim with cluster_take_over, or because this run did not renew it for {LEASE} s."
    return f"{changing(holders)} {cause} This run's changes remain. Run it again after the other run has finished."


def _words(holder: Any) -> Iterator[str]:
    for name in ("who", "doing", "since"):
        said = str(holder.get(name, "")) if isinstance(holder, dict) else ""
        yield " ".join(printable(said[:MOST_TEXT]).split()) or "unknown"
