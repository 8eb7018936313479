"""Whether a launch seems to stand still, and at whom: a notice for people, which never ends anything.

A rank goes on when it begins another collective, or when it works outside of one: it uses processor time, or sleeps and
wakes as what reads and writes does. Whoever waits within a collective does not go on, whatever it uses: waiting in Gloo
took neither time nor switches where it was seen (torch 2.13); that ranks of NCCL spin meanwhile was only read. So an
hour in which one rank validates and the others wait for it is none of standing still, and neither is one without a
line; a hung rank whose other thread still prints is. Lines count where torch counts no collectives. A rank that
computes for ever, or waits for a GPU on which no collective has begun, is taken for one that works.

How long is long, a launch says by itself: three times as long as it was ever quiet before. All times on one clock.
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

SECONDS = 30.0  # from one sample to the next, where nobody wants to hear of it earlier
SHARE = 4  # samples at least, until it is said
BUSY = 0.02  # of a processor: a thread that prints now and then takes less
LIVELY = 50.0  # switches a second of the main thread: a loop that polls has fewer, and a download more
TIMES = 3.0  # what was quiet for so long may well be so for as long again
FRESH = 3.0  # samples' distance after which one is too old to say anything
SLACK = 10.0


def interval(notice: float) -> float:
    """Seconds from one sample to the next. notice: those that a launch stands still until it is said; 0 for never."""
    return min(SECONDS, notice / SHARE) if notice else SECONDS


@dataclass
class Rank:
    """since: when it was last seen to go on, or first of all. longest: seconds of quiet that ended by themselves."""

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
    """Whether it waits for its peers, by its stack or by what torch says of its newest collective."""
    return sample["begun"] or waits(sample["stack"])


class Standing:
    """One launch. What is said, is said once, and once more when it goes on again."""

    def __init__(self, ranks: Mapping[str, Sequence[int]], notice: float, now: float, launch_id: str) -> None:
        """ranks: of each node, by local rank. notice: seconds; 0 for never."""
        self.notice = notice
        self.launch_id = launch_id
        self.ranks = {
            (node, local): Rank(node, rank, now, now) for node, of in ranks.items() for local, rank in enumerate(of)
        }
        self.numbers = dict.fromkeys(ranks, 0)
        self.said_at = 0.0

    def saw(self, node: str, samples: Samples | None, logs: Iterable[str], now: float) -> None:
        """logs: the names of those that have new lines."""
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
            return ["The launch goes on again"]
        known = all(one.last and now - one.at < too_old for one in ranks)
        quiet = min(one.at for one in ranks) - newest
        if not known or quiet < max(self.notice, TIMES * max(one.longest for one in ranks)):
            return []
        self.said_at = now
        more = commands.playbook("playbooks/diagnose.yml", launch=self.launch_id)
        said = f"The launch seems to stand still for {quiet:.0f} s: {at_whom(ranks)}"
        return [f"{said}. Nothing is ended for that; see {more}"]


def at_whom(ranks: Sequence[Rank]) -> str:
    """Of ranks that stand still: who it is that the others wait for, as far as that can be seen."""
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
    return "they do not wait for the same: " + ", ".join(
        f"{name} in {what(one)}" for name, one in list(waiting.items())[:4]
    )


def met(waiting: Mapping[str, Sample]) -> str:
    """Where those are that wait: the furthest of them."""
    furthest = max(waiting.values(), key=lambda one: one["sequence"] or 0)
    return f"{few(list(waiting))} {'waits' if len(waiting) == 1 else 'wait'} in {what(furthest)}"


def what(sample: Sample) -> str:
    number = "" if sample["sequence"] is None else f" #{sample['sequence']}"
    return f"{sample['operation'] or 'torch.distributed'}{number}"


def place(sample: Sample) -> str:
    """What a rank does that waits for no peer."""
    begun = "" if sample["sequence"] is None else f" has begun {sample['sequence']} collectives and"
    if sample["state"] in STUCK_STATES or not sample["stack"]:
        return f"{begun} is {PROCESS_STATES.get(sample['state'], sample['state'])}".strip()
    return f"{begun} stands at {sample['stack'][0].strip()}".strip()
