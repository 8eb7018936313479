"""Check the device of each rank by itself: its results must be correct, and its speed must be typical of the model and
of similar devices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ..verdict.check import Check
from ..verdict.words import plural
from . import agreement
from .link_floors import PEER as PEER_LINK
from .link_floors import link_floor
from .reports import finite

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ..verdict.check import Said
    from .reports import Reports

# In five large clusters, GPUs of one model varied by 8 % on average and 22 % at most; outliers were up to 1.5 times
# slower than the median: abstract of https://arxiv.org/abs/2208.11035. So 15 % is more than usual, and 30 % is an
# outlier.
ODD, FAR = 0.85, 0.7
# Fractions of the link's rate. check_gpu_bw of https://github.com/Azure/azurehpc-health-checks (0e0a1ac2,
# conf/nd96*.conf) fails an H100 on PCIe 5 x16 (63 GB/s) below 48 (76 %), and an A100 on PCIe 4 x16 (31.5 GB/s) below
# 21 (67 %). So there is no finding above 65 %; 50 % is a link with half its width.
LINK_ODD, LINK_FAR = 0.65, 0.5
# Above this rate, a pair of GPUs is connected by NVSwitches: PCIe 5 x16 carries 63 GB/s, and the same check_gpu_bw
# fails pairs of A100 below 235 and of H100 below 335.
SWITCHED_GBPS = 100.0

GEMM = Check(
    "smoke.gemm",
    seen="sandbox",
    reads="matrix products on each rank's device, repeated and compared bitwise; integer matrix products, compared "
    "with the exact sums of their rows and columns",
    fires="a product is wrong (fail)",
    fix="Remove the node from launches and run the long DCGM diagnostics on it (dcgmi diag -r 3). If a device "
    "silently computes wrong results, return the device to its vendor",
)
FLOOR = Check(
    "smoke.gpu_floor",
    seen="stand-in",
    reads="the rates of matrix products and of memory copies on each GPU",
    fires="a rate is below the floor for the GPU model in the role's gpu_rates.yml, which is a fraction of the data "
    "sheet's peak (fail). Models that are not in this file have no floor",
    fix="Check the GPU's clocks, power and temperature under load: nvidia-smi -q -d PERFORMANCE,POWER,TEMPERATURE",
)
SLOWER = Check(
    "smoke.gpu_slower",
    seen="stand-in",
    reads="the rates of matrix products, memory copies and copies between host and GPU, compared with the median of "
    "all GPUs of the same model (at least three GPUs)",
    fires=f"a rate is below {ODD:.0%} (warn) or {FAR:.0%} (fail) of the median",
    fix="Compare the GPU's clocks, power and temperature under load with those of another GPU: nvidia-smi -q -d "
    "PERFORMANCE,POWER,TEMPERATURE",
)
HOST = Check(
    "smoke.gpu_host",
    seen="stand-in",
    reads="the rate of copies between pinned host memory and each GPU, one GPU of a node at a time; generation and "
    "width of the PCIe link",
    fires=f"the rate of the copies is below {LINK_ODD:.0%} (warn) or {LINK_FAR:.0%} (fail) of the link's rate",
    fix="Check the width and speed of the PCIe link with the health check, and check the node's NUMA settings",
)
PEER = Check(
    "smoke.gpu_peer",
    seen="stand-in",
    reads="the rate of copies between the GPUs of a node, one pair at a time",
    fires=f"on nodes with NVSwitches (median of {SWITCHED_GBPS:.0f} GB/s or more), a pair of GPUs reaches less than "
    f"{FAR:.0%} of the node's median (warn), or all pairs reach less than other sites (links in gpu_rates.yml; warn)",
    fix="Check the NVLinks of both GPUs: nvidia-smi nvlink -s",
)
DCGM = Check(
    "smoke.dcgm",
    seen="stand-in",
    reads="DCGM diagnostics of all GPUs of a node, if installed: level 2 in full mode, level 3 in soak mode",
    fires="a DCGM test fails (fail) or warns (warn)",
    fix="Follow the advice in the output of the DCGM test",
)
CHECKS = (GEMM, FLOOR, SLOWER, HOST, PEER, DCGM)

STAGE = "device"
NO_GPU = "no rank has a GPU, and CPU rates are not evaluated because ranks share CPUs"
# By fact: verb for messages, and unit.
RATES = {"gemm_tflops": ("computes", "TFLOPS"), "memory_gbps": ("copies in its memory at", "GB/s")}
COPIES = {"h2d_gbps": ("copies from the host at", "GB/s"), "d2h_gbps": ("copies to the host at", "GB/s")}
# GB/s of a PCIe lane in one direction, by generation, without the line code (8b/10b, then 128b/130b; flits since 6):
# https://pcisig.com/specifications. Multiplied by the width, it is the upper limit of any copy.
LANE_GBPS = {1: 0.25, 2: 0.5, 3: 0.985, 4: 1.969, 5: 3.938, 6: 7.563}


def judge(reports: Reports) -> Iterator[Said]:
    if not reports.tried(STAGE):
        return
    yield from gemm(reports)
    models = models_of(reports)
    if not models:
        yield from (check.skip(NO_GPU) for check in CHECKS[1:])
        return
    yield from floors(reports, models)
    yield from slower(reports, models)
    yield from host(reports, models)
    yield from peers(reports, models)
    yield from dcgm(reports)


def models_of(reports: Reports) -> dict[int, str]:
    """Return the GPU model of each rank that computed on a GPU."""
    told = {rank: said.get("model") for rank, said in reports.facts(STAGE).items()}
    return {rank: model for rank, model in told.items() if isinstance(model, str) and model not in ("", "cpu")}


def named(reports: Reports, rank: int) -> str:
    uuid = reports.facts(STAGE).get(rank, {}).get("gpu_uuid")
    return f"{reports.named(rank)}{f', {uuid}' if isinstance(uuid, str) and uuid else ''}"


def gemm(reports: Reports) -> Iterator[Said]:
    found, checked = False, []
    for rank, said in reports.facts(STAGE).items():
        wrong, count = said.get("gemm_wrong"), finite(said.get("gemm_checked"))
        if isinstance(wrong, list) and wrong:  # one wrong product identifies the device
            found = True
            yield GEMM.fail(reports.places[rank].node, f"{named(reports, rank)}: {sentence(wrong[0], said)}")
        elif isinstance(wrong, list) and count and count > 0:
            checked.append(int(count))
    if not found:
        text = f"checked {plural(sum(checked), 'matrix product')}: repeats bitwise equal, integer products exact"
        yield reports.good(GEMM, text, whole=len(checked) == len(reports.places))


def sentence(one: Any, said: Mapping[str, Any]) -> str:
    wrong = one if isinstance(one, dict) else {}
    how = "differs when repeated" if wrong.get("how") == "repeated" else "differs from the exact integer result"
    places, row, column = (finite(wrong.get(name)) for name in ("places", "row", "column"))
    text = f"a matrix product ({said.get('gemm_dtype')}) {how}"
    if places is None or row is None or column is None:
        return text
    return f"{text} in {plural(int(places), 'element')}, first in row {row:.0f}, column {column:.0f}"


def values(reports: Reports, key: str, models: Mapping[int, str]) -> dict[int, float]:
    told = {rank: finite(said.get(key)) for rank, said in reports.facts(STAGE).items() if rank in models}
    return {rank: value for rank, value in told.items() if value is not None and value > 0}


def floors(reports: Reports, models: Mapping[int, str]) -> Iterator[Said]:
    found, held, unknown = False, 0, set()
    for rank, model in models.items():
        bound = floor(reports.bounds.gpu_rates, model)
        if not bound.basis:
            unknown.add(model)
            continue
        for (key, (does, unit)), least in zip(RATES.items(), (bound.gemm, bound.memory), strict=True):
            value = values(reports, key, models).get(rank)
            if value is None or least is None:
                yield FLOOR.unknown(
                    reports.places[rank].node, f"{named(reports, rank)}: the rate {key} is unknown", fix=""
                )
                found = True
            elif value < least:
                found = True
                text = f"{named(reports, rank)}: {short(model)} {does} {value:.4g} {unit}, below {least:.4g}"
                more = {"observed": f"{value:.4g} {unit}", "expected": f"at least {least:.4g} {unit} ({bound.basis})"}
                yield FLOOR.fail(reports.places[rank].node, text, **more)
            else:
                held += 1
    for model in sorted(unknown):
        yield FLOOR.skip(f"no floor is known for {short(model)}; GPUs of this model are compared with each other")
    if held and not found:
        yield reports.good(FLOOR, "all GPUs reach the floors of their models", whole=everywhere(reports))


def everywhere(reports: Reports) -> bool:
    return reports.whole(STAGE, "gemm_tflops") and reports.whole(STAGE, "memory_gbps")


def slower(reports: Reports, models: Mapping[int, str]) -> Iterator[Said]:
    found, compared = False, 0
    for key, (does, unit) in {**RATES, **COPIES}.items():
        for group in agreement.by_model(alone(reports, key, values(reports, key, models)), models):
            middle = agreement.usual(group.values())
            compared += len(group) if middle else 0
            for rank, value in group.items():
                if middle and value < ODD * middle:
                    found = True
                    say = SLOWER.fail if value < FAR * middle else SLOWER.warn
                    text = f"{named(reports, rank)}: {short(models[rank])} {does} {value:.4g} {unit}"
                    text += f", {value / middle:.0%} of the median of {plural(len(group), 'GPU')} ({middle:.4g})"
                    yield say(reports.places[rank].node, text, observed=f"{value:.4g}", expected=f"{middle:.4g}")
    if not compared:
        yield SLOWER.skip(f"the launch has no model with {agreement.MAJORITY} or more GPUs")
    elif not found:
        yield reports.good(SLOWER, "GPUs of the same model have similar rates", whole=everywhere(reports))


def alone(reports: Reports, key: str, told: dict[int, float]) -> dict[int, float]:
    """Return the rates. For copies over a bus, return only rates that were measured while no other copy ran on the
    node."""
    facts = reports.facts(STAGE)
    return told if key in RATES else {rank: value for rank, value in told.items() if facts[rank].get("alone") is True}


def host(reports: Reports, models: Mapping[int, str]) -> Iterator[Said]:
    found, held = False, 0
    for key, (does, unit) in COPIES.items():
        for rank, value in alone(reports, key, values(reports, key, models)).items():
            link = link_gbps(reports.facts(STAGE)[rank].get("smi"))
            if link is None:
                continue
            most, name = link
            held += 1
            if value < LINK_ODD * most:
                found = True
                say = HOST.fail if value < LINK_FAR * most else HOST.warn
                part = f"{value / most:.0%} of the link's rate ({name}, {most:.3g})"
                text = f"{named(reports, rank)}: {does} {value:.3g} {unit}, {part}"
                yield say(
                    reports.places[rank].node, text, observed=f"{value:.3g}", expected=f"{LINK_ODD * most:.3g} {unit}"
                )
    if not held:
        yield HOST.skip("no copy between host and GPU was measured over a known link")
    elif not found:
        whole = reports.whole(STAGE, "h2d_gbps") and reports.whole(STAGE, "d2h_gbps")
        yield reports.good(HOST, "copies between host and GPUs reach the rates of their links", whole=whole)


def peers(reports: Reports, models: Mapping[int, str]) -> Iterator[Said]:
    found, compared = False, 0
    for node in dict.fromkeys(place.node for place in reports.places.values()):
        pairs = list(pairs_of(reports, models, node))
        middle = agreement.usual(value for _, _, value in pairs)
        if middle is None or middle < SWITCHED_GBPS:
            continue
        compared += len(pairs)
        model = short(models[pairs[0][0]])
        others = link_floor(reports.bounds.gpu_rates, PEER_LINK, model)
        if others and middle < others.gbps:
            found = True
            text = (
                f"the GPUs copy to each other at {middle:.3g} GB/s (median), below what other sites reach with {model}"
            )
            yield PEER.warn(node, text, observed=f"{middle:.3g} GB/s", expected=others.basis)
        for rank, peer, value in pairs:
            if value < FAR * middle:
                found = True
                text = f"{named(reports, rank)}: copies to GPU {peer} at {value:.3g} GB/s"
                text += f"; the node's median is {middle:.3g}"
                yield PEER.warn(node, text, observed=f"{value:.3g} GB/s", expected=f"{FAR * middle:.3g} GB/s")
    if not compared:
        yield PEER.skip("no node has three or more pairs of GPUs that are connected by NVSwitches")
    elif not found:
        yield PEER.passed(reports.head, f"{plural(compared, 'pair')} of GPUs copy at similar rates")


def pairs_of(reports: Reports, models: Mapping[int, str], node: str) -> Iterator[tuple[int, int, float]]:
    for rank, said in reports.facts(STAGE).items():
        if rank not in models or reports.places[rank].node != node or not isinstance(said.get("p2p"), list):
            continue
        for pair in said["p2p"]:
            peer, value = (
                (finite(pair.get(name)) for name in ("peer", "gbps")) if isinstance(pair, dict) else (None, None)
            )
            if peer is not None and value is not None:
                yield rank, int(peer), value


def dcgm(reports: Reports) -> Iterator[Said]:
    found, passed = False, 0
    for rank, said in reports.facts(STAGE).items():
        told, node = said.get("dcgm"), reports.places[rank].node
        if reports.places[rank].local_rank or not isinstance(told, dict):
            continue
        if told.get("skipped"):
            yield DCGM.skip(f"{node}: {str(told['skipped'])[:200]}")
        elif not isinstance(told.get("bad"), list):
            found = True
            yield DCGM.unknown(node, f"the DCGM diagnostics returned no result: {str(told.get('why'))[:300]}", fix="")
        for one in told["bad"] if isinstance(told.get("bad"), list) else []:
            found = True
            yield diagnosis(node, one if isinstance(one, dict) else {})
        passed += int(finite(told.get("tests")) or 0)
    if passed and not found:
        yield DCGM.passed(reports.head, f"{plural(passed, 'DCGM test')} passed")


def diagnosis(node: str, one: Mapping[str, Any]) -> Said:
    what = f"the DCGM test {str(one.get('test'))[:80]} {'warns' if one.get('status') == 'warn' else 'fails'}"
    text = f"{what} on GPU {str(one.get('gpu'))[:20]}: {str(one.get('text') or 'no details')[:300]}"
    return DCGM.warn(node, text) if one.get("status") == "warn" else DCGM.fail(node, text)


def measured(reports: Reports) -> dict[str, Any]:
    """Return the rates of each rank that reported, and the bounds with which they are compared."""
    facts, models = reports.facts(STAGE), models_of(reports)
    return {"ranks": [row(reports, rank, said, models.get(rank, "")) for rank, said in facts.items()]}


def row(reports: Reports, rank: int, said: Mapping[str, Any], model: str) -> dict[str, Any]:
    bound = floor(reports.bounds.gpu_rates, model) if model else NONE
    link = link_gbps(said.get("smi"))
    return {
        "rank": rank,
        "node": reports.places[rank].node,
        "local_rank": reports.places[rank].local_rank,
        "gpu_uuid": str(said.get("gpu_uuid") or ""),
        "model": short(model) or "cpu",
        **{key: finite(said.get(key)) for key in ("gemm_tflops", "memory_gbps", "h2d_gbps", "d2h_gbps")},
        "gemm_floor": bound.gemm,
        "memory_floor": bound.memory,
        "h2d_floor": round(LINK_FAR * link[0], 2) if link else None,
        "basis": bound.basis or ("the median of GPUs of this model" if model else ""),
    }


class Floor(NamedTuple):
    """The minimum rates of a GPU model. gemm: TFLOPS, memory: GB/s; None if unknown. basis: the model and the source of
    the table row."""

    gemm: float | None
    memory: float | None
    basis: str


NONE = Floor(None, None, "")


def floor(table: Mapping[str, Any], model: str) -> Floor:
    """Return the floor for a GPU model. If several names in the table match the first words of the model's name, the
    longest one is used. Only whole words match: A100 does not match A10, and A40-48Q does not match A40.

    A MIG device has no floor: the floor of the whole GPU does not apply.
    """
    name = short(model)
    if " MIG " in name:
        return NONE
    rows = [
        (begin, row) for row in table.get("gpus", []) for begin in row["names"] if f"{name} ".startswith(f"{begin} ")
    ]
    if not rows:
        return NONE
    begin, row = max(rows, key=lambda found: len(found[0]))
    gemm, memory = table["floors"]["gemm"], table["floors"]["memory"]
    return Floor(
        row["tflops"] * row.get("gemm_floor", gemm), row["gbps"] * memory, f"data sheet of {begin}: {row['source']}"
    )


def short(model: str) -> str:
    """Return the name of the model without its vendor, as in the table rows and in versions.yml of the role
    gpu_stack."""
    return model.removeprefix("NVIDIA ").removeprefix("Tesla ")


def link_gbps(smi: Any) -> tuple[float, str] | None:
    """Return the maximum rate of the GPU's link, and the name of the link; None if nvidia-smi does not report the
    link."""
    if not isinstance(smi, dict):
        return None
    generation, width = finite(smi.get("link_generation")), finite(smi.get("link_width"))
    if generation is None or not width or generation not in LANE_GBPS:
        return None
    return LANE_GBPS[int(generation)] * width, f"PCIe {generation:.0f} x{width:.0f}"
