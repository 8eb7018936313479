"""How often a supervisor looks at its nodes, and how long one may be silent: the more nodes, the more slowly."""

from __future__ import annotations

from dataclasses import dataclass

LOOK_BYTES = 16 * 1024 * 1024  # of logs, in one look at every node


@dataclass(frozen=True)
class Pace:
    """Seconds, but for look_bytes.

    wait: a look returns at once when there is news, else after this long. pause: between two looks at one node.
    look_bytes: of logs, in one look. notice: a node that has not answered for this long is spoken of. patience: after
    this long the launch is ended without it. lease: what a node goes on without having been looked at; longer than
    patience, so that its peers are ended before the silent node's own lease ends what runs there.
    """

    wait: float
    pause: float
    look_bytes: int
    notice: float
    patience: float
    lease: float


def pace(nodes: int, silence_timeout: float = 0.0) -> Pace:
    """That of a launch on so many nodes: at most some 80 looks a second. silence_timeout: the requested patience, 0
    for the least."""
    wait = min(max(2.0, nodes / 80), 4.0)
    pause = min(max(0.25, nodes / 80), 4.0)
    patience = max(9.0, wait + pause + 6.75, silence_timeout)
    return Pace(
        wait=wait,
        pause=pause,
        look_bytes=min(max(LOOK_BYTES // max(nodes, 1), 32 * 1024), 512 * 1024),
        notice=max(wait + pause + 2.75, patience * 5 / 9),
        patience=patience,
        lease=patience + 2.0,
    )
