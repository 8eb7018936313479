"""NVLink: the state of every link of every GPU, and whether NVLink connects all pairs of GPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..gpu_info.models import model_of
from ..verdict.check import Check, skip_all
from ..verdict.finding import evidence
from ..verdict.words import few, plural

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ..verdict.check import Said
    from .gpu_node import Gpu, GpuNode

# Rates are printed with three digits; a link trained at a lower rate is far below.
TOLERANCE = 0.98
# NVIDIA/DCGM warns of one error in a minute of monitoring. Only the count since the driver was loaded is known here:
# this many for each day of uptime, and on the first day any.
ERRORS_A_DAY = 1
DAY = 86_400
# The link could not be recovered and went down: a failure for DCGM, where other errors are warnings.
UNRECOVERED = "link recovery failed events"
GROWS = "Check whether the counters increase under load with"

INACTIVE = Check(
    "nvlink.inactive",
    seen="recording",
    reads="the state of every NVLink",
    fires="fail: a GPU has fewer active links than its model or, for an unknown model, than other GPUs of the model on "
    "the node. warn: so does a GPU with an NVLink bridge. A model with NVLink bridges may have none",
    fix="Check the fabric manager, then reset the GPUs. If a link stays down, have the GPU or its board replaced",
)
SLOW = Check(
    "nvlink.slow",
    seen="recording",
    reads="the rate of every active NVLink",
    fires="warn: the rate is more than 2 % below the rate of the GPU model",
    fix="Reset the GPU. If the rate stays low, have the GPU replaced",
)
ERRORS = Check(
    "nvlink.errors",
    seen="recording",
    reads="the error counters of every NVLink since the driver was loaded: replay and recovery errors; for NVLink 5, "
    "also link recovery events, effective, symbol, packet and integrity errors. The node's uptime",
    fires="fail: a link could not be recovered (as in NVIDIA DCGM). warn: on average, at least one other error per day "
    "of uptime; on the first day, any error (DCGM warns at one per minute). unknown: a counter has an unknown name. "
    "CRC errors are ignored, because they matter only at 100 per second (DCGM)",
    fix="Run dcgmi diag -r 3. If the errors increase, have the GPU or its board inspected",
)
PAIR = Check(
    "nvlink.pair",
    seen="recording",
    reads="nvidia-smi topo -m",
    fires="fail: a pair of GPUs has no NVLink, but most pairs have NVLink. warn: a pair has fewer NVLinks than most",
    fix="Check the links of both GPUs, and the fabric manager",
)
CHECKS = (INACTIVE, SLOW, ERRORS, PAIR)
# The checks that require each query of nvidia-smi.
JUDGED_FROM = {"topology": (PAIR,), "nvlink_status": CHECKS, "nvlink_errors": (ERRORS,)}


def absent(node: GpuNode) -> Iterator[Said]:
    """Yield a skip for each NVLink check that cannot run on this node."""
    linked = _linkable(node)
    if "nvlink_status" in node.facts["skipped"]:
        return
    if not linked:
        yield from skip_all(CHECKS, "with MIG on, GPUs do not use their NVLinks (NVIDIA/nccl issue 1716)")
    elif not any(gpu["nvlinks"] for gpu in linked):
        others = (SLOW, ERRORS, PAIR) if any(inactive(node)) else CHECKS
        said = next((gpu["nvlinks_why"] for gpu in linked if gpu["nvlinks_why"]), "")
        said = f"the driver does not report NVLink: {said}" if said else "the driver reports no NVLink on these GPUs"
        yield from skip_all(others, said)
    elif "nvlink_errors" not in node.facts["skipped"] and not any(
        link["errors"] or link["unknown"] for gpu in linked for link in gpu["nvlinks"]
    ):
        yield ERRORS.skip("nvidia-smi has no error counters for these NVLinks")


def _linkable(node: GpuNode) -> list[Gpu]:
    return [gpu for gpu in node.gpus if not gpu["mig"]]


def inactive(node: GpuNode) -> Iterator[Said]:
    # A single GPU, such as a cloud instance has, has no peer.
    if "nvlink_status" in node.facts["skipped"] or (len(node.gpus) == 1 and not _active(node.gpus[0])):
        return
    if not any(gpu["nvlinks"] for gpu in _linkable(node)):
        # If the driver reports no links on a board that has them, that is a fault.
        yield from _silent(node)
        return
    for (active, wanted, down, bridged), gpus in node.by(lambda gpu: _lacks(node, gpu)).items():
        which = f": {few(down)} {'is' if len(down) == 1 else 'are'} down" if down else ""
        summary = f"{node.have(gpus)} {active} of {plural(wanted, 'NVLink')} up{which}"
        what = "bridge" if bridged else "fabric manager and the kernel log, then reset the GPUs"
        fix = f"Check the {what}. Check the links again with", node.only("nvidia-smi nvlink -s", gpus)
        said = evidence("nvidia-smi nvlink -s", few([f"Link {number}: <inactive>" for number in down]))
        seen = {"observed": f"{active} active", "expected": f"{wanted} active"}
        yield (INACTIVE.warn if bridged else INACTIVE.fail)(node.name, summary, *fix, **seen, evidence=said)


def _lacks(node: GpuNode, gpu: Gpu) -> tuple[int, int, tuple[str, ...], bool] | None:
    """Return (active links, wanted links, links that are down, whether they belong to a bridge), or None."""
    active, wanted = len(_active(gpu)), _wanted(node, gpu)
    if gpu["mig"] or gpu["nvlinks_why"] or active >= wanted:
        return None
    down = tuple(str(link["link"]) for link in gpu["nvlinks"] if link["state"] in ("inactive", "unreadable"))
    return active, wanted, down, _bridged(gpu)


def _silent(node: GpuNode) -> Iterator[Said]:
    linked = [gpu for gpu in _linkable(node) if (model := model_of(gpu["name"])) and model.links]
    if not linked or any(gpu["nvlinks_why"] for gpu in linked):
        return
    fix = "Check the fabric manager and the kernel log with"
    command = "systemctl status nvidia-fabricmanager; sudo dmesg | grep -i nvlink"
    seen = {"observed": "none active", "expected": f"{model_links(linked)} active on each"}
    yield INACTIVE.fail(node.name, f"no NVLink of {node.named(linked)} is up", fix, command, **seen)


def model_links(gpus: Sequence[Gpu]) -> int:
    model = model_of(gpus[0]["name"])
    return (model.links if model else None) or 0


def _wanted(node: GpuNode, gpu: Gpu) -> int:
    """Return how many NVLinks of a GPU should be up: the number for its model or, if that is unknown, the largest
    number on a GPU of the same model. A bridged model may have none."""
    model = model_of(gpu["name"])
    if model and model.links is not None:
        return model.links
    most = max(len(_active(other)) for other in node.gpus if other["name"] == gpu["name"])
    return most if _active(gpu) or not _bridged(gpu) else 0


def _bridged(gpu: Gpu) -> bool:
    """Return whether the NVLinks of a GPU need a bridge between cards, and are not wired on a board."""
    model = model_of(gpu["name"])
    return not (model and model.links) and "SXM" not in (gpu["name"] or "") and gpu["fabric"] is None


def _active(gpu: Gpu) -> list[Gpu]:
    return [link for link in gpu["nvlinks"] if link["state"] in ("active", "sleeping")]


def _rate(node: GpuNode, gpu: Gpu) -> float:
    """Return the rate of the model or, if that is unknown, the highest rate on a GPU of the same model."""
    model = model_of(gpu["name"])
    rates = [link["gbs"] or 0.0 for other in node.gpus if other["name"] == gpu["name"] for link in other["nvlinks"]]
    return model.rate if model else max(rates, default=0.0)


def slow(node: GpuNode) -> Iterator[Said]:
    for wanted, gpus in node.by(lambda gpu: _rate(node, gpu) if _below(node, gpu) else None).items():
        low = [link for gpu in gpus for link in _below(node, gpu)]
        numbers = few([str(number) for number in sorted({link["link"] for link in low})])
        lowest = f"{min(link['gbs'] for link in low):g} GB/s"
        summary = f"NVLink {numbers} of {node.named(gpus)} runs at {lowest} instead of {wanted:g} GB/s"
        fix = "Reset the GPU, and check the rate again with", node.only("nvidia-smi nvlink -s", gpus)
        yield SLOW.warn(node.name, summary, *fix, observed=lowest, expected=f"{wanted:g} GB/s")


def _below(node: GpuNode, gpu: Gpu) -> list[Gpu]:
    least = _rate(node, gpu) * TOLERANCE
    return [link for link in gpu["nvlinks"] if link["gbs"] is not None and link["gbs"] < least]


def errors(node: GpuNode) -> Iterator[Said]:
    least = ERRORS_A_DAY * node.facts["uptime"] / DAY
    for how, gpus in node.by(lambda gpu: _outcome(gpu, least)).items():
        bad = _errors(gpus)
        count = sum(sum(counts.values()) for counts in bad.values())
        places = {place: f"GPU {place[0]} link {place[1]}" if len(gpus) > 1 else f"link {place[1]}" for place in bad}
        shown = few([f"{places[place]}: {_counts(counts)}" for place, counts in bad.items()], "; ")
        summary = (
            f"{node.have(gpus)} had {plural(count, 'error')} on {plural(len(bad), 'NVLink')} since the driver was "
        )
        summary += "loaded, and a link that could not be recovered" if how == "broken" else "loaded"
        fix = (
            "Reset the GPU. If errors recur, have the GPU inspected. Show the errors with" if how == "broken" else GROWS
        )
        command, said = node.only("nvidia-smi nvlink -e", gpus), evidence("nvidia-smi nvlink -e", shown)
        report = ERRORS.fail if how == "broken" else ERRORS.warn
        yield report(node.name, summary, fix, command, observed=shown, expected="0", evidence=said)
    yield from _unknown(node)


def _outcome(gpu: Gpu, least: float) -> str:
    counts = _errors([gpu]).values()
    if any(UNRECOVERED in each for each in counts):
        return "broken"
    return "counted" if counts and sum(sum(each.values()) for each in counts) >= least else ""


def _errors(gpus: Sequence[Gpu]) -> dict[tuple[int, int], dict[str, int]]:
    """Return the error counts that are not 0, by GPU and link."""
    counts = {
        (gpu["index"], link["link"]): {name: count for name, count in link["errors"].items() if count}
        for gpu in gpus
        if not gpu["mig"]
        for link in gpu["nvlinks"]
    }
    return {place: counted for place, counted in counts.items() if counted}


def _unknown(node: GpuNode) -> Iterator[Said]:
    """Report NVLink counters with unknown names, because they might count errors."""
    counted = {
        name: link["link"]
        for gpu in _linkable(node)
        for link in gpu["nvlinks"]
        for name, count in link["unknown"].items()
        if count
    }
    if counted:
        yield ERRORS.unknown(
            node.name,
            f"nvidia-smi reports unknown NVLink counters: {few(sorted(counted))}",
            "Check whether these counters count errors and increase under load with",
            "nvidia-smi nvlink -e",
            evidence=evidence("nvidia-smi nvlink -e", few([f"link {link}: {name}" for name, link in counted.items()])),
        )


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.items())


def pairs(node: GpuNode) -> Iterator[Said]:
    """Report pairs of GPUs of one model without the NVLink connection that most of these pairs have. Nodes on which
    most pairs have no NVLink, such as those with bridges between pairs of GPUs, are ignored."""
    topology = node.facts["topology"]
    if topology is None or "nvlink_status" in node.facts["skipped"] or any(gpu["mig"] for gpu in node.gpus):
        return
    models = {f"GPU{gpu['index']}": gpu["name"] for gpu in node.gpus}
    names = sorted(name for name in topology["between"] if name in models)
    ways = {
        (one, other): topology["between"][one].get(other, "")
        for one in names
        for other in names
        if one < other and models[one] == models[other] and topology["between"][one].get(other)
    }
    linked = [way for way in ways.values() if way.startswith("NV")]
    if len(linked) * 2 <= len(ways):
        return
    usual = max(set(linked), key=linked.count)
    # A GPU with a link down has one link less to every other GPU: INACTIVE reports that.
    short = {f"GPU{gpu['index']}" for gpu in node.gpus if len(_active(gpu)) < _wanted(node, gpu)}
    odd = {pair: way for pair, way in ways.items() if way != usual and not short & set(pair)}
    if not odd:
        return
    unlinked = {pair: way for pair, way in odd.items() if not way.startswith("NV")}
    if not unlinked and len(odd) * 4 > len(ways):
        # V100 and P100 have one or two direct links per pair by design.
        return
    involved = [name for pair in odd for name in pair]
    culprit = max(sorted(set(involved)), key=involved.count)
    shown = few([f"{one}-{other} {way}" for (one, other), way in odd.items()])
    yield (PAIR.fail if unlinked else PAIR.warn)(
        node.name,
        f"{plural(len(odd), 'GPU pair')} without the {usual} connection of other pairs ({culprit} in most of them)",
        f"Check the fabric manager, and check the links of {culprit} with",
        node.at("nvidia-smi nvlink -s", culprit),
        observed=shown,
        expected=usual,
        evidence=evidence("nvidia-smi topo -m", shown),
    )


RULES = (absent, inactive, slow, errors, pairs)
