"""Signals that come while a launch has a supervisor."""

from __future__ import annotations

import os
import signal

import pytest

from muster.launch.endings import Ending
from muster_controller.playbook.interruption import SIGNALS, Interruption


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_is_noted_and_not_obeyed(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    interruption = Interruption()
    with interruption:
        calm = interruption.came
        os.kill(os.getpid(), number)
        assert (calm, interruption.came) == (False, True)
    assert signal.getsignal(number) == before
    decision = interruption.decision()
    assert (decision.ending, decision.text) == (Ending.INTERRUPTED, "ansible-playbook was interrupted")


def test_of_several_attempts_each_knows_what_came_before_it() -> None:
    before = signal.getsignal(signal.SIGTERM)
    interruption = Interruption("ended by hand")
    with interruption:
        with interruption:
            """One attempt, and the time behind it."""
        os.kill(os.getpid(), signal.SIGTERM)
        with interruption:
            assert interruption.came
    assert signal.getsignal(signal.SIGTERM) == before
    assert interruption.decision().text == "ended by hand"


def test_without_its_parent_nobody_reads_the_result() -> None:
    interruption = Interruption()
    interruption.parent = 0
    assert interruption.came
    assert interruption.decision().text == "ansible-playbook was killed"
