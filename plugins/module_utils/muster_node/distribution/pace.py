"""When a node goes past the one that it takes from, because that is slow: pure, so that it is tried with many nodes.

With each piece a node hears how far its giver is, how far the one above the giver is, and how often the giver has
changed to another one. What counts is not how far behind somebody is, but whether the distance has grown since.
"""

from __future__ import annotations

LEAST = 24  # pieces: more than are asked for ahead
SHARE = 16  # of the whole: by so much one may fall behind


class TransferPace:
    """Of one node. count: pieces of the whole."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.bound = max(LEAST, count // SHARE)
        self.went_past = False  # because this node fell behind: once, for that may be its own fault
        self.begin()

    def begin(self) -> None:
        """It takes from another giver from now on."""
        self.behind = self.giver_behind = 2**63
        self.turn = -1

    def too_slow(self, own: int, giver: int, above: int, turn: int) -> bool:
        """Whether to take from the one above. All but turn in pieces. Who is nearest to what is slow moves first."""
        if turn != self.turn:
            self.turn, self.giver_behind = turn, 2**63
        self.behind = min(self.behind, giver - own)
        self.giver_behind = min(self.giver_behind, above - giver)
        # Nobody goes past the first of its line to the one that had all of it: a node that cannot receive faster would
        # take half of what all others live on.
        if above < self.count and not self.went_past and giver - own - self.behind > self.bound:
            self.went_past = True
            return True
        return above - giver - self.giver_behind > 2 * self.bound
