"""Signals that are noted instead of obeyed: what a launch began must be ended everywhere before its supervisor ends."""

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
    """Notes, while it is entered, that somebody asked to stop, or that ansible-playbook itself is gone."""

    def __init__(self) -> None:
        self.signals = 0
        self.answered = 0  # of the signals
        self.parent = os.getppid()
        self.previous: dict[signal.Signals, Any] = {}

    def __enter__(self) -> None:
        self.previous = {number: signal.signal(number, self.on_signal) for number in SIGNALS}

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, at: TracebackType | None) -> None:
        for number, handler in self.previous.items():
            signal.signal(number, handler)

    def on_signal(self, _number: int, _frame: Any) -> None:
        self.signals += 1

    @property
    def came(self) -> bool:
        """A killed ansible-playbook leaves this process behind, and nobody reads the result any more."""
        return self.signals > 0 or os.getppid() != self.parent

    @property
    def again(self) -> bool:
        """Whether somebody has asked since this was read last."""
        more = self.signals > self.answered
        self.answered = self.signals
        return more

    def decision(self) -> Decision:
        how = "interrupted" if self.signals else "killed"
        return Decision(Ending.INTERRUPTED, f"ansible-playbook was {how}", by_hand=self.signals > 0)
