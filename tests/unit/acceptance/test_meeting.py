"""Synchronization of the acceptance test's ranks after each stage. A dictionary replaces the distributed store."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

from payload_parts import part

if TYPE_CHECKING:
    from datetime import timedelta


class Store(dict[str, bytes]):
    """The part of torch.distributed.Store that payload/meeting.py uses."""

    def set(self, key: str, value: str) -> None:
        self[key] = value.encode()

    def check(self, keys: list[str]) -> bool:
        return all(key in self for key in keys)

    def wait(self, keys: list[str], limit: timedelta) -> None:
        until = time.monotonic() + limit.total_seconds()
        while not self.check(keys):
            if time.monotonic() > until:
                raise RuntimeError("wait timeout")
            time.sleep(0.01)


meeting = part("meeting")
meeting.WAIT_SECONDS = 0.05


def ended(**statuses: str) -> Any:
    """Return the meeting of rank 0 after the stage `world`. statuses: one per rank; "" stands for a rank that did not
    report."""
    ranks = list(statuses.values())
    store = Store()
    for rank, status in enumerate(ranks):
        if status:
            meeting.Meeting(store, rank, len(ranks)).tell("world", {"stage": "world", "status": status})
    return meeting.Meeting(store, 0, len(ranks))


@pytest.mark.parametrize(
    ("statuses", "together"),
    [
        ({"a": "ok", "b": "ok"}, True),
        ({"a": "ok", "b": "wrong"}, True),
        ({"a": "skipped", "b": "skipped"}, True),
        ({"a": "ok", "b": "skipped"}, False),
        ({"a": "ok", "b": "failed"}, False),
        ({"a": "timeout", "b": "lost"}, False),
        ({"a": "ok", "b": ""}, False),
    ],
)
def test_ranks_continue_together_when_their_outcomes_match(statuses: dict[str, str], together: bool) -> None:
    assert ended(**statuses).together("world", 0.0) is together


def test_ranks_wait_for_an_absent_rank_only_once() -> None:
    here = ended(a="ok", b="")
    with pytest.raises(meeting.AbsentError, match="rank 1 did not come to the process group"):
        here.gather("device", 0.05)
    meeting.Meeting(here.store, 1, 2).store.set("acceptance/here/collectives/1", "")
    began = time.monotonic()
    with pytest.raises(meeting.AbsentError):
        here.gather("collectives", 60.0)
    assert time.monotonic() - began < 30


def test_ranks_do_not_wait_for_a_rank_lost_in_the_same_stage() -> None:
    here = ended(a="ok", b="ok")
    peer = meeting.Meeting(here.store, 1, 2)
    peer.tell("device", {"stage": "device", "status": "lost"})
    began = time.monotonic()
    with pytest.raises(meeting.AbsentError) as told:
        here.gather("device", 60.0)
    assert told.value.ranks == [1]
    assert time.monotonic() - began < 30
    peer.store.set("acceptance/here/collectives/1", "")
    here.gather("collectives", 60.0)


def test_reports_are_visible_to_all_ranks() -> None:
    assert ended(a="ok", b="wrong").reports(["world", "device"]) == {
        0: {"world": {"stage": "world", "status": "ok"}},
        1: {"world": {"stage": "world", "status": "wrong"}},
    }


def test_status_table_names_the_failed_ranks() -> None:
    reports = {
        0: {
            "world": {"status": "ok", "seconds": 0.1, "facts": {}},
            "train": {"status": "ok", "seconds": 3.0, "facts": {"samples_per_second": 10.0}},
            "device": {"status": "ok", "seconds": 1.0, "facts": {"gemm_tflops": 2.0}},
        },
        1: {
            "world": {"status": "ok", "seconds": 0.2, "facts": {}},
            "train": {"status": "ok", "seconds": 3.1, "facts": {"samples_per_second": 12.0}},
            "device": {"status": "lost", "seconds": 0.5, "why": "its process was ended by SIGKILL", "facts": {}},
        },
    }
    assert part("table").table(["world", "device", "train", "soak"], reports).splitlines() == [
        "stage        result   seconds  number, or place and reason",
        "world        ok           0.2",
        "device       lost         1.0  rank 1: its process was ended by SIGKILL",
        "train        ok           3.1  22 samples/s",
        "soak         lost         0.0  rank 0, 1: it said nothing",
    ]
