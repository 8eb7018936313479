"""Compare the GPUs of one model: values that are equal on healthy GPUs, on a node and between nodes."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..verdict.check import Check
from ..verdict.words import few
from .gpu_settings import low_limit

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ..verdict.check import Said
    from .gpu_node import Gpu, GpuNode

MODEL_MIXED = Check(
    "gpu.model.mixed",
    seen="recording",
    reads="the models of the node's GPUs",
    fires="warn: the models differ, so every step waits for the slowest GPU, and the smallest memory limits the job",
    fix="Use GPUs of the same model (cluster_gpus, CUDA_VISIBLE_DEVICES), or accept the speed of the slowest GPU",
)
VBIOS_MIXED = Check(
    "gpu.vbios.mixed",
    seen="recording",
    reads="the VBIOS versions of GPUs of the same model",
    fires="warn: the versions differ, for example after a GPU was replaced",
    fix="Install one VBIOS version with the vendor's tool",
)
VALUES_MIXED = Check(
    "gpu.values.mixed",
    seen="recording",
    reads="infoROM, GSP firmware, memory and BAR1 size, power limits, highest clocks and PCIe generation, fabric "
    "cluster and clique of GPUs of the same model and maker",
    fires="warn: a GPU has another value than most of these GPUs",
    fix="Find out what was changed or replaced. Show the values of all GPUs with",
    command="nvidia-smi -q",
)
CHECKS = (MODEL_MIXED, VBIOS_MIXED, VALUES_MIXED)


@dataclass(frozen=True)
class Alike:
    """A value that is equal on GPUs of a model. path: of the facts of a GPU. what, unit: in messages. trait: the name
    in nccl_health if it is also compared between nodes. on_node: whether it is compared on a node, and not checked by
    another rule."""

    path: str
    what: str
    unit: str = ""
    trait: str = ""
    on_node: bool = True

    def of(self, gpu: Gpu) -> str | None:
        value: Any = gpu
        for name in self.path.split("/"):
            value = value[name] if value else None
        if self.path == "nvlinks":
            value = sum(link["state"] in ("active", "sleeping") for link in value)
        if isinstance(value, bool):
            return "on" if value else "off"
        return None if value is None else f"{value:g}{self.unit}" if isinstance(value, float) else f"{value}{self.unit}"


VBIOS = Alike("vbios", "VBIOS")
# ECC has its own check on a node, and bridges need not link all cards.
ALIKE = (
    Alike("inforom", "infoROM", trait="gpu_inforom"),
    Alike("gsp", "GSP firmware"),
    Alike("memory/total", "memory", " MiB", trait="gpu_memory_size"),
    Alike("memory/bar1", "BAR1", " MiB", trait="gpu_bar1_size"),
    Alike("power/limit", "power limit", " W", trait="gpu_power_limit"),
    Alike("power/default", "default power limit", " W"),
    Alike("power/max", "highest power limit", " W"),
    Alike("clocks/sm_max", "highest clock", " MHz", trait="gpu_highest_clock"),
    Alike("clocks/memory_max", "highest memory clock", " MHz"),
    Alike("link/generation_device", "PCIe generation", trait="gpu_pcie_generation"),
    Alike("ecc/on", "ECC", trait="gpu_ecc", on_node=False),
    Alike("fabric/cluster", "fabric cluster"),
    Alike("fabric/clique", "fabric clique"),
    Alike("nvlinks", "number of active NVLinks", trait="gpu_nvlinks", on_node=False),
)


def mixed(node: GpuNode) -> Iterator[Said]:
    by_name = node.by(lambda gpu: gpu["name"] or "an unknown model")
    if len(by_name) > 1:
        kinds = "; ".join(f"{name} as {node.named(gpus)}" for name, gpus in sorted(by_name.items()))
        summary = f"the GPUs are of different models: {kinds}"
        yield MODEL_MIXED.warn(node.name, summary, observed=few(sorted(by_name)), expected="one model")
    # Cards of several makers have the same name, and other firmware and limits.
    for (name, _), gpus in node.by(lambda gpu: (gpu["name"] or "GPU", gpu["board"])).items():
        for (check, places), odd in _odd(gpus).items():
            which = [gpu for gpu in gpus if gpu["index"] in places]
            shown = ", ".join(f"{what} {value} (others: {usual})" for what, value, usual in odd)
            differ = "differs" if len(places) == 1 else "differ"
            summary = f"{node.named(which)} {differ} from the other {name} GPUs: {shown}"
            yield check.warn(node.name, summary, observed=", ".join(f"{what} {value}" for what, value, _ in odd))


def _odd(gpus: Sequence[Gpu]) -> dict[tuple[Check, tuple[int, ...]], list[tuple[str, str, str]]]:
    """Return (what, value, value of most GPUs) by check and the numbers of the GPUs that differ."""
    found: dict[tuple[Check, tuple[int, ...]], list[tuple[str, str, str]]] = defaultdict(list)
    # ECC can take part of the memory. A lowered power limit has its own check.
    explained = {"memory/total"} if len({gpu["ecc"]["on"] for gpu in gpus}) > 1 else set()
    explained |= {"power/limit"} if any(map(low_limit, gpus)) else set()
    for one in (VBIOS, *ALIKE):
        if not one.on_node or one.path in explained:
            continue
        values = {gpu["index"]: value for gpu in gpus if (value := one.of(gpu)) is not None}
        usual, *others = [value for value, _ in Counter(values.values()).most_common()] or [""]
        for other in others:
            places = tuple(place for place, value in values.items() if value == other)
            found[VBIOS_MIXED if one is VBIOS else VALUES_MIXED, places].append((one.what, other, usual))
    return found


def traits(gpus: Sequence[Gpu]) -> dict[str, str | None]:
    """Return the values that must be equal on all nodes with these models, without duplicates."""
    seen = {one.trait: {one.of(gpu) for gpu in gpus if not gpu["lost"]} - {None} for one in ALIKE if one.trait}
    # Inactive links of one GPU have a finding on the node itself.
    seen["gpu_nvlinks"] = seen["gpu_nvlinks"] if len(seen["gpu_nvlinks"]) == 1 else set()
    return {name: ", ".join(sorted(map(str, values))) or None for name, values in seen.items()}


RULES = (mixed,)
