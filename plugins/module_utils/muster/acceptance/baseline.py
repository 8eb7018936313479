"""Store the accepted state of a cluster (measurements, versions and GPUs of a healthy run), and compare later runs.

acceptance.json contains one accepted state for each mode, backend and layout of ranks. The file is stored beside the
folders of the runs, so that it remains when the folders are removed. The first healthy run is accepted automatically,
and a later run on request. Later healthy runs add values that were not measured before.
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

HISTORY = 10  # healthy runs whose values are kept to calculate the spread
LEARNT = 6  # values that are required for a spread; with fewer values, twice the fixed part is allowed
# The difference of two values with the same spread has 1.4 times that spread, and ten values may well show only two
# thirds of it. With this factor, two hundred runs of forty values with a spread of 10 % have no finding (see the test).
SPREADS = 8.0
MAD = 1.4826  # standard deviation / MAD: https://en.wikipedia.org/wiki/Median_absolute_deviation
MOST = 0.8  # of a value; a larger loss is reported whatever the spread
APART = 3  # up to this number of nodes, each node has a finding for a kind of value; more nodes share one finding
SETTINGS = ("--batch-size=", "--steps=")  # options of the payload; runs with different values are not comparable

REGRESSION = Check(
    "smoke.regression",
    seen="sandbox",
    reads="GEMM rate, bandwidths, latency, compute time, throughput and efficiency, compared with the accepted state of"
    " the same mode, backend and layout (acceptance.json)",
    fires="a value is worse by more than 5 % (GEMM, memory), 10 % (links, compute, efficiency), 15 % (throughput) or "
    "50 % (latency; every value on CPUs), and by more than eight times the spread of the last ten healthy runs "
    "(warn; fail if ddp_smoke_regression is fail). With fewer than six healthy runs, the percentages are doubled. A "
    "loss of more than 80 % is always reported",
    fix="If the new values are expected, accept them",
    command=playbook("playbooks/ddp_smoke.yml", ddp_smoke_accept="true"),
)
ACCEPTED = Check(
    "smoke.accepted",
    seen="sandbox",
    reads="the findings of a run that is to become the cluster's accepted state",
    fires="ddp_smoke_accept is set, but the run is not healthy (fail)",
    fix="Fix the findings, then accept a new run",
    command=playbook("playbooks/ddp_smoke.yml", ddp_smoke_accept="true"),
)
CHECKS = (REGRESSION, ACCEPTED)
# Properties of a node from the health check; the ranks report the others.
TRAITS = ("os", "kernel", "driver", "vbios", "hca_firmware")


@dataclass(frozen=True)
class AcceptanceHistory:
    """The accepted states and properties of this run. book: the current content of acceptance.json. run, date: ID and
    date of this run. accept: whether the user requested to accept this run. severity: status of the finding for a drop.

    looks: the health inspection of each node in this run, if there was one.
    """

    book: Mapping[str, Any] = field(default_factory=dict)
    run: str = ""
    date: str = ""
    accept: bool = False
    severity: str = "warn"
    looks: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Settled:
    """The result of the comparison with the accepted state. book: the new content of acceptance.json, None if it is
    unchanged. shown: the part of smoke.json about the accepted state. note: text for the summary."""

    findings: Sequence[Finding] = ()
    book: Mapping[str, Any] | None = None
    shown: Mapping[str, Any] = field(default_factory=dict)
    note: str = ""


@dataclass(frozen=True)
class Drop:
    """A value that is worse than the accepted one by more than its bound."""

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
    """Compare a run with the accepted state, or accept or reject the run. wrong: the run's problems; empty if the run
    is healthy."""
    measured = metrics(smoke)
    layout = layout_of(reports)
    state = state_of(past.book, layout)
    if not measured:
        return Settled([_refused(reports.head, ["nothing was measured"])] if past.accept else [])
    if past.accept and wrong:
        return Settled([_refused(reports.head, wrong)], shown=_shown(state, measured, []))
    if past.accept or (not state and not wrong):
        book = _with(past.book, layout, _accepted(reports, smoke, measured, past, layout))
        note = "saved as the accepted state"
        said = ACCEPTED.passed(reports.head, f"{plural(len(measured), 'value')} {note}")
        return Settled([said], book, {"run": past.run, "date": past.date, "accepted": True}, note)
    if not state:
        return Settled()
    drops = sorted(compared(measured, state, reports.plan.backend), key=lambda drop: -drop.lost)
    changes = since(state, about(smoke, past.looks))
    sentence = f" Changed since the accepted run: {changes}" if changes else ""
    findings = _findings(drops, reports, sentence, past.severity)
    remembered = None
    if not drops and not wrong:
        count = len(_pairs(measured, state))
        text = f"{plural(count, 'value')} within the bounds of the accepted state of {_day(state)}"
        findings = [REGRESSION.passed(reports.head, text)] if count else []
        remembered = _with(past.book, layout, _remembered(state, measured, past))
    return Settled(findings, remembered, _shown(state, measured, drops))


def layout_of(reports: Reports) -> dict[str, Any]:
    """Return the properties that must be equal for two runs to be comparable."""
    return {
        "mode": reports.mode,
        "backend": reports.plan.backend,
        "world_size": reports.plan.world_size,
        "nodes": {node: len(ranks) for node, ranks in reports.plan.ranks.items()},
        "settings": sorted(one for one in reports.plan.head.argv if one.startswith(SETTINGS)),
    }


def state_of(book: Mapping[str, Any], layout: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the accepted state of a layout; empty if none exists."""
    return next((state for state in rows(book, "states") if state.get("layout") == layout), {})


def compared(measured: Mapping[str, Metric], state: Mapping[str, Any], backend: str) -> list[Drop]:
    """Return the values that are worse than their bounds allow."""
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
    """Return the allowed loss as a fraction. It is fixed or follows from the spread of healthy runs. None means that
    the value is not compared."""
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
    """Return (current value, id in the accepted state, accepted value) of the values that both runs have.

    A GPU is identified by its UUID, even if it was moved. A replacement GPU is compared with the GPU that it replaced.
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
    """Return one finding per kind of value and node, with the worst value. If a kind is worse on many nodes, return one
    finding for all of them."""
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
        also = f" {len(its) - 1} more {'value is' if len(its) == 2 else 'values are'} worse"
        also += (f", on {nodes} nodes in total" if nodes > 1 else "") + "."
        text = f"{worst}." + (also if len(its) > 1 else "") + since
        say = REGRESSION.fail if severity == "fail" else REGRESSION.warn
        least = told(worst.metric.kind, worst.before)
        allowed = f"{least}, at most {100 * worst.bound:.0f} % worse"
        seen = told(worst.metric.kind, worst.metric.value)
        findings.append(say(node or reports.head, text.rstrip("."), observed=seen, expected=allowed))
    return findings


def _refused(head: str, wrong: Sequence[str]) -> Finding:
    more = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
    return ACCEPTED.fail(head, f"this run was not saved as the accepted state: {wrong[0]}{more}")


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
    """Return the accepted state with this healthy run added to its history, and with values that the accepted run did
    not measure."""
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
    """Return the accepted run and both values of each metric, for the report."""
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
    """Return the versions by node, and the GPU of each rank. looks: the health inspections of the same run, if there
    were any."""
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
    """Return which versions and GPUs changed since the state was accepted, as far as both are known."""
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
    return few(changes, "; ")


def _facts(rank: Mapping[str, Any]) -> Mapping[str, Any]:
    return _inner(rank, "stages", "world", "facts")


def _inner(value: Any, *names: str) -> Mapping[str, Any]:
    """Return a nested mapping of untrusted input; an empty mapping if it is missing."""
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else {}
