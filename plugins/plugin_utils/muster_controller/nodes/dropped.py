"""Counts the packets of a probe that did not get through to a node, for muster/net_probe/sides.py."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from muster.net_probe.links import Drops
from muster.verdict.reading import read_one

from .program import NodeProgram

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from .messages import Messages

LISTENER = NodeProgram("probe_listener")
SECONDS = 5.0


def count(
    messages: Messages,
    served: Mapping[str, dict[str, Any]],
    called: Mapping[str, Mapping[str, Any]],
    give_up: Callable[[], bool] = lambda: False,
) -> None:
    """Add the counts to the results of `serve`, while the nodes still listen. called: the results of the callers."""
    if not any(link.get("knocks") for answer in called.values() for link in answer["links"].values()):
        return
    for name, one in served.items():
        ports = [*(port for port in (one["port"], one.get("beats")) if port), *one["ephemeral"]]
        messages.ask(name, "count", {"ports": ports}, program=LISTENER)
    for name, reply in messages.gather("count", list(served), SECONDS, lambda _: None, give_up).items():
        before, after = served[name].get("filtered"), read_one(Drops, reply.data)
        if before is not None and after is not None and after["filtered"] is not None:
            served[name]["drops"] = {**after, "filtered": after["filtered"] - before}
