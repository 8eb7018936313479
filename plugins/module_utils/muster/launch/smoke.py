"""Did the smoke launch compute what it should: judged on the controller, from what every rank reported by itself.

The payload (roles/ddp_smoke/files/ddp_smoke.py) only reports facts. A rank that did not report is a failure: nothing
is concluded from its peers.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from ..verdict.check import Check
from ..verdict.finding import Finding, add_up, as_lines
from ..verdict.words import plural

if TYPE_CHECKING:
    from ..verdict.finding import Verdict

REPORT = Check(
    "smoke.report",
    reads="what each rank reported",
    fires="a rank did not report, so that nothing is said of it (fail)",
    fix="Read the rank's log",
)
LAYOUT = Check(
    "smoke.layout",
    reads="rank, local rank, node rank, world size and backend, as each rank sees them",
    fires="they are not as planned (fail)",
    fix="Compare with plan.json; an own environment may have changed them",
)
MACHINES = Check(
    "smoke.machines",
    reads="the machine id that each rank sees",
    fires="two nodes of the inventory are one machine (fail)",
    fix="List every machine once",
)
ALL_REDUCE = Check(
    "smoke.all_reduce",
    reads="an all-reduce of integers, compared place by place",
    fires="it is not exact (fail)",
    fix="Look at the node's GPUs and links",
)
PARAMETERS = Check(
    "smoke.parameters",
    reads="a digest of the parameters after training, of every rank",
    fires="they are not bitwise the same; the odd ranks are named (fail)",
    fix="Look at the node's GPUs and memory",
)
LOSS = Check(
    "smoke.loss",
    reads="the mean loss over all ranks, first and last",
    fires="it did not fall below ddp_smoke_loss_ratio, or is no number (fail)",
    fix="Train for more steps (ddp_smoke_steps), or look at the ranks",
)

PERIOD = 997  # of the all-reduce pattern: rank r sends (i mod 997 + 1) * (r + 1) at place i


def expected_sum(size: int, world_size: int) -> int:
    """Sum over all places of the reduced pattern; exact in integers."""
    whole, rest = divmod(size, PERIOD)
    pattern = whole * (PERIOD * (PERIOD + 1) // 2) + rest * (rest + 1) // 2
    return pattern * (world_size * (world_size + 1) // 2)


def planned_ranks(plan: dict[str, Any]) -> dict[int, tuple[str, int]]:
    """{rank: (node, local rank)} as the plan has it."""
    return {rank: (entry["node"], local) for entry in plan["nodes"] for local, rank in enumerate(entry["ranks"])}


def by_rank(events: list[dict[str, Any]], kind: str) -> dict[int, dict[str, Any]]:
    """Events of one kind by the rank whose log they came from (not by what they claim)."""
    return {event["from_rank"]: event for event in events if event.get("event") == kind}


def judge(plan: dict[str, Any], events: list[dict[str, Any]], loss_ratio: float) -> list[Finding]:
    """Findings of a smoke launch that ended well. loss_ratio: the last losses must be below this part of the first."""
    hello, result = by_rank(events, "hello"), by_rank(events, "result")
    return [
        *ranks_reported(plan, hello, result),
        *layout(plan, hello),
        *machines(plan, hello),
        *all_reduce(plan, result),
        *parameters(plan, result),
        *loss(plan, result, loss_ratio),
    ]


def ranks_reported(plan: dict[str, Any], hello: dict[int, Any], result: dict[int, Any]) -> list[Finding]:
    found = []
    for rank, (node, local) in planned_ranks(plan).items():
        for name, said in (("start", hello), ("result", result)):
            if rank not in said:
                text = f"rank {rank} (local rank {local}) did not report its {name}"
                found.append(REPORT.fail(node, text, fix="", expected=f"a report of rank {rank}"))
    return found or [REPORT.passed(plan["nodes"][0]["node"], f"all {plural(plan['world_size'], 'rank')} reported")]


def everybody(plan: dict[str, Any], reports: dict[int, Any], key: str) -> bool:
    """Whether every planned rank reported this: only then is anything said of all of them."""
    return all(key in reports.get(rank, {}) for rank in planned_ranks(plan))


def good(plan: dict[str, Any], check: Check, text: str, *, all_reported: bool) -> list[Finding]:
    """Nothing is wrong with what was reported; whether that is enough to say so is another question."""
    node = plan["nodes"][0]["node"]
    if all_reported:
        return [check.passed(node, text)]
    return [check.unknown(node, f"not known of all ranks. Of those that reported: {text}", fix="")]


def layout(plan: dict[str, Any], hello: dict[int, Any]) -> list[Finding]:
    """World size, rank, local rank and node rank of every rank against the plan."""
    node_rank = {entry["node"]: entry["node_rank"] for entry in plan["nodes"]}
    found = []
    for rank, (node, local) in planned_ranks(plan).items():
        said = hello.get(rank)
        if said is None:
            continue
        wanted = {
            "world_size": plan["world_size"],
            "rank": rank,
            "local_rank": local,
            "node_rank": node_rank[node],
            "backend": plan["backend"],
        }
        wrong = {name: (said.get(name), value) for name, value in wanted.items() if said.get(name) != value}
        if wrong:
            text = ", ".join(f"{name} is {seen}, not {value}" for name, (seen, value) in wrong.items())
            found.append(LAYOUT.fail(node, f"rank {rank}: {text}", fix=""))
    text = f"world size {plan['world_size']}, ranks laid out as planned"
    return found or good(plan, LAYOUT, text, all_reported=everybody(plan, hello, "rank"))


def machines(plan: dict[str, Any], hello: dict[int, Any]) -> list[Finding]:
    """Two nodes of the inventory must not be one machine under two names."""
    owner: dict[str, str] = {}
    found = []
    for rank, said in sorted(hello.items()):
        node = said["from_node"]
        machine = said.get("machine")
        if machine is None:
            continue
        other = owner.setdefault(machine, node)
        if other != node:
            text = f"is the same machine as {other}: rank {rank} runs where {other}'s ranks run"
            found.append(MACHINES.fail(node, text, fix="", peer=other, observed=machine))
    text = plural(len(set(owner.values())), "separate machine")
    return found or good(plan, MACHINES, text, all_reported=everybody(plan, hello, "machine"))


def all_reduce(plan: dict[str, Any], result: dict[int, Any]) -> list[Finding]:
    """Integer all-reduce, exact at every place on every rank; the total is computed here once more."""
    found = []
    nodes = planned_ranks(plan)
    sizes: set[int] = set()
    for rank, said in sorted(result.items()):
        for reduced in said.get("all_reduce", []):
            wanted = expected_sum(reduced["size"], plan["world_size"])
            sizes.add(reduced["size"])
            if reduced["mismatches"] or reduced["sum"] != wanted:
                where = f"at {plural(reduced['mismatches'], 'place')}" if reduced["mismatches"] else "in its total"
                text = f"rank {rank}: all-reduce of {reduced['size']} integers is wrong {where}"
                seen = str(reduced["sum"])
                found.append(ALL_REDUCE.fail(nodes[rank][0], text, fix="", observed=seen, expected=str(wanted)))
        if not said.get("all_reduce"):
            found.append(ALL_REDUCE.fail(nodes[rank][0], f"rank {rank} reported no all-reduce", fix=""))
    text = f"integer all-reduce exact ({', '.join(str(size) for size in sorted(sizes))} elements)"
    return found or good(plan, ALL_REDUCE, text, all_reported=everybody(plan, result, "all_reduce"))


def parameters(plan: dict[str, Any], result: dict[int, Any]) -> list[Finding]:
    """After training, every rank must hold bitwise the same parameters."""
    groups: dict[str, list[int]] = {}
    for rank, said in sorted(result.items()):
        if "parameters_sha256" in said:
            groups.setdefault(said["parameters_sha256"], []).append(rank)
    if len(groups) <= 1:
        whole = everybody(plan, result, "parameters_sha256")
        return good(plan, PARAMETERS, "parameters bitwise equal after training", all_reported=whole)
    # The largest group is right by majority; with a tie nobody is blamed.
    ordered = sorted(groups.values(), key=len, reverse=True)
    tie = len(ordered) > 1 and len(ordered[0]) == len(ordered[1])
    odd = [rank for group in ordered[0 if tie else 1 :] for rank in group]
    nodes = planned_ranks(plan)
    text = f"parameters differ between ranks after training: {'; '.join(str(group) for group in ordered)}"
    return [PARAMETERS.fail(node, text, fix="") for node in sorted({nodes[rank][0] for rank in odd})]


def loss(plan: dict[str, Any], result: dict[int, Any], ratio: float) -> list[Finding]:
    """The mean loss over all ranks has fallen."""
    pairs = [(said["loss_first"], said["loss_last"]) for said in result.values() if "loss_last" in said]
    head = plan["nodes"][0]["node"]
    if not pairs:
        return [LOSS.unknown(head, "no rank reported a loss", fix="")]
    first, last = (sum(column) / len(pairs) for column in zip(*pairs, strict=True))
    text = f"loss {first:.3f} -> {last:.3f}"
    # Written so that NaN and infinity fail.
    if math.isfinite(first) and math.isfinite(last) and last < first * ratio:
        return good(plan, LOSS, text, all_reported=everybody(plan, result, "loss_last"))
    wanted = f"below {first * ratio:.3f}"
    return [LOSS.fail(head, f"{text}: it did not fall", fix="", observed=text, expected=wanted)]


def measured(plan: dict[str, Any], events: list[dict[str, Any]]) -> dict[str, Any]:
    """The content of smoke.json: what was measured, by rank and in all."""
    hello, result = by_rank(events, "hello"), by_rank(events, "result")
    rates = [said["samples_per_second"] for said in result.values() if "samples_per_second" in said]
    return {
        "schema": 1,
        "launch_id": plan["launch_id"],
        "backend": plan["backend"],
        "world_size": plan["world_size"],
        "samples_per_second": round(sum(rates), 1) if rates else None,
        "loss_first": mean(result, "loss_first"),
        "loss_last": mean(result, "loss_last"),
        "steps": [
            {key: event[key] for key in ("step", "loss", "samples_per_second")}
            for event in events
            if event.get("event") == "step"
        ],
        "ranks": [
            {**hello.get(rank, {}), **result.get(rank, {}), "event": "rank"} for rank in sorted(planned_ranks(plan))
        ],
    }


def mean(result: dict[int, Any], key: str) -> float | None:
    values = [said[key] for said in result.values() if key in said]
    return round(sum(values) / len(values), 6) if values else None


def verdict(plan: dict[str, Any], launch: dict[str, Any], events: list[dict[str, Any]], loss_ratio: float) -> Verdict:
    """The launch's verdict with the smoke's findings added; one line for people as its summary."""
    findings = [Finding(**finding) for finding in launch["findings"]]
    checks = judge(plan, events, loss_ratio)
    failed = [finding for finding in checks if finding.status == "fail"]
    bad = failed or [finding for finding in checks if finding.status == "unknown"]
    facts = measured(plan, events)
    if bad:
        what = "its result is wrong" if failed else "its result could not be checked"
        summary = f"the launch ran, but {what}. {'; '.join(as_lines(bad))}"
    else:
        rate = facts["samples_per_second"]
        summary = (
            f"{plural(plan['world_size'], 'rank')} on {plural(len(plan['nodes']), 'node')} trained together"
            f" ({plan['backend']}): all-reduce exact, parameters equal,"
            f" loss {facts['loss_first']:.2f} -> {facts['loss_last']:.2f}"
            + (f", {rate:.0f} samples/s" if rate is not None else "")
        )
    besides = [finding for finding in findings if finding.status not in ("pass", "skipped")]
    return add_up([*findings, *checks], "; ".join([summary, *as_lines(besides)]))
