"""Records signals without acting on them, because the processes of a launch must be stopped before the supervisor
ends."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Any

from muster.launch.endings import Ending
from muster.launch.watch import Decision

if TYPE_CHECKING:
    from types import TracebackType

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interruption:
    """While the context is active, records that the user interrupted the run, or that ansible-playbook has ended."""

    def __init__(self, by_hand: str = "ansible-playbook was interrupted") -> None:
        """by_hand: the reason in the decision that follows a signal."""
        self.by_hand = by_hand
        self.entered = 0  # nesting level: the loop over attempts, and each attempt
        self.signals = 0
        self.answered = 0  # number of signals already handled
        self.parent = os.getppid()
        self.previous: dict[signal.Signals, Any] = {}

    def __enter__(self) -> None:
        self.entered += 1
        if self.entered == 1:
            self.previous = {number: signal.signal(number, self.on_signal) for number in SIGNALS}

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, at: TracebackType | None) -> None:
        self.entered -= 1
        for number, handler in self.previous.items() if not self.entered else ():
            signal.signal(number, handler)

    def on_signal(self, _number: int, _frame: Any) -> None:
        self.signals += 1

    @property
    def came(self) -> bool:
        """Return whether a signal was received, or whether ansible-playbook was killed while this process continues."""
        return self.signals > 0 or os.getppid() != self.parent

    @property
    def again(self) -> bool:
        """Return whether another signal was received since the last call."""
        more = self.signals > self.answered
        self.answered = self.signals
        return more

    def decision(self) -> Decision:
        by_hand = self.signals > 0
        return Decision(Ending.INTERRUPTED, self.by_hand if by_hand else "ansible-playbook was killed", by_hand=by_hand)
