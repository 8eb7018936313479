"""Every file in cases/foreign contains logs that Muster did not write, the nodes of an inventory, and the expected
decision.

known: {node: [address, host names…]}. expect: nodes {name: ranks}; codes {rank: exit code}; world, meeting; word,
causes, candidates, ruled_out as in cases/decide; first: the first of the candidates; never: ids that are neither
reported nor ruled out; said {rank: text that must be found in the rank's log}; shown: texts that must be printed;
never_said: text that no line of the diagnosis contains.
"""

from __future__ import annotations

import random
from typing import Any

from cases import cases
from lines import line
from muster.diagnosis.case import LaunchCase
from muster.diagnosis.causes import CAUSES
from muster.diagnosis.decide import decide
from muster.diagnosis.foreign import case_of_logs
from muster.diagnosis.log_sources import Known
from muster.diagnosis.texts import TEXTS
from muster.diagnosis.words import MOST_POSSIBLE, diagnosis


@cases(__file__, "foreign")
def test_foreign_logs_lead_to_the_expected_decision(case: dict[str, Any]) -> None:
    known = [Known(node, more[0], tuple(more[1:])) for node, more in case.get("known", {}).items()]
    shape = case_of_logs(case["logs"], known)
    launch, expect = shape["launch"], case["expect"]
    seen = {
        "nodes": {one["node"]: one["ranks"] for one in launch["nodes"]},
        "codes": {one["rank"]: one["code"] for one in shape["ranks"] if one["code"] is not None},
        "world": launch["world_size"],
        "meeting": [launch["master_addr"], launch["master_port"]],
    }
    assert {name: seen[name] for name in seen if name in expect} == {
        name: expect[name] for name in seen if name in expect
    }
    for rank, words in expect.get("said", {}).items():
        assert words in next(one["stderr"] for one in shape["ranks"] if one["rank"] == rank)
    decided = decide(LaunchCase(shape), CAUSES)
    assert decided.word == expect.get("word", decided.word)
    assert [line(one) for one in decided.causes] == expect.get("causes", [line(one) for one in decided.causes])
    assert {line(one) for one in decided.candidates} >= set(expect.get("candidates", []))
    assert {line(one) for one in decided.ruled_out} >= set(expect.get("ruled_out", []))
    if "first" in expect:
        assert line(decided.candidates[0]) == expect["first"]
    named = {one.cause.id for one in (*decided.causes, *decided.candidates, *decided.ruled_out)}
    assert not named & set(expect.get("never", []))
    printed = "\n".join(diagnosis(LaunchCase(shape), decided)["lines"])
    assert [text for text in expect.get("shown", []) if text not in printed] == []
    assert "never_said" not in expect or expect["never_said"] not in printed


# A consequence of an error of another rank, or a reason that the line itself names.
SILENT = {"gloo.closed.timeout", "nccl.failed", "nccl.init", "nccl.work", "system.quota", "torchrun.endpoint"}


def test_every_known_line_alone_suggests_a_cause() -> None:
    """Users paste single lines, without the rank and the node."""
    silent = set()
    for text in TEXTS:
        decided = decide(LaunchCase(case_of_logs({"job.log": text.example}, [])), CAUSES)
        if not (text.ordinary or decided.causes or decided.candidates):
            silent.add(text.id)
    assert silent == SILENT


def test_arbitrary_text_can_be_parsed() -> None:
    """Logs are untrusted: no text raises an exception or confirms a cause."""
    chance = random.Random(1)
    pieces = [
        "[rank",
        "]: ",
        "999999999",
        "[default",
        "srun ",
        "torchrun --nnodes=",
        "'",
        "\\\n",
        "\x1b[",
        "\0",
        "host : ",
        "ü",
        ": ",
        "\n",
    ]
    for _ in range(300):
        text = "".join(chance.choice(pieces) for _ in range(chance.randrange(60)))
        case = LaunchCase(case_of_logs({"a.log": text}, [Known("node1", "192.0.2.1")]))
        decided = decide(case, CAUSES)
        assert decided.word != "confirmed"
        assert len(diagnosis(case, decided)["lines"]) <= 5 + 2 * MOST_POSSIBLE
