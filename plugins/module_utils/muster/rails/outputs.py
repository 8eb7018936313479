"""What ibv_rc_pingpong (rdma-core) and ib_write_bw and ib_write_lat (perftest) print, also when they fail."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ..verdict.printable import printable
from .plan import STEPS, commands

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .plan import Hca

PINGPONG, BANDWIDTH, LATENCY = STEPS
# rdma-core, libibverbs/examples/rc_pingpong.c: "1000 iters in 0.01 seconds = 7.68 usec/iter".
ITERATIONS = re.compile(r"^\d+ iters in [\d.]+ seconds = ([\d.]+) usec/iter", re.MULTILINE)
# "#bytes #iterations BW peak[Gb/sec] BW average[Gb/sec] MsgRate[Mpps]", and a row below. What the processor's clock
# does may be said in between.
GIGABITS = re.compile(r"BW average\[Gb/sec\].*?^\s*\d+\s+\d+\s+[\d.]+\s+([\d.]+)", re.MULTILINE | re.DOTALL)
# "#bytes #iterations t_min[usec] t_max[usec] t_typical[usec] ...".
TYPICAL = re.compile(r"t_typical\[usec\].*?^\s*\d+\s+\d+\s+[\d.]+\s+[\d.]+\s+([\d.]+)", re.MULTILINE | re.DOTALL)
VALUES = {PINGPONG: ITERATIONS, BANDWIDTH: GIGABITS, LATENCY: TYPICAL}
# What the tools say before any packet of RDMA has left: these ask each other over TCP.
OVER_TCP = re.compile(r"Couldn't connect to \S+:\d+|Unable to (?:init the|set up|open file descriptor for) socket")
NOISE = re.compile(r"Conflicting CPU frequency|^\s*-+\s*$|^\s*(?:local|remote) address|^\s*GID:")
# What a message of theirs means, in words; the first that fits.
MEANINGS = (
    (re.compile(r"modify QP to RTR|Unable to Connect the HCA"), "the adapter knows no way to the other one"),
    (re.compile(r"transport retry counter exceeded|status 12\b|\(12\)"), "its packets are not answered"),
    (re.compile(r"RNR retry counter"), "the other end takes nothing"),
    (re.compile(r"invalid data"), "data arrived changed"),
    (re.compile(r"Couldn't read/write remote address|Failed to exchange data"), "the other end gave up"),
    (
        re.compile(r"Cannot allocate memory|Couldn't (?:register MR|create (?:CQ|QP)|allocate)"),
        "too little locked memory",
    ),
    (
        re.compile(r"IB device \S+ not found|Failed to get IB devices|Unable to find the Infiniband"),
        "libibverbs does not list it",
    ),
)
MOST = 200  # characters of a tool's own words


@dataclass(frozen=True)
class RailTrial:
    """One rail between two nodes. step: the one that failed, "" where none did. why: its words, and what they mean.

    untried: why RDMA did not come into it at all. missing: the tool that is not there. gbps, usec: None where not
    measured. rate: of the slower link. by_hand: what tries it again.
    """

    caller: str
    called: str
    hcas: tuple[str, str]
    rate: float
    by_hand: str
    step: str = ""
    why: str = ""
    untried: str = ""
    missing: str = ""
    gbps: float | None = None
    usec: float | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return the shape that is kept."""
        return {
            "from": f"{self.caller} {self.hcas[0]}",
            "to": f"{self.called} {self.hcas[1]}",
            "outcome": self.untried
            or (f"{self.missing} is not there" if self.missing == PINGPONG else "")
            or (f"{self.step}: {self.why}" if self.step else "ok"),
            "gbps": self.gbps,
            "usec": self.usec,
        }


def trial(
    ends: tuple[str, str], pair: tuple[Hca, Hca], answers: Sequence[Mapping[str, Any]], unserved: str = ""
) -> RailTrial:
    """Read what each step printed at the calling end. answers: {text, aside, why, missing} in the order of STEPS.

    unserved: what the called end's tool said where it did not come to listen. perftest may be missing at either end:
    then nothing is measured.
    """
    own = RailTrial(
        *ends, (pair[0].name, pair[1].name), min(pair[0].rate, pair[1].rate), " ".join(commands(pair[1])[0])
    )
    if unserved:
        return replace(own, step=PINGPONG, why=explained(unserved))
    values: dict[str, float] = {}
    step = why = untried = missing = ""
    for name, answer in zip(STEPS, answers, strict=False):
        found = VALUES[name].search(answer["text"])
        if answer["missing"]:
            missing = name
        elif OVER_TCP.search(f"{answer['text']}\n{answer['aside']}"):
            untried = f"{name} did not reach the other end over TCP: {failure(answer)}"
        elif answer["why"] or not found:
            step, why = name, explained(failure(answer))
        else:
            values[name] = float(found[1])
        if name not in values:
            break
    gbps, usec = values.get(BANDWIDTH), values.get(LATENCY)
    return replace(own, step=step, why=why, untried=untried, missing=missing, gbps=gbps, usec=usec)


def failure(answer: Mapping[str, Any]) -> str:
    """Return the line that says most: the last one on the error stream, else on the other, else why there is none."""
    for stream in ("aside", "text"):
        lines = [line.strip() for line in str(answer[stream]).splitlines() if line.strip() and not NOISE.search(line)]
        if lines and (stream == "aside" or any(pattern.search(answer[stream]) for pattern, _ in MEANINGS)):
            meant = [line for line in lines if any(pattern.search(line) for pattern, _ in MEANINGS)]
            return printable((meant or lines)[-1])[:MOST]
    return printable(str(answer["why"]))[:MOST] or "it printed no result"


def explained(said: str) -> str:
    """Add what it means, where that is known."""
    said = printable(said)[:MOST]
    meaning = next((words for pattern, words in MEANINGS if pattern.search(said)), "")
    return f"{meaning} ({said})" if meaning else said
