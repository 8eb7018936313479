"""NVLink: every link of every GPU, and whether each pair of GPUs reaches each other over it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..gpu_info.models import model_of
from ..gpu_info.values import address
from ..verdict.check import Check, skip_all
from ..verdict.commands import shell
from ..verdict.finding import evidence
from ..verdict.words import few, plural

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ..verdict.check import Said
    from .gpu_node import GpuNode

# A rate is printed with three digits; a link that has trained lower is far below.
TOLERANCE = 0.98
# NVIDIA/DCGM warns of one in the minute that it watches. Here is only the count since the driver was loaded, so this
# many for each day that the node is up, and on the first day any.
ERRORS_A_DAY = 1
DAY = 86_400
# The link went down, since it could not be recovered: a failure to DCGM, as the others are a warning.
UNRECOVERED = "link recovery failed events"
GROWS = "See whether they grow under load with"

INACTIVE = Check(
    "nvlink.inactive",
    seen="recording",
    reads="the state of every NVLink",
    fires="fails when a model of which the number is known has fewer active ones, or when some of a GPU's links are "
    "down that are up on its neighbours; a model with bridges may have none",
    fix="Look at the fabric manager, then reset the GPUs; if the link stays down, have the GPU or its board replaced",
)
SLOW = Check(
    "nvlink.slow",
    seen="recording",
    reads="the rate of every active NVLink",
    fires="it is more than 2 % below that of the model",
    fix="Reset the GPU; if it stays, have it replaced",
)
ERRORS = Check(
    "nvlink.errors",
    seen="recording",
    reads="the error counters of every NVLink since the driver was loaded: replay and recovery errors, with NVLink 5 "
    "link recovery events, effective, symbol, packet and integrity errors; and how long the node is up",
    fires="fail: a link could not be recovered (as NVIDIA DCGM). warn: one or more others on the first day, later one "
    "a day (DCGM warns of one in a minute). unknown: counters of names that Muster does not know. CRC errors are not "
    "counted: they matter at 100 a second only (DCGM)",
    fix="Run dcgmi diag -r 3; if it grows, have the GPU or its board looked at",
)
PAIR = Check(
    "nvlink.pair",
    seen="recording",
    reads="nvidia-smi topo -m",
    fires="two GPUs reach each other over PCIe or the processors, where others of the node do over NVLink",
    fix="Look at the links of both, and at the fabric manager",
)
CHECKS = (INACTIVE, SLOW, ERRORS, PAIR)
# By the question of nvidia-smi that they are judged from, and cannot be without its answer.
JUDGED_FROM = {"topology": (PAIR,), "nvlink_status": CHECKS, "nvlink_errors": (ERRORS,)}


def absent(node: GpuNode) -> Iterator[Said]:
    """What cannot be seen of the links."""
    linked = _linkable(node)
    if "nvlink_status" in node.facts["skipped"]:
        return
    if not linked:
        yield from skip_all(CHECKS, "with MIG on, GPUs do not use their NVLinks (NVIDIA/nccl issue 1716)")
    elif not any(gpu["nvlinks"] for gpu in linked):
        others = (SLOW, ERRORS, PAIR) if any(inactive(node)) else CHECKS
        said = next((gpu["nvlinks_why"] for gpu in linked if gpu["nvlinks_why"]), "")
        said = f"the driver says nothing of NVLink: {said}" if said else "the driver reports no NVLink on these GPUs"
        yield from skip_all(others, said)
    elif not any(link["errors"] or link["unknown"] for gpu in linked for link in gpu["nvlinks"]):
        yield ERRORS.skip("nvidia-smi counts no errors of these NVLinks")


def _linkable(node: GpuNode) -> list[dict[str, Any]]:
    return [gpu for gpu in node.gpus if not gpu["mig"]]


def inactive(node: GpuNode) -> Iterator[Said]:
    # One GPU alone, as a cloud rents it, has nobody to be linked to.
    if "nvlink_status" in node.facts["skipped"] or (len(node.gpus) == 1 and not _active(node.gpus[0])):
        return
    gpus = _linkable(node)
    if not any(gpu["nvlinks"] for gpu in gpus):
        # A driver that says nothing of links on a board that has them would hide a fault.
        yield from _silent(node)
        return
    for gpu in gpus:
        active, wanted = _active(gpu), _wanted(node, gpu)
        if len(active) >= wanted or gpu["nvlinks_why"]:
            continue
        down = [link["link"] for link in gpu["nvlinks"] if link["state"] in ("inactive", "unreadable")]
        which = f": {few([str(number) for number in down])} {'is' if len(down) == 1 else 'are'} down" if down else ""
        yield INACTIVE.fail(
            node.name,
            f"{node.named([gpu])} has {len(active)} of {plural(wanted, 'NVLink')} up{which}",
            "Look at the fabric manager and the kernel log, then reset the GPUs; look again with",
            shell("nvidia-smi nvlink -s -i {slot}", slot=address(gpu["slot"])),
            observed=f"{len(active)} active",
            expected=f"{wanted} active",
            evidence=evidence("nvidia-smi nvlink -s", few([f"Link {number}: <inactive>" for number in down])),
        )


def _silent(node: GpuNode) -> Iterator[Said]:
    linked = [gpu for gpu in _linkable(node) if (model := model_of(gpu["name"])) and model.links]
    if not linked or any(gpu["nvlinks_why"] for gpu in linked):
        return
    yield INACTIVE.fail(
        node.name,
        f"no NVLink of {node.named(linked)} is up",
        "Look at the fabric manager and the kernel log with",
        "systemctl status nvidia-fabricmanager; sudo dmesg | grep -i nvlink",
        observed="none active",
        expected=f"{model_links(linked)} active on each",
    )


def model_links(gpus: Sequence[dict[str, Any]]) -> int:
    model = model_of(gpus[0]["name"])
    return (model.links if model else None) or 0


def _wanted(node: GpuNode, gpu: dict[str, Any]) -> int:
    """Return how many links of a GPU should be up: by its model, else as many as its neighbours have."""
    model = model_of(gpu["name"])
    return model.links if model and model.links is not None else max(len(_active(other)) for other in node.gpus)


def _active(gpu: dict[str, Any]) -> list[dict[str, Any]]:
    return [link for link in gpu["nvlinks"] if link["state"] in ("active", "sleeping")]


def slow(node: GpuNode) -> Iterator[Said]:
    for gpu in node.gpus:
        rates = [link["gbs"] for link in gpu["nvlinks"] if link["gbs"] is not None]
        if not rates:
            continue
        model = model_of(gpu["name"])
        wanted = model.rate if model else max(rates)
        low = [link for link in gpu["nvlinks"] if link["gbs"] is not None and link["gbs"] < wanted * TOLERANCE]
        if low:
            numbers = few([str(link["link"]) for link in low])
            yield SLOW.warn(
                node.name,
                f"NVLink {numbers} of {node.named([gpu])} carries {min(link['gbs'] for link in low):g} GB/s, "
                f"and {wanted:g} GB/s are usual",
                "Reset the GPU, and look again with",
                shell("nvidia-smi nvlink -s -i {slot}", slot=address(gpu["slot"])),
                observed=f"{min(link['gbs'] for link in low):g} GB/s",
                expected=f"{wanted:g} GB/s",
            )


def errors(node: GpuNode) -> Iterator[Said]:
    for gpu in _linkable(node):
        bad = {
            link["link"]: {name: count for name, count in link["errors"].items() if count} for link in gpu["nvlinks"]
        }
        bad = {link: counts for link, counts in bad.items() if counts}
        count = sum(sum(counts.values()) for counts in bad.values())
        broken = any(UNRECOVERED in counts for counts in bad.values())
        if not broken and not (count and count >= ERRORS_A_DAY * node.facts["uptime"] / DAY):
            continue
        shown = few([f"link {link}: {_counts(counts)}" for link, counts in bad.items()], "; ")
        yield (ERRORS.fail if broken else ERRORS.warn)(
            node.name,
            f"{node.named([gpu])} has had {plural(count, 'error')} on {plural(len(bad), 'NVLink')} since its driver "
            "was loaded" + (", and a link that could not be recovered" if broken else ""),
            "Reset it, and have it or its board looked at if it comes again; see" if broken else GROWS,
            shell("nvidia-smi nvlink -e -i {slot}", slot=address(gpu["slot"])),
            observed=shown,
            expected="0",
            evidence=evidence("nvidia-smi nvlink -e", shown),
        )
    yield from _unknown(node)


def _unknown(node: GpuNode) -> Iterator[Said]:
    """A name that is not known may be that of an error."""
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
            f"nvidia-smi counts something on its NVLinks that Muster does not know: {few(sorted(counted))}",
            "Look whether it is an error, and whether it grows under load, with",
            "nvidia-smi nvlink -e",
            evidence=evidence("nvidia-smi nvlink -e", few([f"link {link}: {name}" for name, link in counted.items()])),
        )


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.items())


def pairs(node: GpuNode) -> Iterator[Said]:
    """Pairs that are not linked on a node where most are; a board of bridged pairs has only some, and is left alone."""
    topology = node.facts["topology"]
    if topology is None or "nvlink_status" in node.facts["skipped"] or any(gpu["mig"] for gpu in node.gpus):
        return
    names = sorted(name for name in topology["between"] if name.startswith("GPU"))
    ways = {
        (one, other): topology["between"][one].get(other, "")
        for one in names
        for other in names
        if one < other and topology["between"][one].get(other)
    }
    linked = [way for way in ways.values() if way.startswith("NV")]
    if len(linked) * 2 <= len(ways):
        return
    usual = max(set(linked), key=linked.count)
    # A GPU with a link down reaches every other with one less: that is reported of the link.
    short = {f"GPU{gpu['index']}" for gpu in node.gpus if len(_active(gpu)) < _wanted(node, gpu)}
    odd = {pair: way for pair, way in ways.items() if way != usual and not short & set(pair)}
    if not odd:
        return
    unlinked = {pair: way for pair, way in odd.items() if not way.startswith("NV")}
    if not unlinked and len(odd) * 4 > len(ways):
        # The direct links of a V100 or a P100 are one or two for each pair, by design.
        return
    involved = [name for pair in odd for name in pair]
    culprit = max(sorted(set(involved)), key=involved.count)
    shown = few([f"{one}-{other} {way}" for (one, other), way in odd.items()])
    yield (PAIR.fail if unlinked else PAIR.warn)(
        node.name,
        f"{plural(len(odd), 'pair')} of its GPUs, most often with {culprit}, do not have the {usual} of the others",
        "Look at the links of that GPU, and at the fabric manager, with",
        node.at("nvidia-smi nvlink -s", culprit),
        observed=shown,
        expected=usual,
        evidence=evidence("nvidia-smi topo -m", shown),
    )


RULES = (absent, inactive, slow, errors, pairs)
