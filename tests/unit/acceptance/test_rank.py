"""The main process of a rank, with bash scripts as workers."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from payload_parts import part

if TYPE_CHECKING:
    from collections.abc import Callable

    Report = dict[str, Any]

rank, stages = part("rank"), part("stages")
BEGIN = 'echo \'{"is": "begin", "seconds": 30}\' >&3'


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], list[Report]]:
    """Return a function that runs a worker (a shell script with the pipe as descriptor 3) and returns its reports."""
    monkeypatch.setenv("LOCAL_RANK", "1")
    monkeypatch.setattr(rank, "LOOK_SECONDS", 0.1)

    def hear(script: str) -> list[Report]:
        worker = rank.Worker(stages.chosen("quick", "world"), None)
        reading, writing = os.pipe()
        process = subprocess.Popen(["bash", "-c", f"exec 3>&{writing}; {script}"], pass_fds=[writing])
        os.close(writing)
        try:
            return list(worker.listen(process, reading))
        finally:
            os.close(reading)
            rank.end(process)

    return hear


def test_killed_worker_is_reported_with_its_signal(heard: Callable[[str], list[Report]]) -> None:
    [report] = heard(f"{BEGIN}; kill -9 $$")
    assert (report["stage"], report["status"]) == ("world", "lost")
    assert report["why"] == "its process was ended by SIGKILL (at its beginning)"


def test_unnamed_signal_is_reported_by_number(heard: Callable[[str], list[Report]]) -> None:
    [report] = heard(f"{BEGIN}; kill -40 $$")
    assert report["why"] == "its process was ended by signal 40 (at its beginning)"


def test_dead_worker_is_lost_even_if_a_child_holds_the_pipe(heard: Callable[[str], list[Report]]) -> None:
    [report] = heard(f"{BEGIN}; sleep 20 & exit 3")
    assert (report["status"], report["why"]) == ("lost", "its process ended with 3 (at its beginning)")


def test_stopped_worker_is_reported_before_its_timeout(heard: Callable[[str], list[Report]]) -> None:
    [report] = heard(f"{BEGIN}; kill -STOP $$")
    assert (report["status"], report["facts"]["state"]) == ("timeout", "T")
    assert report["why"] == "did not go on, stopped by a signal (at its beginning)"


def test_worker_that_exits_normally_is_not_reported(heard: Callable[[str], list[Report]]) -> None:
    assert heard(f"{BEGIN}; exit 0") == []


def test_invalid_messages_are_ignored(heard: Callable[[str], list[Report]]) -> None:
    assert heard("echo '[1]' >&3; echo '{' >&3; echo '{\"is\": \"other\"}' >&3; exit 0") == []
