"""Evaluate the tests of all rails, to find the adapter, pair or rail that is broken or slow."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

from ..net_probe.blame import BlameShare, blame, couples
from ..verdict.check import Check, skip_all
from ..verdict.finding import Skipped, add_up, evidence
from ..verdict.words import few, plural
from .outputs import BANDWIDTH, LATENCY, PINGPONG

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from ..verdict.finding import Finding
    from .outputs import RailTrial

# Other acceptance tests expect 90 to 95 % of the link's rate (Azure: 380 of 400 Gbit/s, 180 of 200; imbue: 720 of
# 800). Muster warns later: it sends messages of 1 MiB on one queue, perhaps from the remote NUMA node.
SLOW = 0.8  # of the best rate of the median adapter with the same link rate
# A single rail cannot be compared. Each half of a DGX Spark's cable gets half of the rate that it reports.
LEAST = 0.4  # of the link's rate
LATE = 3.0  # times the median
LATE_USEC = 5.0  # microseconds above the median, in addition

BROKEN = Check(
    "rdma.rail.broken",
    seen="stand-in",
    reads="ibv_rc_pingpong, then perftest, between the adapters that NCCL would connect, with NCCL's GID, partition "
    "and traffic class, as the training user",
    fires="fail: an adapter cannot reach its counterpart on another node over RDMA. The finding is about the "
    "adapter if most of its pairs fail, about the rail if all pairs of the rail fail, otherwise about the pair",
    fix="Check the adapter's cable, address and switch port",
)
SLOW_RAIL = Check(
    "rdma.rail.slow",
    seen="stand-in",
    reads="ib_write_bw, 2 GiB in messages of 1 MiB, one measurement per adapter at a time",
    fires=f"warn: below {SLOW:.0%} of the median adapter at that link rate, or below {LEAST:.0%} of the link rate",
    fix="Check the cable, the switch port, the adapter's slot, and flow control for RoCE",
)
LATE_RAIL = Check(
    "rdma.rail.late",
    seen="stand-in",
    reads="ib_write_lat, 1000 messages of 8 bytes",
    fires=f"warn: the latency is over {LATE:g} times the median rail's and over {LATE_USEC:g} microseconds higher",
    fix="Check the number of switches on the path, and the node's power-saving settings",
)
UNTRIED = Check(
    "rdma.rail.untried",
    seen="stand-in",
    reads="whether the test tools started and connected to each other over TCP",
    fires="unknown: the tools started, but could not connect over TCP. Skipped if a tool is missing",
    fix="Fix the reported problem, then run the test again",
)
CHECKS = (BROKEN, SLOW_RAIL, LATE_RAIL, UNTRIED)


PACKAGES = {PINGPONG: "package ibverbs-utils", BANDWIDTH: "package perftest", LATENCY: "package perftest"}


def spoke(trial: RailTrial) -> bool:
    """Return whether the test has a result for RDMA."""
    return not trial.untried and trial.missing != PINGPONG


@dataclass(frozen=True)
class Fault:
    """The adapter, pair or rail that a finding is about. where: the beginning of the finding's sentence. note: the end
    of the sentence. node, peer: as in a finding."""

    node: str
    peer: str | None
    where: str
    trials: tuple[RailTrial, ...]
    note: str = ""


def judge(trials: Sequence[RailTrial]) -> Iterator[Finding]:
    """Yield the findings of all tests, and a `pass` for each node without a finding."""
    odd: set[str] = set()
    for finding in _found(trials):
        odd |= {finding.node, finding.peer or finding.node}
        yield finding
    for node in dict.fromkeys(name for one in trials for name in (one.caller, one.called)):
        own = [one for one in trials if node in (one.caller, one.called) and not one.step]
        own = [one for one in own if spoke(one)]
        if own and node not in odd:
            gbps, usec = [one.gbps for one in own if one.gbps], [one.usec for one in own if one.usec]
            fast = f" (median {median(gbps):.1f} Gbit/s, {median(usec):.1f} microseconds)" if gbps and usec else ""
            peers = {one.called if one.caller == node else one.caller for one in own}
            yield BROKEN.passed(
                node,
                f"RDMA adapters reach {plural(len(peers), 'node')}{fast}",
            )


def _found(trials: Sequence[RailTrial]) -> Iterator[Finding]:
    spoken = [one for one in trials if spoke(one)]
    yield from _untried([one for one in trials if one.untried])
    for fault in faults(spoken, lambda one: bool(one.step)):
        said = fault.trials[0]
        yield BROKEN.fail(
            fault.node,
            f"{fault.where} over RDMA{fault.note}: {said.step}: {said.why}",
            f"Check the cable, address and switch port. To repeat the test manually, run this command on {said.called} "
            f"first, then on {said.caller} with the address of {said.called} appended",
            said.by_hand,
            peer=fault.peer,
            observed=said.why,
            expected="all rails",
            evidence=evidence(said.step, "; ".join(f"{one.caller} to {one.called}" for one in fault.trials[:8])),
        )
    whole = [one for one in spoken if not one.step and one.gbps and one.usec]
    usual = {rate: _usual([one for one in whole if one.rate == rate]) for rate in {one.rate for one in whole}}
    for fault in faults(whole, lambda one: (one.gbps or 0) < max(SLOW * usual[one.rate], LEAST * one.rate)):
        slowest = min(fault.trials, key=lambda one: one.gbps or 0)
        yield SLOW_RAIL.warn(
            fault.node,
            f"{fault.where} faster than {slowest.gbps:.1f} Gbit/s over RDMA{fault.note}; the median of rails with "
            f"{slowest.rate:g} Gbit/s is {usual[slowest.rate]:.1f} Gbit/s",
            "Check the adapter's cable, switch port and slot. Show the adapter's location with",
            "nvidia-smi topo -m",
            peer=fault.peer,
            observed=f"{slowest.gbps:.1f} Gbit/s",
            expected=f"{max(SLOW * usual[slowest.rate], LEAST * slowest.rate):.1f} Gbit/s",
            evidence=evidence("ib_write_bw", "; ".join(f"{one.gbps:.1f}" for one in fault.trials[:8])),
        )
    yield from _late(whole)


def _usual(trials: Sequence[RailTrial]) -> float:
    """Return the median of the best rates of all adapters. The median of all tests is unsuitable, because one slow
    adapter of three slows two of three tests."""
    best: dict[tuple[str, str], float] = {}
    for one in trials:
        for end in ((one.caller, one.hcas[0]), (one.called, one.hcas[1])):
            best[end] = max(best.get(end, 0.0), one.gbps or 0.0)
    return median(best.values())


def _late(trials: Sequence[RailTrial]) -> Iterator[Finding]:
    if not trials:
        return
    usual = median(one.usec or 0 for one in trials)
    for fault in faults(trials, lambda one: (one.usec or 0) > max(LATE * usual, usual + LATE_USEC)):
        latest = max(fault.trials, key=lambda one: one.usec or 0)
        yield LATE_RAIL.warn(
            fault.node,
            f"{fault.where} in less than {latest.usec:.1f} microseconds over RDMA{fault.note}; the median rail takes "
            f"{usual:.1f} microseconds",
            "Check the node's power-saving settings, and check the number of switches on the path with",
            "ibnetdiscover",
            peer=fault.peer,
            observed=f"{latest.usec:.1f} microseconds",
            expected=f"{usual:.1f} microseconds",
        )


def _untried(trials: Sequence[RailTrial]) -> Iterator[Finding]:
    for node in dict.fromkeys(one.caller for one in trials):
        own = [one for one in trials if one.caller == node]
        peers = few(list(dict.fromkeys(one.called for one in own)))
        yield UNTRIED.unknown(
            node,
            f"rails to {peers} not tested: {own[0].untried}",
            "Open the launch ports between the nodes (firewall_launch_ports), then run the test again",
        )


def faults(trials: Sequence[RailTrial], is_bad: Callable[[RailTrial], bool]) -> Iterator[Fault]:
    """Attribute the failed tests to whole rails first, then to adapters, and the remaining tests to pairs of
    adapters."""
    left = [one for one in trials if is_bad(one)]
    for rail in dict.fromkeys(one.hcas for one in left):
        of_rail = [one for one in trials if one.hcas == rail]
        nodes = list(dict.fromkeys(name for one in of_rail for name in (one.caller, one.called)))
        if len(nodes) > 2 and all(one in left for one in of_rail):
            left = [one for one in left if one.hcas != rail]
            others = any(one.hcas != rail and not is_bad(one) for one in trials)
            note = " (other rails work: check the rail's switch first)" if others else ""
            where = f"no pair of {plural(len(nodes), 'node')} communicates on {_of(rail)}"
            yield Fault(nodes[0], None, where, tuple(of_rail), note)
    yield from _blamed(trials, left)


def _of(rail: tuple[str, str]) -> str:
    return rail[0] if rail[0] == rail[1] else f"{rail[0]} and {rail[1]}"


def _blamed(trials: Sequence[RailTrial], bad: Collection[RailTrial]) -> Iterator[Fault]:
    ends = {one: (f"{one.caller} {one.hcas[0]}", f"{one.called} {one.hcas[1]}") for one in trials}
    names = sorted({end for pair in ends.values() for end in pair})
    both = {way: one for one, pair in ends.items() for way in (pair, pair[::-1])}
    wrong = [way for way, one in both.items() if one in bad]
    shares = couples(names, blame(names, wrong, list(both)))
    of_node: dict[str, list[BlameShare]] = defaultdict(list)
    for share in shares:
        if share.way != "pair":
            of_node[share.node.partition(" ")[0]].append(share)
    for node, mine in of_node.items():
        if len(mine) > 1 and len(mine) == sum(name.startswith(f"{node} ") for name in names):
            shares = [share for share in shares if share not in mine]
            own = tuple(dict.fromkeys(both[link] for share in mine for link in share.links))
            others = list(dict.fromkeys(one.called if one.caller == node else one.caller for one in own))
            yield Fault(node, None, f"none of {len(mine)} adapters communicates with {few(others)}", own)
    couple: dict[tuple[str, str], list[Fault]] = defaultdict(list)
    for share in shares:
        own = tuple(dict.fromkeys(both[link] for link in share.links))
        node, _, hca = share.node.partition(" ")
        peers = [peer.partition(" ")[0] for peer in share.peers]
        if share.way == "pair":
            there = share.peers[0].partition(" ")[2]
            fault = Fault(node, peers[0], f"{hca} does not communicate with {there} of {peers[0]}", own)
            couple[min(node, peers[0]), max(node, peers[0])].append(fault)
        else:
            peer = peers[0] if len(peers) == 1 else None
            yield Fault(node, peer, f"{hca} does not communicate with {few(peers)}", own)
    for (node, peer), of_both in couple.items():
        tried = sum({node, peer} == {one.caller, one.called} for one in trials)
        if 1 < len(of_both) == tried:
            where = f"none of {tried} adapters communicates with its counterpart on {peer}"
            yield Fault(node, peer, where, tuple(one for fault in of_both for one in fault.trials))
        else:
            yield from of_both


def result(
    trials: Sequence[RailTrial], untried: Mapping[str, str], why: str = "", failed: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Return the result of rdma_rails.

    untried: {node: why the node was skipped}. why: the reason if nothing was tested. failed: {node: why the node did
    not respond}.
    """
    findings = [
        *judge(trials),
        *(
            UNTRIED.unknown(node, f"RDMA adapters could not be tested: {said}", "Fix the problem, then test again")
            for node, said in (failed or {}).items()
        ),
    ]
    skipped: list[Skipped] = list(skip_all(CHECKS, why)) if why else []
    for node, reason in untried.items():
        skipped.append(Skipped(id="rdma.rail", why=reason, node=node))
    for tool in dict.fromkeys(one.missing for one in trials if one.missing):
        where = few(
            list(dict.fromkeys(name for one in trials if one.missing == tool for name in (one.caller, one.called)))
        )
        checks = CHECKS if tool == PINGPONG else (SLOW_RAIL, LATE_RAIL)
        skipped += skip_all(checks, f"{tool} is missing on at least one of {where} ({PACKAGES[tool]})")
    return {
        "rails": [one.as_dict() for one in trials],
        "findings": [finding.as_dict() for finding in findings],
        "verdict": add_up(
            findings, skipped=skipped, ran=[check.id for check in CHECKS] if any(map(spoke, trials)) else []
        ),
    }
