"""Signals that the controller receives while it supervises a launch."""

from __future__ import annotations

import os
import signal

import pytest

from muster.launch.endings import Ending
from muster_controller.playbook.interruption import SIGNALS, Interruption


@pytest.mark.parametrize("number", SIGNALS)
def test_signal_is_recorded_and_does_not_end_the_process(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    interruption = Interruption()
    with interruption:
        calm = interruption.came
        os.kill(os.getpid(), number)
        assert (calm, interruption.came) == (False, True)
    assert signal.getsignal(number) == before
    decision = interruption.decision()
    assert (decision.ending, decision.text) == (Ending.INTERRUPTED, "ansible-playbook was interrupted")


def test_later_attempt_detects_an_earlier_signal() -> None:
    before = signal.getsignal(signal.SIGTERM)
    interruption = Interruption("ended by hand")
    with interruption:
        with interruption:
            """The first attempt."""
        os.kill(os.getpid(), signal.SIGTERM)
        with interruption:
            assert interruption.came
    assert signal.getsignal(signal.SIGTERM) == before
    assert interruption.decision().text == "ended by hand"


def test_missing_parent_process_counts_as_interruption() -> None:
    interruption = Interruption()
    interruption.parent = 0
    assert interruption.came
    assert interruption.decision().text == "ansible-playbook was killed"
