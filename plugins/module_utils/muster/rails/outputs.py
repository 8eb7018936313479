"""Parse the output and the error messages of ibv_rc_pingpong (rdma-core), ib_write_bw and ib_write_lat (perftest)."""

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
# "#bytes #iterations BW peak[Gb/sec] BW average[Gb/sec] MsgRate[Mpps]", and a row below. A warning about the CPU
# frequency may be in between.
GIGABITS = re.compile(r"BW average\[Gb/sec\].*?^\s*\d+\s+\d+\s+[\d.]+\s+([\d.]+)", re.MULTILINE | re.DOTALL)
# "#bytes #iterations t_min[usec] t_max[usec] t_typical[usec] ...".
TYPICAL = re.compile(r"t_typical\[usec\].*?^\s*\d+\s+\d+\s+[\d.]+\s+[\d.]+\s+([\d.]+)", re.MULTILINE | re.DOTALL)
VALUES = {PINGPONG: ITERATIONS, BANDWIDTH: GIGABITS, LATENCY: TYPICAL}
# Errors before any RDMA packet was sent: the tools first connect over TCP.
OVER_TCP = re.compile(r"Couldn't connect to \S+:\d+|Unable to (?:init the|set up|open file descriptor for) socket")
NOISE = re.compile(r"Conflicting CPU frequency|^\s*-+\s*$|^\s*(?:local|remote) address|^\s*GID:")
# The meaning of the tools' messages; the first match counts.
MEANINGS = (
    (re.compile(r"modify QP to RTR|Unable to Connect the HCA"), "the adapter has no route to its counterpart"),
    (re.compile(r"transport retry counter exceeded|status 12\b|\(12\)"), "the counterpart sent no acknowledgement"),
    (re.compile(r"RNR retry counter"), "the peer does not accept data"),
    (re.compile(r"invalid data"), "the received data is wrong"),
    (re.compile(r"Couldn't read/write remote address|Failed to exchange data"), "the counterpart stopped the test"),
    (
        re.compile(r"Cannot allocate memory|Couldn't (?:register MR|create (?:CQ|QP)|allocate)"),
        "the limit of locked memory is too low",
    ),
    (
        re.compile(r"IB device \S+ not found|Failed to get IB devices|Unable to find the Infiniband"),
        "libibverbs does not list the adapter",
    ),
)
MOST = 200  # characters of a tool's message


@dataclass(frozen=True)
class RailTrial:
    """The test of one rail between two nodes. step: the step that failed, or "". why: the error message of this step
    and its meaning.

    untried: why RDMA was not tested. missing: the missing tool. gbps, usec: None if not measured. rate: rate of the
    slower link in Gbit/s. by_hand: the command with which users can repeat the test.
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
        """Return the test in the form that the report reads."""
        return {
            "from": f"{self.caller} {self.hcas[0]}",
            "to": f"{self.called} {self.hcas[1]}",
            "outcome": self.untried
            or (f"{self.missing} is missing" if self.missing == PINGPONG else "")
            or (f"{self.step}: {self.why}" if self.step else "ok"),
            "gbps": self.gbps,
            "usec": self.usec,
        }


def trial(
    ends: tuple[str, str], pair: tuple[Hca, Hca], answers: Sequence[Mapping[str, Any]], unserved: str = ""
) -> RailTrial:
    """Parse the output of each step on the node that connects. answers: {text, aside, why, missing} in the order of
    STEPS.

    unserved: the error of the tool on the other node if this tool did not listen. If perftest is missing on either
    node, nothing is measured.
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
            untried = f"{name} could not connect over TCP: {failure(answer)}"
        elif answer["why"] or not found:
            step, why = name, explained(failure(answer))
        else:
            values[name] = float(found[1])
        if name not in values:
            break
    gbps, usec = values.get(BANDWIDTH), values.get(LATENCY)
    return replace(own, step=step, why=why, untried=untried, missing=missing, gbps=gbps, usec=usec)


def failure(answer: Mapping[str, Any]) -> str:
    """Return the most useful line: the last line on standard error, else the last line on standard output, else the
    reason of the failure."""
    for stream in ("aside", "text"):
        lines = [line.strip() for line in str(answer[stream]).splitlines() if line.strip() and not NOISE.search(line)]
        if lines and (stream == "aside" or any(pattern.search(answer[stream]) for pattern, _ in MEANINGS)):
            meant = [line for line in lines if any(pattern.search(line) for pattern, _ in MEANINGS)]
            return printable((meant or lines)[-1])[:MOST]
    return printable(str(answer["why"]))[:MOST] or "the tool printed no result"


def explained(said: str) -> str:
    """Return the message with its meaning, if the meaning is known."""
    said = printable(said)[:MOST]
    meaning = next((words for pattern, words in MEANINGS if pattern.search(said)), "")
    return f"{meaning} ({said})" if meaning else said
