"""Rank processes of the acceptance test are killed and stopped from outside."""

from __future__ import annotations

import os
import signal
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from drill import all_pids, environ, read_proc
from waiting import PATIENCE, until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from acceptance_runs import Run


def worker(rank: int, first: str, mark: str) -> int | None:
    """Return the pid of a rank's worker that starts with this stage. mark: step count that identifies the launch."""
    for pid in all_pids():
        words = read_proc(pid, "cmdline").split("\0")
        if f"--first={first}" in words and f"--steps={mark}" in words and environ(pid).get("RANK") == str(rank):
            return pid
    return None


def hit(rank: int, first: str, number: signal.Signals, mark: str) -> None:
    until(lambda: worker(rank, first, mark) is not None, PATIENCE, "the worker starts")
    pid = worker(rank, first, mark)
    assert pid is not None  # the worker lives at least until torch is imported
    os.kill(pid, number)


@pytest.mark.moment
def test_killed_or_stopped_rank_fails_only_the_current_stage(smoke: Callable[..., Run], tmp_path: Path) -> None:
    mark = str(os.getpid() * 1000 + int(tmp_path.stat().st_ino) % 1000)
    with ThreadPoolExecutor() as pool:
        run = pool.submit(smoke, "world,device,collectives,sampling", ddp_smoke_steps=int(mark))
        # The worker has started and cannot finish its first stage.
        hit(3, "world", signal.SIGKILL, mark)
        # All ranks start new workers then.
        hit(1, "device", signal.SIGSTOP, mark)
        result, measured, verdict = run.result()
    assert result.rc != 0
    bad = [one for one in verdict["findings"] if one["id"] == "smoke.stage" and one["status"] == "fail"]
    assert [one["node"] for one in bad] == ["node2", "node1"]
    assert bad[0]["summary"].startswith(
        "rank 3 (node2, local rank 1): the stage world was lost: its process was ended by SIGKILL"
    )
    assert bad[1]["summary"].startswith(
        "rank 1 (node1, local rank 1): the stage device did not go on, stopped by a signal"
    )
    assert all(
        rank["stages"][stage]["status"] == "ok" for rank in measured["ranks"] for stage in ("collectives", "sampling")
    )
    assert not [pid for pid in all_pids() if f"--steps={mark}" in read_proc(pid, "cmdline").split("\0")]
