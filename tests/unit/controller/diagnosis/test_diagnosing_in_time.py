"""Time limits of a diagnosis with many or silent nodes. The clock and the nodes are simulated: each node answers after
a delay or never."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from launch_shapes import a_plan
from muster.diagnosis.causes import CAUSES
from muster.diagnosis.decide import decide
from muster.diagnosis.launched import MOST_INVOLVED, Gathered
from muster.diagnosis.words import diagnosis
from muster.launch.endings import Ending
from muster_controller.diagnosis import afterwards, site_questions
from muster_controller.diagnosis.afterwards import Afterwards
from muster_controller.launch import snapshots
from muster_controller.nodes.messages import NodeReply
from sparse import case_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

PROMISED = 20.0  # seconds from the end of a launch to its diagnosis
DECIDING = 5.0  # of them, for reading, deciding and writing
SNAPSHOT = 3.0  # seconds before the launch is stopped


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


class SlowNodes:
    """Simulated nodes. seconds: returns the delay of a node's answers, or None if the node never answers."""

    def __init__(self, clock: Clock, seconds: Callable[[str], float | None]) -> None:
        self.clock = clock
        self.seconds = seconds
        self.due: dict[tuple[str, str], float] = {}
        self.asked: list[tuple[str, str]] = []

    def ask(self, node: str, verb: str, _payload: dict[str, Any], **_how: Any) -> None:
        self.asked.append((node, verb))
        wait = self.seconds(node)
        if wait is not None:
            self.due[node, verb] = self.clock.now + wait

    def gather(
        self,
        verb: str,
        nodes: Collection[str],
        timeout: float,
        _on_other: Callable[[NodeReply], None],
        give_up: Callable[[], bool] = lambda: False,
    ) -> dict[str, NodeReply]:
        found: dict[str, NodeReply] = {}
        deadline = self.clock.now + timeout
        while len(found) < len(nodes) and self.clock.now < deadline and not give_up():
            self.clock.now += 0.2
            for name in nodes:
                if self.due.get((name, verb), float("inf")) <= self.clock.now:
                    found[name] = NodeReply(name, verb, 0.0, 1.0, said(verb, name))
        return found

    def open(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


def said(verb: str, name: str) -> dict[str, Any]:
    number = int(name.removeprefix("node"))
    if verb == "serve":
        port = 29500 if number == 1 else None
        return {"pid": 7, "started": 9, "port": port, "holder": "", "ephemeral": [40000 + number], "interfaces": {}}
    return {"links": {}, "answers": {}}


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    for module in (afterwards, site_questions, snapshots):
        monkeypatch.setattr(module, "time", clock)
    return clock


ALL_SILENT, QUICK, SLOW = (lambda _: None), (lambda _: 1.0), (lambda _: 4.0)


def one_silent(name: str) -> float | None:
    return None if name == "node2" else 1.0


@pytest.mark.parametrize("nodes", [2, 3, 64])
@pytest.mark.parametrize("seconds", [ALL_SILENT, QUICK, SLOW, one_silent])
@pytest.mark.parametrize("lost", [(), ("node2",)])
def test_checks_after_a_failure_end_in_time(
    clock: Clock, nodes: int, seconds: Callable[[str], float | None], lost: tuple[str, ...]
) -> None:
    began = clock.now
    messages: Any = SlowNodes(clock, seconds)
    asked = [f"node{number}" for number in range(1, nodes + 1)][:MOST_INVOLVED]
    gathered = Gathered()
    looks = Afterwards(a_plan(nodes), asked, messages, lambda: False, dict.fromkeys(lost, "gone"))
    looks.look(gathered, live=False)
    assert clock.now - began <= PROMISED - DECIDING + 3.5
    assert {name for name, _ in messages.asked} <= set(asked)


@pytest.mark.parametrize("nodes", [3, 64])
def test_silent_node_does_not_delay_other_nodes(clock: Clock, nodes: int) -> None:
    messages: Any = SlowNodes(clock, one_silent)
    asked = [f"node{number}" for number in range(1, nodes + 1)][:MOST_INVOLVED]
    looks = Afterwards(a_plan(nodes), asked, messages, lambda: False, {})
    gathered = Gathered()
    looks.look(gathered, live=False)
    assert {name for name, verb in messages.asked if verb == "links"} == set(asked) - {"node2"}
    assert "node2" in gathered.not_looked


@pytest.mark.parametrize("seconds", [ALL_SILENT, QUICK, one_silent])
def test_snapshots_before_the_stop_end_in_time(clock: Clock, seconds: Callable[[str], float | None]) -> None:
    evidence: Any = SimpleNamespace(
        snapshot_request=lambda *_: {}, silent={}, note=lambda _: None, take=lambda *_: None
    )
    messages: Any = SlowNodes(clock, seconds)
    shots = snapshots.Snapshots({}, messages, evidence)
    shots.messages = messages
    decision: Any = SimpleNamespace(ending=Ending.FAILED, node="")
    began = clock.now
    shots.ask(a_plan(64), decision)
    shots.gather(lambda: False)
    assert clock.now - began <= SNAPSHOT + 0.3


def test_diagnosis_of_512_ranks_on_64_nodes_ends_in_time() -> None:
    """CPU time is measured, because the machine that runs the test might be busy."""
    victim = (
        'Traceback (most recent call last):\n  File "/srv/train.py", line 9, in main\n    dist.all_reduce(value)\n'
        "RuntimeError: [/gloo/transport/tcp/pair.cc:547] Connection closed by peer [10.0.0.9]:{rank}\n"
    )

    def words(rank: int) -> str:
        return "".join(f"[rank{rank}]: step {step} of {rank}\n" for step in range(150)) + victim.format(rank=rank)

    names = [f"node{number}" for number in range(1, 65)]
    ranks = {rank: {"code": 1, "gone_at": 150.0 + rank / 1000, "stderr": words(rank)} for rank in range(512)}
    shots = {
        name: {"ranks": [{"rank": 8 * place + local, "local_rank": local} for local in range(8)]}
        for place, name in enumerate(names)
    }
    case = case_of({"participants": names, "ranks_per_node": 8, "ranks": ranks, "snapshots": shots})
    began = time.process_time()
    decided = decide(case, CAUSES)
    assert diagnosis(case, decided)["word"] == "unknown"
    assert time.process_time() - began < DECIDING


def test_interrupted_checks_are_reported(clock: Clock) -> None:
    interrupted = False
    messages: Any = SlowNodes(clock, QUICK)
    looks = Afterwards(a_plan(2), ["node1", "node2"], messages, lambda: interrupted, {})
    probe: Any = SimpleNamespace(why={"node2": "it did not answer"})
    assert looks.unanswered(probe) == {"node2": "it did not answer"}
    interrupted = True
    assert looks.unanswered(probe) == {"node2": "the checks were interrupted"}
