"""Looks at the nodes of a launch that has failed or hangs, for its diagnosis: all side by side, and never for long.

They change nothing and end nothing. What has not answered when their time is over was not looked at, with the reason.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from muster.net_probe import before_launch

from .link_probe import probed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from muster.diagnosis.launched import Gathered

    from .link_probe import LinkProbe
    from .messages import Messages

SECONDS = 13.0  # for all looks together; ending them, deciding and showing have the rest of twenty
LOST = "it stopped answering, and was not asked afterwards"


class Afterwards:
    """The looks at some nodes of one launch."""

    def __init__(
        self,
        plan: Mapping[str, Any],
        nodes: Sequence[str],
        messages: Messages,
        give_up: Callable[[], bool],
        lost: Mapping[str, str],
        seconds: float = SECONDS,
    ) -> None:
        """lost: nodes that do not answer, and why."""
        self.plan = plan
        self.nodes = nodes
        self.messages = messages
        self.lost = lost
        self.until = time.monotonic() + seconds
        self.interrupted = give_up

    def give_up(self) -> bool:
        return self.interrupted() or time.monotonic() > self.until

    def look(self, gathered: Gathered, *, live: bool) -> None:
        """live: whether ranks hold the ports still."""
        gathered.not_looked.update({name: why or LOST for name, why in self.lost.items() if name in self.nodes})
        others = (entry["node"] for entry in self.plan["nodes"] if entry["node"] not in self.nodes)
        gathered.not_looked.update(dict.fromkeys(others, "only those that were involved first are asked afterwards"))
        self.links(gathered, live=live)

    def links(self, gathered: Gathered, *, live: bool) -> None:
        """Have them call each other, under the launch's own addresses and port."""
        there = [one for one in self.plan["nodes"] if one["node"] in self.nodes and one["node"] not in self.lost]
        if len(there) < 2 or self.give_up():
            return
        plan = {**self.plan, "nodes": [{**one, "node_rank": -1} for one in there] if live else there}
        probe = probed(plan, self.messages, self.give_up)
        gathered.findings += [one.as_dict() for one in before_launch.concluded(plan, probe.served, probe.called)]
        for name, ids in before_launch.looked_for(plan, probe.served, probe.called).items():
            gathered.ran.setdefault(name, []).extend(ids)
        gathered.not_looked.update(self.unanswered(probe))

    def unanswered(self, probe: LinkProbe) -> dict[str, str]:
        if self.interrupted():
            return dict.fromkeys(probe.why, "somebody interrupted the looks")
        return dict(probe.why)
