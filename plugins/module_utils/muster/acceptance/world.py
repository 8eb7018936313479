"""Compare the launch with its plan: the layout of ranks, separate machines and GPUs, and equal software on all
ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ..health.consistency import TRAITS
from ..verdict.check import Check
from ..verdict.commands import on_node
from ..verdict.majority import vote
from ..verdict.words import plural
from .agreement import who, words_of
from .reports import number

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ..health.consistency import Trait
    from ..verdict.check import Said
    from ..verdict.finding import Finding
    from .reports import Reports

LAYOUT = Check(
    "smoke.layout",
    seen="stand-in",
    reads="rank, local rank, node rank, world size and backend on each rank",
    fires="a value differs from the plan (fail)",
    fix="Compare the values with plan.json; a custom environment might have changed them",
)
MACHINES = Check(
    "smoke.machines",
    seen="stand-in",
    reads="the machine ID on each rank",
    fires="two nodes of the inventory are the same machine (fail)",
    fix="List each machine only once in the inventory",
)
GPUS = Check(
    "smoke.gpus",
    seen="stand-in",
    reads="the UUID of each rank's GPU, except MIG devices",
    fires="two ranks on one node use the same GPU (fail)",
    fix="Check CUDA_VISIBLE_DEVICES, cluster_nproc_per_node, and the GPUs of the node",
)
USED = Check(
    "smoke.gpu_used",
    seen="stand-in",
    reads='the GPU of a tensor that was created on the device "cuda" without an index',
    fires="the tensor is not on the rank's GPU (fail)",
    fix="Check what changes the default device in the training environment, such as sitecustomize or "
    "CUDA_VISIBLE_DEVICES",
)
VERSIONS = Check(
    "smoke.versions",
    seen="stand-in",
    reads="the versions of torch, NCCL, CUDA, Python and the NVIDIA driver on each rank",
    fires="versions differ between ranks: torch, NCCL or CUDA (fail), Python or the driver (warn)",
    fix="Build the same environment on all nodes",
)
MODELS = Check(
    "smoke.gpu_models",
    seen="stand-in",
    reads="the model of each rank's GPU",
    fires="models differ: the slowest GPU limits the launch (warn)",
    fix="Launch on nodes with the same GPU model (cluster_launch_nodes)",
)
CHECKS = (LAYOUT, MACHINES, GPUS, USED, VERSIONS, MODELS)

STAGE = "world"
LONGEST = 60  # characters of a version or a model in a message
# By the payload's names, with the traits of the health check: reason and fix of a difference
SOFTWARE = {trait.name: trait for trait in TRAITS if trait.name in ("torch", "nccl", "cuda", "python", "driver")}
MODEL = next(trait for trait in TRAITS if trait.name == "gpu_model")


def judge(reports: Reports) -> Iterator[Said]:
    if not reports.tried(STAGE):
        return
    yield from layout(reports)
    yield from machines(reports)
    if reports.plan.backend == "nccl":
        yield from gpus(reports)
        yield from used(reports)
        yield from models(reports)
    yield from versions(reports)


def layout(reports: Reports) -> Iterator[Said]:
    """Compare world size, rank, local rank, node rank and backend of every rank with the plan."""
    plan, found = reports.plan, False
    for rank, said in reports.facts(STAGE).items():
        place = reports.places[rank]
        wanted = {
            "world_size": plan.world_size,
            "rank": rank,
            "local_rank": place.local_rank,
            "node_rank": place.node_rank,
            "backend": plan.backend,
        }
        wrong = {name: (said.get(name), value) for name, value in wanted.items() if said.get(name) != value}
        if wrong:
            found = True
            text = ", ".join(f"{name} is {seen} instead of {value}" for name, (seen, value) in wrong.items())
            yield LAYOUT.fail(place.node, f"rank {rank}: {text}", fix="")
    if not found:
        text = f"world size {plan.world_size}, layout of ranks as planned"
        yield reports.good(LAYOUT, text, whole=reports.whole(STAGE, "rank"))


def machines(reports: Reports) -> Iterator[Said]:
    """Check that no two nodes of the inventory are the same machine."""
    owner: dict[str, str] = {}
    found = False
    for rank, said in reports.facts(STAGE).items():
        node, machine = reports.places[rank].node, said.get("machine")
        if not isinstance(machine, str):
            continue
        other = owner.setdefault(machine, node)
        if other != node:
            found = True
            text = f"same machine as {other}: rank {rank} has the same machine ID as the ranks of {other}"
            yield MACHINES.fail(node, text, fix="", peer=other, observed=machine)
    if not found:
        text = plural(len(set(owner.values())), "separate machine")
        yield reports.good(MACHINES, text, whole=reports.whole(STAGE, "machine"))


def gpus(reports: Reports) -> Iterator[Said]:
    """Check that no two ranks of a node share a GPU."""
    facts = reports.facts(STAGE)
    parts = [rank for rank, model in words_of(facts, "device").items() if "MIG" in model.split()]
    untold = [rank for rank, said in facts.items() if said.get("gpu_uuid") == ""]
    if parts:
        yield GPUS.skip(f"{who(reports, parts)}: the GPU is a MIG device, and MIG devices may share a UUID")
        return
    if untold:
        yield GPUS.skip(f"{who(reports, untold)}: torch reports no GPU UUID")
        return
    owners: dict[tuple[str, str], list[int]] = {}
    for rank, uuid in words_of(facts, "gpu_uuid").items():
        owners.setdefault((reports.places[rank].node, uuid), []).append(rank)
    shared = {place: ranks for place, ranks in owners.items() if len(ranks) > 1}
    for (node, uuid), ranks in shared.items():
        text = f"{who(reports, ranks)} use the same GPU ({uuid[:LONGEST]})"
        yield GPUS.fail(node, text, command=on_node(node, "nvidia-smi -L"), observed=uuid[:LONGEST])
    if not shared:
        whole = sum(map(len, owners.values())) == len(reports.places)
        yield reports.good(GPUS, f"{plural(len(owners), 'GPU')}, one per rank", whole=whole)


def used(reports: Reports) -> Iterator[Said]:
    """Check that a tensor on "cuda" is stored on the GPU of the rank."""
    known, found = 0, False
    for rank, said in reports.facts(STAGE).items():
        own, other = RankGpu.read(said, "gpu_index", "gpu_uuid"), RankGpu.read(said, "used_index", "used_uuid")
        if own is None or other is None:
            continue
        known += 1
        if own != other:
            found = True
            text = f'{reports.named(rank)}: a tensor on "cuda" is on {other}, not on the rank\'s {own}'
            yield USED.fail(reports.places[rank].node, text, observed=str(other), expected=str(own))
    if not found:
        yield reports.good(USED, "each rank uses its own GPU", whole=known == len(reports.places))


class RankGpu(NamedTuple):
    """A GPU as the rank sees it. uuid: "" if torch does not report a UUID."""

    device: int
    uuid: str

    @classmethod
    def read(cls, said: Mapping[str, object], index: str, uuid: str) -> RankGpu | None:
        place, name = number(said.get(index)), said.get(uuid)
        if place is None or not place.is_integer() or not isinstance(name, str):
            return None
        return cls(int(place), name[:LONGEST])

    def __str__(self) -> str:
        return f"device {self.device} ({self.uuid})" if self.uuid else f"device {self.device}"


def versions(reports: Reports) -> Iterator[Said]:
    """Compare the software versions of all ranks."""
    facts = reports.facts(STAGE)
    told = {rank: said["versions"] for rank, said in facts.items() if isinstance(said.get("versions"), dict)}
    same, found = [], False
    for name, trait in SOFTWARE.items():
        by_rank = words_of(told, name)
        differing = list(differences(VERSIONS, trait, reports, by_rank))
        found = found or bool(differing)
        yield from differing
        if by_rank and not differing:
            same.append(f"{name} {next(iter(by_rank.values()))[:LONGEST]}")
    if not found:
        whole = len(words_of(told, "torch")) == len(words_of(told, "python")) == len(reports.places)
        yield reports.good(VERSIONS, f"equal on all ranks: {', '.join(same) or 'nothing reported'}", whole=whole)


def models(reports: Reports) -> Iterator[Said]:
    """Compare the GPU models of all ranks. A difference produces a warning."""
    by_rank = words_of(reports.facts(STAGE), "device")
    differing = list(differences(MODELS, MODEL, reports, by_rank))
    yield from differing
    if not differing:
        names = ", ".join(sorted({model[:LONGEST] for model in by_rank.values()}))
        yield reports.good(MODELS, f"equal on all ranks: {names}", whole=len(by_rank) == len(reports.places))


def differences(check: Check, trait: Trait, reports: Reports, by_rank: Mapping[int, str]) -> Iterator[Finding]:
    """Yield a finding for each node or rank whose value differs from the majority's; If there is no majority, yield one
    for all of them."""
    votes = vote(by_place(reports, by_rank))
    if votes.agree:
        return
    report = check.fail if trait.breaks else check.warn
    ranks = {reports.named(rank): place.node for rank, place in reports.places.items()}
    for place, value in votes.odd:
        if votes.usual is None:
            text = f"the {trait.what} differs ({votes.spread()}): {trait.why}"
        else:
            whose = f"{place}: " if place in ranks else ""
            text = f"{whose}the {trait.what} is {value}, but {votes.usual} on most nodes: {trait.why}"
        fix, command = trait.check.fix, trait.check.command
        yield report(ranks.get(place, place), text, fix, command, observed=value, expected=votes.usual or "")


def by_place(reports: Reports, by_rank: Mapping[int, str]) -> dict[str, str]:
    """Return the values by node. For nodes whose ranks have different values, return them by rank."""
    nodes: dict[str, dict[int, str]] = {}
    for rank, value in by_rank.items():
        nodes.setdefault(reports.places[rank].node, {})[rank] = value[:LONGEST]
    found: dict[str, str] = {}
    for node, values in nodes.items():
        if len(set(values.values())) == 1:
            found[node] = next(iter(values.values()))
        else:
            found.update((reports.named(rank), value) for rank, value in values.items())
    return found
