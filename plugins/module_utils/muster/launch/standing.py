"""Detect a launch that seems to be stalled, and the ranks that block it. The module only reports stalls and never stops
a launch.

A rank makes progress when it starts another collective, or when it works outside of collectives: it uses CPU time, or
its context switches show I/O. A rank that waits in a collective makes no progress, even if it uses CPU time. Waiting in
Gloo was measured to use neither CPU time nor context switches (torch 2.13). Ranks that wait in NCCL reportedly spin;
this was not measured. Therefore one hour of validation on one rank, while the others wait, is not a stall. One hour
without output is not a stall either. A hung rank in which another thread prints is a stall. Output counts as progress
only if torch does not count collectives. A rank in an endless computation, or one that waits for a GPU without a
started collective, counts as working.

The threshold adapts: it is three times the longest quiet period so far. All times are on one clock.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..verdict import commands
from ..verdict.words import few
from .standstill import PROCESS_STATES, STUCK_STATES, waits

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from .messages import Sample, Samples

SECONDS = 30.0  # between samples, unless an earlier notice is requested
SHARE = 4  # minimum number of samples before a notice
BUSY = 0.02  # of a CPU: a thread that prints now and then uses less
LIVELY = 50.0  # context switches per second of the main thread: a polling loop has fewer, a download more
TIMES = 3.0  # times the longest quiet period so far
FRESH = 3.0  # age limit of a sample, in intervals
SLACK = 10.0


def interval(notice: float) -> float:
    """Return the seconds between samples. notice: seconds after which a stall is reported; 0 to disable reports."""
    return min(SECONDS, notice / SHARE) if notice else SECONDS


@dataclass
class Rank:
    """A rank.

    since: when it last made progress, or the time of its first sample. longest: the longest quiet period that has
    ended, in seconds.
    """

    node: str
    rank: int
    since: float
    at: float
    last: Sample | None = None
    longest: float = 0.0

    def saw(self, sample: Sample, at: float) -> None:
        if self.last is None or self.goes_on(self.last, sample, at - self.at):
            self.went_on(at)
        self.last, self.at = sample, at

    def went_on(self, at: float) -> None:
        if self.last is not None:
            self.longest = max(self.longest, at - self.since)
        self.since = at

    def goes_on(self, before: Sample, now: Sample, seconds: float) -> bool:
        if before["sequence"] != now["sequence"]:
            return True
        if seconds <= 0 or (is_waiting(before) and is_waiting(now)):
            return False
        cpu, switches = now["cpu"] - before["cpu"], now["switches"] - before["switches"]
        return cpu / seconds > BUSY or switches / seconds > LIVELY

    @property
    def name(self) -> str:
        return f"rank {self.rank} ({self.node})"


def is_waiting(sample: Sample) -> bool:
    """Return whether the rank waits for its peers, according to its stack or to torch's state of
    its newest collective.
    """
    return sample["begun"] or waits(sample["stack"])


class Standing:
    """The progress of a launch. It reports each stall once, and also the end of the stall."""

    def __init__(self, ranks: Mapping[str, Sequence[int]], notice: float, now: float, launch_id: str) -> None:
        """ranks: the ranks of each node, in the order of local ranks. notice: seconds after which a stall is reported;
        0 for never.
        """
        self.notice = notice
        self.launch_id = launch_id
        self.ranks = {
            (node, local): Rank(node, rank, now, now) for node, of in ranks.items() for local, rank in enumerate(of)
        }
        self.numbers = dict.fromkeys(ranks, 0)
        self.said_at = 0.0

    def saw(self, node: str, samples: Samples | None, logs: Iterable[str], now: float) -> None:
        """Record the samples of a node. logs: names of the logs that have new lines."""
        for name in logs:
            local = name.partition("/")[0]
            rank = self.ranks.get((node, int(local))) if local.isdecimal() else None
            if rank and rank.last and rank.last["sequence"] is None:
                rank.went_on(now)
        if samples is None:
            return
        self.numbers[node] = samples["number"]
        for sample in samples["ranks"]:
            if rank := self.ranks.get((node, sample["local_rank"])):
                rank.saw(sample, now - samples["age"])

    def notices(self, now: float) -> list[str]:
        if not self.notice or not self.ranks:
            return []
        ranks = sorted(self.ranks.values(), key=lambda one: one.rank)
        too_old = FRESH * interval(self.notice) + SLACK
        newest = max(one.since for one in ranks)
        if self.said_at:
            if newest <= self.said_at:
                return []
            self.said_at = 0.0
            return ["The launch is making progress again"]
        known = all(one.last and now - one.at < too_old for one in ranks)
        quiet = min(one.at for one in ranks) - newest
        if not known or quiet < max(self.notice, TIMES * max(one.longest for one in ranks)):
            return []
        self.said_at = now
        more = commands.playbook("playbooks/diagnose.yml", launch=self.launch_id)
        said = f"The launch seems to have been stalled for {quiet:.0f} s: {at_whom(ranks)}"
        return [f"{said}. The launch keeps running. To find the cause: {more}"]


def at_whom(ranks: Sequence[Rank]) -> str:
    """Describe the stalled ranks that the others wait for, if these can be determined."""
    samples = {one.name: one.last for one in ranks if one.last}
    waiting = {name: sample for name, sample in samples.items() if is_waiting(sample)}
    others = [name for name in samples if name not in waiting]
    if others and waiting:
        return f"{'; '.join(f'{name} {place(samples[name])}' for name in others[:3])}, while {met(waiting)}"
    if others:
        return "; ".join(f"{name} {place(samples[name])}" for name in others[:3])
    counts = {sample["sequence"] for sample in waiting.values()}
    if len(counts) == 1 and len({sample["operation"] for sample in waiting.values()}) == 1:
        return f"all {len(waiting)} ranks wait in {what(next(iter(waiting.values())))}"
    return "the ranks wait in different collectives: " + ", ".join(
        f"{name} in {what(one)}" for name, one in list(waiting.items())[:4]
    )


def met(waiting: Mapping[str, Sample]) -> str:
    """Describe the waiting ranks and the newest collective in which any of them waits."""
    furthest = max(waiting.values(), key=lambda one: one["sequence"] or 0)
    return f"{few(list(waiting))} {'waits' if len(waiting) == 1 else 'wait'} in {what(furthest)}"


def what(sample: Sample) -> str:
    number = "" if sample["sequence"] is None else f" #{sample['sequence']}"
    return f"{sample['operation'] or 'torch.distributed'}{number}"


def place(sample: Sample) -> str:
    """Describe what a rank is doing that does not wait for a peer."""
    begun = "" if sample["sequence"] is None else f" has started {sample['sequence']} collectives and"
    if sample["state"] in STUCK_STATES or not sample["stack"]:
        return f"{begun} is {PROCESS_STATES.get(sample['state'], sample['state'])}".strip()
    return f"{begun} is at {sample['stack'][0].strip()}".strip()
