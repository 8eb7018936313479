"""Detection of stalled launches.

Every file in cases/standing describes a launch on two nodes with two ranks each, sampled every 30 s for `minutes`. The
case lists each rank's activity between samples (DOES, or fields of a Sample), and the expected notices with their
minute.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cases import cases
from muster.launch.standing import Standing, interval

if TYPE_CHECKING:
    from muster.launch.messages import Sample, Samples

NODES = {"node1": [0, 1], "node2": [2, 3]}
IN_COLLECTIVE = [
    '  File "/env/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py", line 3009 in all_reduce',
    '  File "/srv/train.py", line 12 in train',
]
ELSEWHERE = ['  File "/srv/train.py", line 40 in load', '  File "/srv/train.py", line 11 in train']
# Per half minute: seconds of CPU time, context switches, collectives; and the rank's stack.
DOES: dict[str, tuple[float, int, int, list[str]]] = {
    "trains": (29.0, 900, 300, ELSEWHERE),
    "waits": (0.0, 0, 0, IN_COLLECTIVE),
    "spins": (30.0, 40, 0, IN_COLLECTIVE),
    "computes": (30.0, 40, 0, ELSEWHERE),
    "hangs": (0.0, 0, 0, ELSEWHERE),
    "prints": (0.1, 60, 0, ELSEWHERE),
    "downloads": (0.3, 9000, 0, ELSEWHERE),
    "silent": (0.0, 0, 0, []),
}


@cases(__file__, "standing")
def test_stalled_launch_is_noticed(case: dict[str, Any]) -> None:
    standing = Standing(NODES, case.get("notice", 180.0), 0.0, "20261123-101112-abcd")
    state: dict[int, Sample] = {
        rank: {
            "local_rank": rank % 2,
            "state": "S",
            "cpu": 0.0,
            "switches": 0,
            "stack": [],
            "sequence": None if case.get("no_recorder") else 0,
            "operation": "" if case.get("no_recorder") else "all_reduce",
            "begun": False,
        }
        for rank in range(4)
    }
    said = []
    number = 0
    for part in case["parts"]:
        for _ in range(round(part["minutes"] * 2)):
            number += 1
            now = number * 30.0
            for rank, sample in state.items():
                does = part.get("ranks", {}).get(rank, part.get("all", "waits"))
                cpu, switches, collectives, stack = DOES[does]
                sample["cpu"] += cpu
                sample["switches"] += switches
                sample["stack"] = stack
                sample["state"] = part.get("state", {}).get(rank, "S")
                sample["begun"] = rank in part.get("begun", ())
                if sample["sequence"] is not None:
                    sample["sequence"] += collectives
                sample.update(part.get("differing", {}).get(rank, {}))
            for node, ranks in NODES.items():
                if node in part.get("silent_nodes", ()):
                    continue
                samples: Samples = {"number": number, "age": 0.5, "ranks": [{**state[rank]} for rank in ranks]}
                standing.saw(node, samples, part.get("lines", ()), now)
            said += [f"{now / 60:g} min: {sentence}" for sentence in standing.notices(now)]
    assert said == case.get("expect", [])


def test_sample_interval_depends_on_the_notice_time() -> None:
    assert [interval(notice) for notice in (0, 8, 180, 3600)] == [30, 2, 30, 30]
