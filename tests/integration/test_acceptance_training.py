"""The training stages of the acceptance test, with faults on real nodes and a healthy run."""

from __future__ import annotations

import json
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from acceptance_runs import stub_module
from machines import find_machine
from paths import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from acceptance_runs import Run
    from machines import Machine

STANDIN = ROOT / "tests/standins/spoilt_training.py"
MARKS = "/var/lib/muster-test-marks"
# Four ranks: 0 and 1 on node1, 2 and 3 on node2.
PARTICIPANTS = ("node1", "node2")
STAGES = "equality,sampling,checkpoint,precision,train"


@contextmanager
def spoilt(faults: dict[int, list[list[Any]]]) -> Iterator[Callable[[int, str], dict[str, Any]]]:
    """Inject faults into these ranks. Yield a function that returns the stub's own record of a fault."""
    machines = [find_machine(name) for name in PARTICIPANTS]
    plan = json.dumps({"marks": MARKS, "faults": faults})
    with ExitStack() as stack:
        for machine in machines:
            stack.enter_context(stub_module(machine, STANDIN, {"json": plan}))
            stack.callback(machine.inside, "rm", "--recursive", "--force", MARKS)
            machine.inside("mkdir", "--mode=1777", MARKS)
        yield lambda rank, fault: json.loads(
            machines[rank // 2].inside("cat", f"{MARKS}/rank-{rank}-{fault}.json").stdout
        )


def leftovers(machine: Machine) -> list[str]:
    """Return the remaining checkpoint files of the test."""
    return machine.inside("find", "/tmp", "/var/tmp", "-name", "*acceptance-*").stdout.split()


def test_wrong_weights_shards_and_epochs_are_reported_with_their_ranks(smoke: Callable[..., Run]) -> None:
    with spoilt({3: [["weights", 2], ["epoch"]], 2: [["shard", 1]]}) as was:
        run = smoke("equality,sampling")
        changed = was(3, "weights")
        assert changed["after"] == pytest.approx(changed["before"] + 0.001)
        assert was(2, "shard") == {"rank": 2, "before": 2, "after": 1}
        assert was(3, "epoch") == {"rank": 3, "before": 1, "after": 0}
    weights, sampler, set_epoch = run.found
    assert weights == (
        "smoke.weights fail node2: rank 3 (node2, local rank 1): parameters after step 2 (float64) differ from those of"
        " the 3 ranks that agree"
    )
    assert sampler == (
        "smoke.sampler fail node2: rank 2 (node2, local rank 0) has the shard of rank 1 (node1, local rank 1) instead"
        " of its own (33 samples, in order): 1, 5, 9 and 6 more"
    )
    assert set_epoch == (
        "smoke.set_epoch fail node2: rank 3 (node2, local rank 1) has the same order in epochs 0 and 1:"
        " set_epoch has no effect"
    )
    assert {skip["id"] for skip in run.verdict["coverage"]["skipped"]} >= {"smoke.equality"}


def test_different_seed_and_truncated_checkpoint_are_reported(smoke: Callable[..., Run]) -> None:
    with spoilt({2: [["seed", 99]], 0: [["torn", 100]]}) as was:
        run = smoke("equality,checkpoint")
        assert was(2, "seed") == {"rank": 2, "before": 1234, "after": 99}
        torn = was(0, "torn")
        assert torn["before"] > torn["after"] == 100
    data, checkpoint = run.found
    assert data == (
        "smoke.data fail node2: rank 2 (node2, local rank 0): samples for the same step differ from those of the 3"
        " ranks that agree"
    )
    assert checkpoint.startswith(
        "smoke.checkpoint fail node1: rank 0 (node1, local rank 0) has no complete checkpoint to load:"
        " checkpoint-000004.pt has "
    )
    assert "; checkpoint-000003.pt has " in checkpoint
    assert {skip["id"] for skip in run.verdict["coverage"]["skipped"]} >= {"smoke.equality", "smoke.resume"}
    for name in PARTICIPANTS:
        assert leftovers(find_machine(name)) == []


def test_difference_from_the_single_process_result_is_reported(smoke: Callable[..., Run]) -> None:
    """Averaged gradients are equal on all ranks, so the faulty rank can only be found before the first averaging."""
    with spoilt({3: [["loss", 1.01]], 2: [["random"]]}) as was:
        run = smoke("equality,checkpoint,precision")
        loss = was(3, "loss")
        assert float(loss["after"]) == pytest.approx(float(loss["before"]) * 1.01)
        assert was(3, "loss-mixed")["after"] == "nan"
        assert was(2, "random")["before"] > 0
    equality, resume, amp = run.found
    assert equality.startswith("smoke.equality fail node2: DDP over 4 ranks and a single process have different ")
    assert "; rank 3 (node2, local rank 1): its own loss at step 1 differs by " in equality
    assert resume.startswith("smoke.resume fail node1: all 4 ranks have a different result after resuming: ")
    assert amp == (
        "smoke.amp fail node2: rank 3 (node2, local rank 1) has a loss that is not finite at step 1 (bfloat16)"
    )


def test_healthy_cluster_has_no_findings_and_no_leftovers(smoke: Callable[..., Run]) -> None:
    run = smoke(STAGES)
    assert run.found == []
    passed = {finding["id"] for finding in run.verdict["findings"] if finding["status"] == "pass"}
    assert passed >= {"smoke.equality", "smoke.resume", "smoke.amp", "smoke.parameters"}
    assert run.verdict["status"] == "healthy"
    for name in PARTICIPANTS:
        assert leftovers(find_machine(name)) == []
