"""The accepted state of a cluster: what a healthy run measured and on what, and by how much a later run is slower.

It is kept for each mode, backend and layout of ranks (acceptance.json, beside the runs, so that it outlives them). The
first healthy run is accepted by itself, and adds what it measured for the first time; a later one on request.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from statistics import median
from typing import TYPE_CHECKING, Any

from ..verdict.check import Check
from ..verdict.commands import playbook
from ..verdict.words import few, plural
from .metrics import KINDS, drop_of, metrics, positive, rows, told, word

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..verdict.finding import Finding
    from .metrics import Metric
    from .reports import Reports

HISTORY = 10  # healthy runs whose values are kept, for their spread
LEARNT = 6  # values from which a spread is taken; before that, twice the fixed part is allowed
# The difference of two values that scatter alike has 1.4 times their spread, and ten values easily show two thirds of
# it. With this, forty values of each of two hundred runs that scatter by 10 % tell nothing (a test holds it).
SPREADS = 8.0
MAD = 1.4826  # https://en.wikipedia.org/wiki/Median_absolute_deviation: to the standard deviation of a normal one
MOST = 0.8  # of a value; however much it scatters, to lose more than this is told
APART = 3  # nodes that have a finding of their own for one kind of value; more are one
SETTINGS = ("--batch-size=", "--steps=")  # of the payload; with others it measures something else

REGRESSION = Check(
    "smoke.regression",
    seen="sandbox",
    reads="GEMM rate, bandwidths, latency, compute time, throughput and efficiency, against the accepted state of the"
    " same mode, backend and layout (acceptance.json)",
    fires="a value is worse by more than 5 % (GEMM, memory), 10 % (links, compute, efficiency), 15 % (throughput) or"
    " 50 % (latency), on CPUs 50 %, and by more than eight times the spread of the last ten healthy runs; always where"
    " 80 % are lost (warn, or fail with ddp_smoke_regression). Twice as much is allowed until there are six such runs",
    fix="If it is to stay as it is now, accept that with",
    command=playbook("playbooks/ddp_smoke.yml", ddp_smoke_accept="true"),
)
ACCEPTED = Check(
    "smoke.accepted",
    seen="sandbox",
    reads="whether a run may be the cluster's accepted state",
    fires="it was requested with ddp_smoke_accept, and something in the run is not healthy (fail)",
    fix="Fix what was found, then accept it with",
    command=playbook("playbooks/ddp_smoke.yml", ddp_smoke_accept="true"),
)
CHECKS = (REGRESSION, ACCEPTED)
# Of what health sees of a node, beside what the ranks say themselves.
TRAITS = ("os", "kernel", "driver", "vbios", "hca_firmware")


@dataclass(frozen=True)
class AcceptanceHistory:
    """book: acceptance.json as it is. run, date: of this run. accept: whether it is requested. severity: of a drop.

    looks: what health saw on each node in this run, where it looked.
    """

    book: Mapping[str, Any] = field(default_factory=dict)
    run: str = ""
    date: str = ""
    accept: bool = False
    severity: str = "warn"
    looks: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Settled:
    """book: acceptance.json as it is to be, None where it stays. shown: for smoke.json. note: for the summary."""

    findings: Sequence[Finding] = ()
    book: Mapping[str, Any] | None = None
    shown: Mapping[str, Any] = field(default_factory=dict)
    note: str = ""


@dataclass(frozen=True)
class Drop:
    """A value that is worse than accepted by more than its bound."""

    metric: Metric
    before: float
    lost: float
    bound: float

    def __str__(self) -> str:
        kind = KINDS[self.metric.kind]
        worse = f"{100 * self.lost:.0f} % below" if kind.higher_is_better else f"{self.slower:.0f} % above"
        now, before = (told(self.metric.kind, value) for value in (self.metric.value, self.before))
        return f"{kind.title} of {self.metric.where} is {now}, {worse} the accepted state ({before})"

    @property
    def slower(self) -> float:
        return 100 * (self.metric.value / self.before - 1)


def settle(reports: Reports, smoke: Mapping[str, Any], past: AcceptanceHistory, wrong: Sequence[str]) -> Settled:
    """Compare, accept or refuse. wrong: what stands against this run, in words; empty where it is healthy."""
    measured = metrics(smoke)
    layout = layout_of(reports)
    state = state_of(past.book, layout)
    if not measured:
        return Settled([_refused(reports.head, ["nothing was measured"])] if past.accept else [])
    if past.accept and wrong:
        return Settled([_refused(reports.head, wrong)], shown=_shown(state, measured, []))
    if past.accept or (not state and not wrong):
        book = _with(past.book, layout, _accepted(reports, smoke, measured, past, layout))
        note = "accepted as the state that later runs are compared with"
        said = ACCEPTED.passed(reports.head, f"{plural(len(measured), 'value')} {note}")
        return Settled([said], book, {"run": past.run, "date": past.date, "accepted": True}, note)
    if not state:
        return Settled()
    drops = sorted(compared(measured, state, reports.plan.backend), key=lambda drop: -drop.lost)
    findings = _findings(drops, reports, since(state, about(smoke, past.looks)), past.severity)
    remembered = None
    if not drops and not wrong:
        count = len(_pairs(measured, state))
        text = f"{plural(count, 'value')} as in the accepted state of {_day(state)}"
        findings = [REGRESSION.passed(reports.head, text)] if count else []
        remembered = _with(past.book, layout, _remembered(state, measured, past))
    return Settled(findings, remembered, _shown(state, measured, drops))


def layout_of(reports: Reports) -> dict[str, Any]:
    """What must be the same for two runs to be compared."""
    return {
        "mode": reports.mode,
        "backend": reports.plan.backend,
        "world_size": reports.plan.world_size,
        "nodes": {node: len(ranks) for node, ranks in reports.plan.ranks.items()},
        "settings": sorted(one for one in reports.plan.head.argv if one.startswith(SETTINGS)),
    }


def state_of(book: Mapping[str, Any], layout: Mapping[str, Any]) -> Mapping[str, Any]:
    """The accepted state of that layout; empty where there is none."""
    return next((state for state in rows(book, "states") if state.get("layout") == layout), {})


def compared(measured: Mapping[str, Metric], state: Mapping[str, Any], backend: str) -> list[Drop]:
    """What is worse than its bound allows."""
    drops = []
    for metric, identity, before in _pairs(measured, state):
        bound = bound_of(
            metric.kind, backend, [one for run in rows(state, "history") if (one := _value(run, identity))]
        )
        lost = drop_of(metric.kind, before, metric.value)
        if bound is not None and lost > bound:
            drops.append(Drop(metric, before, lost, bound))
    return drops


def bound_of(kind: str, backend: str, values: Sequence[float]) -> float | None:
    """The part that may be lost: the kind's own, or what healthy runs have scattered by; None where it says nothing."""
    fixed = KINDS[kind].accelerated if backend == "nccl" else KINDS[kind].bare
    if fixed is None:
        return None
    if len(values) < LEARNT:
        return min(MOST, 2 * fixed)
    usual = median(values)
    spread = MAD * median(abs(value - usual) for value in values) / usual
    return min(MOST, max(fixed, SPREADS * spread))


def _value(run: Mapping[str, Any], identity: str) -> float | None:
    values = run.get("values")
    return positive(values.get(identity)) if isinstance(values, dict) else None


def _pairs(measured: Mapping[str, Metric], state: Mapping[str, Any]) -> list[tuple[Metric, str, float]]:
    """What both have: the value now, the id it was accepted under, and the value then.

    A GPU is known by its UUID, wherever it is now; one that took the place of another is compared with that one.
    """
    kept = state.get("values")
    accepted = {key: one for key, one in kept.items() if isinstance(one, dict)} if isinstance(kept, dict) else {}
    here = {metric.gpu for metric in measured.values() if metric.gpu}
    by_gpu = {
        (one.get("kind"), one["gpu"]): key for key, one in accepted.items() if one.get("gpu") and one["gpu"] in here
    }
    pairs = []
    for identity, metric in measured.items():
        key = by_gpu.get((metric.kind, metric.gpu), identity)
        there = accepted.get(key, {})
        moved = key == identity and there.get("gpu") in here and there.get("gpu") != metric.gpu
        before = positive(there.get("value"))
        if before is not None and not moved:
            pairs.append((metric, key, before))
    return pairs


def _findings(drops: Sequence[Drop], reports: Reports, since: str, severity: str) -> list[Finding]:
    """One for each kind and node, with the worst of it; one for a kind that is worse on many nodes."""
    groups: dict[tuple[str, str], list[Drop]] = {}
    for kind in dict.fromkeys(drop.metric.kind for drop in drops):
        its = [drop for drop in drops if drop.metric.kind == kind]
        many = len({drop.metric.node for drop in its}) > APART
        for drop in its:
            groups.setdefault((kind, "" if many else drop.metric.node), []).append(drop)
    findings = []
    for (_, node), its in groups.items():
        worst = its[0]
        nodes = len({drop.metric.node for drop in its})
        also = f" So are {len(its) - 1} more" + (f", on {nodes} nodes in all" if nodes > 1 else "") + "."
        text = f"{worst}." + (also if len(its) > 1 else "") + since
        say = REGRESSION.fail if severity == "fail" else REGRESSION.warn
        least = told(worst.metric.kind, worst.before)
        allowed = f"{least}, and at most {100 * worst.bound:.0f} % worse"
        seen = told(worst.metric.kind, worst.metric.value)
        findings.append(say(node or reports.head, text.rstrip("."), observed=seen, expected=allowed))
    return findings


def _refused(head: str, wrong: Sequence[str]) -> Finding:
    more = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
    return ACCEPTED.fail(head, f"this run was not accepted as the cluster's state, since {wrong[0]}{more}")


def _accepted(
    reports: Reports,
    smoke: Mapping[str, Any],
    measured: Mapping[str, Metric],
    past: AcceptanceHistory,
    layout: Mapping[str, Any],
) -> dict[str, Any]:
    given = asdict(reports.bounds)
    lost = {f"{kind}_may_lose": bound_of(kind, reports.plan.backend, []) for kind in KINDS}
    return {
        "layout": layout,
        "run": past.run,
        "date": past.date,
        "requested": past.accept,
        "bounds": {**{name: value for name, value in given.items() if isinstance(value, (int, float))}, **lost},
        **about(smoke, past.looks),
        "values": {identity: _kept(metric, past) for identity, metric in measured.items()},
        "history": [_in_history(measured, past)],
    }


def _remembered(state: Mapping[str, Any], measured: Mapping[str, Metric], past: AcceptanceHistory) -> dict[str, Any]:
    """The state with this healthy run in its history, and with what was not measured when it was accepted."""
    values = state.get("values")
    known = {key for _, key, _ in _pairs(measured, state)}
    new = {key: _kept(metric, past) for key, metric in measured.items() if key not in known}
    return {
        **state,
        "values": {**new, **(values if isinstance(values, dict) else {})},
        "history": [_in_history(measured, past), *rows(state, "history")][:HISTORY],
    }


def _kept(metric: Metric, past: AcceptanceHistory) -> dict[str, Any]:
    kind = KINDS[metric.kind]
    about_it = {"unit": kind.unit, "higher_is_better": kind.higher_is_better, "run": past.run}
    return {**{key: value for key, value in metric._asdict().items() if key != "key"}, **about_it}


def _in_history(measured: Mapping[str, Metric], past: AcceptanceHistory) -> dict[str, Any]:
    values = {identity: metric.value for identity, metric in measured.items()}
    return {"run": past.run, "date": past.date, "values": values}


def _with(book: Mapping[str, Any], layout: Mapping[str, Any], state: Mapping[str, Any]) -> dict[str, Any]:
    others = [other for other in rows(book, "states") if other.get("layout") != layout]
    return {"schema": 1, "states": [state, *others]}


def _shown(state: Mapping[str, Any], measured: Mapping[str, Metric], drops: Sequence[Drop]) -> dict[str, Any]:
    """For the page: what this run was compared with, and the values beside each other."""
    if not state:
        return {}
    worse = {(drop.metric.kind, drop.metric.key) for drop in drops}
    values = [
        {
            "title": KINDS[metric.kind].title,
            "where": metric.where,
            "unit": KINDS[metric.kind].unit,
            "now": metric.value,
            "before": before,
            "lost": round(drop_of(metric.kind, before, metric.value), 4),
            "drop": (metric.kind, metric.key) in worse,
        }
        for metric, _, before in _pairs(measured, state)
    ]
    return {"run": word(state.get("run")), "date": word(state.get("date")), "values": values}


def _day(state: Mapping[str, Any]) -> str:
    return f"{word(state.get('date'))[:10]} (run {word(state.get('run'))})"


def about(smoke: Mapping[str, Any], looks: Mapping[str, Any]) -> dict[str, dict[str, dict[str, str]]]:
    """Versions by node, and the GPU of each rank. looks: what health saw in the same run, where it looked."""
    versions: dict[str, dict[str, str]] = {}
    gpus: dict[str, dict[str, str]] = {}
    for rank in rows(smoke, "ranks"):
        node, gpu = word(rank.get("node")), word(rank.get("gpu_uuid"))
        look = _inner(looks, node)
        traits = _inner(look, "traits")
        said = {**{name: traits.get(name) for name in TRAITS}, **_inner(_facts(rank), "versions")}
        known = {word(name): word(value) for name, value in sorted(said.items(), key=str) if word(value)}
        if known:
            versions.setdefault(node, {}).update(known)
        if gpu:
            serials = {
                word(one.get("uuid")): word(one.get("serial")) for one in rows(_inner(look, "facts", "gpu"), "gpus")
            }
            serial = {"serial": serials[gpu]} if serials.get(gpu) else {}
            gpus[f"{node}, local rank {word(rank.get('local_rank'))}"] = {"uuid": gpu, **serial}
    return {"versions": versions, "gpus": gpus}


def since(state: Mapping[str, Any], now: Mapping[str, dict[str, dict[str, str]]]) -> str:
    """What is no longer as it was when the state was accepted, as a sentence; of what is known of both."""
    groups: dict[str, list[str]] = {}
    for part, places in now.items():
        for place, said in places.items():
            before = _inner(state, part, place)
            for what, value in said.items():
                old = before.get(what)
                if isinstance(old, str) and old != value:
                    title = {"uuid": "", "serial": "serial number "}.get(what, f"{what} ")
                    groups.setdefault(f"{title}{old} -> {value}", []).append(place)
    changes = [f"{change} ({few(places)})" for change, places in groups.items()]
    return f" Changed since then: {few(changes, '; ')}" if changes else ""


def _facts(rank: Mapping[str, Any]) -> Mapping[str, Any]:
    return _inner(rank, "stages", "world", "facts")


def _inner(value: Any, *names: str) -> Mapping[str, Any]:
    """A mapping inside mappings of foreign input; empty where there is none."""
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else {}
