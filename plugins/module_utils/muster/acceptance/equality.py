"""Check that training with DDP gives the same results as training in one process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ..verdict.check import Check
from ..verdict.words import plural
from .agreement import HEALTH, Apart, apart, by_value, disagree, settled, words_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from ..verdict.check import Said
    from ..verdict.finding import Finding
    from .reports import Reports

DATA = Check(
    "smoke.data",
    seen="sandbox",
    reads="digests of the samples that each rank trained on, and of the global batch that each rank computes",
    fires="fail: a rank trained on samples outside its shard of the batch, for example on those of another rank; or "
    "it computed a different batch than most ranks, for example because of a different seed",
    fix="Compare the seed and the script of the rank with those of the other ranks",
)
WEIGHTS = Check(
    "smoke.weights",
    seen="sandbox",
    reads="a digest of all parameters of every rank, after DDP has wrapped the model and after each step",
    fires="the parameters are not bitwise equal on all ranks (fail). The finding names the ranks that differ from "
    "most ranks, or all ranks if there is no majority",
    fix="Check the node's GPUs and memory",
    command=HEALTH,
)
EQUALITY = Check(
    "smoke.equality",
    seen="sandbox",
    reads="losses and all parameters of some steps of SGD with momentum, under DDP over all ranks and in a single "
    "process with the same batches; in float64 and float32 (TF32 off), with and without gradient accumulation",
    fires="an element differs by more than the tolerance (fail): 1e-10 + 1e-9 x value in float64, 1e-5 + 1e-4 x value"
    " in float32. In 20 steps, another summation order changed the results by a millionth (float64) and a hundredth "
    "(float32) of that. The finding names the ranks whose loss differs before the first averaging of gradients",
    fix="Check the versions of torch and NCCL and the GPUs of all nodes",
    command=HEALTH,
)
CHECKS = (DATA, WEIGHTS, EQUALITY)

STAGE = "equality"


class TrainingRun(NamedTuple):
    dtype: str
    accumulation: int

    def __str__(self) -> str:
        return self.dtype + (f", accumulation over {self.accumulation}" if self.accumulation > 1 else "")


Runs = dict[TrainingRun, dict[int, "Mapping[str, Any]"]]


def judge(reports: Reports) -> Iterator[Said]:
    if not reports.tried(STAGE):
        return
    runs = runs_of(reports)
    wrong_data = list(data(reports, runs))
    known = complete(reports, runs, lambda said: all(said.get(key) for key in ("plan", "trained", "expected")))
    yield from wrong_data or [settled(DATA, reports, known, "each rank trained on its own samples")]
    differ = list(weights(reports, runs))
    known = complete(reports, runs, lambda said: bool(said.get("start") and digests_of(said)))
    yield from differ or [settled(WEIGHTS, reports, known, "parameters are bitwise equal on all ranks after each step")]
    if wrong_data or differ:
        yield EQUALITY.skip("the samples or parameters already differ between ranks")
    else:
        yield from equality(reports, runs)


def runs_of(reports: Reports) -> Runs:
    """Return the reports of each run, by rank."""
    runs: Runs = {}
    for rank, said in reports.facts(STAGE).items():
        listed = said.get("runs")
        for one in listed if isinstance(listed, list) else []:
            if isinstance(one, dict) and isinstance(one.get("dtype"), str) and type(one.get("accumulation")) is int:
                runs.setdefault(TrainingRun(one["dtype"][:20], one["accumulation"]), {})[rank] = one
    return runs


def complete(reports: Reports, runs: Runs, told: Callable[[Mapping[str, Any]], bool]) -> list[int]:
    """Return the ranks whose reports of all runs fulfil the condition."""
    return [rank for rank in reports.places if runs and all(told(by_rank.get(rank, {})) for by_rank in runs.values())]


def digests_of(said: Mapping[str, Any]) -> list[str]:
    digests = said.get("digests")
    return [str(digest) for digest in digests] if isinstance(digests, list) else []


def data(reports: Reports, runs: Runs) -> Iterator[Finding]:
    """Yield findings about wrong samples in the first run that has any. The other runs use the same batches."""
    for by_rank in runs.values():
        plans = words_of(by_rank, "plan")
        if len(by_value(plans)) > 1:
            yield from disagree(DATA, reports, plans, "samples for the same step")
            return
        trained, expected = words_of(by_rank, "trained"), words_of(by_rank, "expected")
        wrong = [rank for rank in trained if rank in expected and trained[rank] != expected[rank]]
        for rank in wrong:
            of: Any = by_rank[rank].get("of")
            known = type(of) is int and of in reports.places
            whose = f"the samples of {reports.named(of)}" if known else "samples that are in no rank's shard"
            yield DATA.fail(reports.places[rank].node, f"{reports.named(rank)} trained on {whose} instead of its own")
        if wrong:
            return


def weights(reports: Reports, runs: Runs) -> Iterator[Finding]:
    """Yield findings about the first step after which the parameters of the ranks differ, in the first run in which
    they differ."""
    for run, by_rank in runs.items():
        moments = {"at the beginning": words_of(by_rank, "start")}
        digests = {rank: digests_of(said) for rank, said in by_rank.items()}
        for step in range(max(map(len, digests.values()))):
            moments[f"after step {step + 1}"] = {rank: own[step] for rank, own in digests.items() if step < len(own)}
        for moment, values in moments.items():
            if len(by_value(values)) > 1:
                yield from disagree(WEIGHTS, reports, values, f"parameters {moment} ({run})")
                return


def equality(reports: Reports, runs: Runs) -> Iterator[Said]:
    """Compare DDP with training in one process. At this point all ranks have equal parameters, so a difference concerns
    all ranks. Only the loss of a rank's own samples before the first averaging is specific to a rank."""
    worst = [(farthest(by_rank), run) for run, by_rank in runs.items()]
    far = sorted(((one, run) for one, run in worst if one and one.excess > 1), key=lambda pair: -pair[0].excess)
    count = plural(len(reports.places), "rank")
    if far:
        (one, run), *others = far
        more = f", also in {plural(len(others), 'other run')}" if others else ""
        text = f"DDP over {count} and a single process have different results ({run}){more}: {one}"
        by_rank = {rank: own for rank, said in runs[run].items() if (own := apart(said.get("own"))) and own.excess > 1}
        if len(by_rank) * 2 > len(reports.places):
            text += f"; {plural(len(by_rank), 'rank')} have other losses than the single process on {reports.named(0)}"
            by_rank = {}
        for rank, own in by_rank.items():
            yield EQUALITY.fail(reports.places[rank].node, f"{text}; {reports.named(rank)}: {own}")
        if not by_rank:
            yield EQUALITY.fail(reports.places[0].node, text)
        return
    known = complete(reports, runs, lambda said: bool(apart(said.get("worst")) and apart(said.get("loss"))))
    most = max((one.excess for one, _ in worst if one), default=0.0)
    text = f"DDP over {count} and a single process have the same result, within {most:.2g} of the tolerance"
    yield settled(EQUALITY, reports, known, text)


def farthest(by_rank: Mapping[int, Mapping[str, Any]]) -> Apart | None:
    found = [one for said in by_rank.values() for key in ("worst", "loss") if (one := apart(said.get(key)))]
    return max(found, key=lambda one: one.excess, default=None)
