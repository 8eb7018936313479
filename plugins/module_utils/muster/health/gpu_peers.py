"""Compare the GPUs of one model: values that are equal on healthy GPUs, on a node and between nodes."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..verdict.check import Check
from ..verdict.words import few

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ..verdict.check import Said
    from .gpu_node import GpuNode

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
    fires="warn: a GPU has another value than most of these GPUs. Only GPUs with the same ECC mode are compared, "
    "because ECC can reduce the memory",
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

    def of(self, gpu: Mapping[str, Any]) -> str | None:
        value: Any = gpu
        for name in self.path.split("/"):
            value = value[name] if value else None
        if self.path == "nvlinks":
            value = sum(link["state"] in ("active", "sleeping") for link in value)
        if isinstance(value, bool):
            return "on" if value else "off"
        return None if value is None else f"{value:g}{self.unit}" if isinstance(value, float) else f"{value}{self.unit}"


# The limit of power and ECC have their own checks on a node; bridges need not link all cards.
ALIKE = (
    Alike("inforom", "infoROM", trait="gpu_inforom"),
    Alike("gsp", "GSP firmware"),
    Alike("memory/total", "memory", " MiB", trait="gpu_memory_size"),
    Alike("memory/bar1", "BAR1", " MiB", trait="gpu_bar1_size"),
    Alike("power/limit", "power limit", " W", trait="gpu_power_limit", on_node=False),
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
        yield MODEL_MIXED.warn(
            node.name,
            f"the GPUs are of different models: {kinds}",
            observed=few(sorted(by_name)),
            expected="one model",
        )
    vbios = Alike("vbios", "VBIOS")
    # Cards of several makers have the same name, and other firmware and limits.
    for (name, _), gpus in node.by(lambda gpu: (gpu["name"] or "GPU", gpu["board"])).items():
        for places, odd in _odd(gpus, [vbios]).items():
            yield VBIOS_MIXED.warn(
                node.name,
                f"the VBIOS version of {node.named(_at(gpus, places))} is {odd[0][1]}, but the other {name} GPUs have "
                f"{odd[0][2]}",
                observed=few(sorted({value for gpu in gpus if (value := vbios.of(gpu))})),
                expected="one version",
            )
    for (name, *_), gpus in node.by(
        lambda gpu: (gpu["name"] or "GPU", gpu["board"], gpu["ecc"]["on"], gpu["mig"])
    ).items():
        for places, odd in _odd(gpus, [one for one in ALIKE if one.on_node]).items():
            shown = ", ".join(f"{what} {value} (others: {usual})" for what, value, usual in odd)
            differ = "differs" if len(places) == 1 else "differ"
            yield VALUES_MIXED.warn(
                node.name,
                f"{node.named(_at(gpus, places))} {differ} from the other {name} GPUs: {shown}",
                observed=", ".join(f"{what} {value}" for what, value, _ in odd),
                expected=", ".join(f"{what} {usual}" for what, _, usual in odd),
            )


def _odd(gpus: Sequence[dict[str, Any]], alike: Sequence[Alike]) -> dict[tuple[int, ...], list[tuple[str, str, str]]]:
    """Return (what, value, value of most GPUs) by the numbers of the GPUs that differ."""
    found: dict[tuple[int, ...], list[tuple[str, str, str]]] = defaultdict(list)
    for one in alike:
        values = {gpu["index"]: value for gpu in gpus if (value := one.of(gpu)) is not None}
        (usual, _), *others = Counter(values.values()).most_common() or [("", 0)]
        for other, _ in others:
            places = tuple(place for place, value in values.items() if value == other)
            found[places].append((one.what, other, usual))
    return found


def _at(gpus: Sequence[dict[str, Any]], places: Sequence[int]) -> list[dict[str, Any]]:
    return [gpu for gpu in gpus if gpu["index"] in places]


def traits(gpus: Sequence[Mapping[str, Any]]) -> dict[str, str | None]:
    """Return the values that must be equal on all nodes with these models, without duplicates."""
    seen = {one.trait: {one.of(gpu) for gpu in gpus if not gpu["lost"]} - {None} for one in ALIKE if one.trait}
    return {name: ", ".join(sorted(map(str, values))) or None for name, values in seen.items()}


RULES = (mixed,)
