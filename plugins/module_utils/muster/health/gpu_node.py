"""The GPUs of a node as the rules see them: facts, request, and functions that name GPUs in messages and commands."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from ..gpu_info.values import address
from ..verdict.commands import shell
from ..verdict.words import few, plural

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping, Sequence

# The facts of one GPU (muster.gpu_info.query.gpu).
Gpu: TypeAlias = "Mapping[str, Any]"


@dataclass(frozen=True)
class GpuNode:
    """A node and its GPUs. facts: the facts of gpu_info. request: the options of nccl_health."""

    facts: Mapping[str, Any]
    request: Mapping[str, Any]

    @property
    def name(self) -> str:
        return str(self.request["node"])

    @property
    def gpus(self) -> list[Gpu]:
        """Return the GPUs that respond."""
        return [gpu for gpu in self.facts["gpus"] if not gpu["lost"]]

    @property
    def under_windows(self) -> bool:
        return bool(self.facts["container"] == "wsl")

    def by(self, trait: Callable[[Gpu], Hashable]) -> dict[Any, list[Gpu]]:
        """Group the GPUs by a trait, without those for which it is None, "" or False: one cause, one finding."""
        groups: dict[Any, list[Gpu]] = defaultdict(list)
        for gpu in self.gpus:
            if value := trait(gpu):
                groups[value].append(gpu)
        return groups

    def named(self, gpus: Sequence[Gpu]) -> str:
        """Return a name for these GPUs, such as "GPU 3 (0000:2a:00.0)", "GPUs 0 and 1" or "all 8 GPUs"."""
        if len(gpus) == 1:
            return f"GPU {gpus[0]['index']} ({gpus[0]['slot']})"
        if len(gpus) == len(self.facts["gpus"]):
            return f"all {len(gpus)} GPUs"
        return f"GPUs {few([str(gpu['index']) for gpu in gpus])}"

    def have(self, gpus: Sequence[Gpu]) -> str:
        return f"{self.named(gpus)} {have(gpus)}"

    def at(self, command: str, name: str) -> str:
        """Return the nvidia-smi command, limited to one GPU. name: the name of the GPU in `nvidia-smi topo`, such as
        GPU3."""
        places = [address(gpu["slot"]) for gpu in self.facts["gpus"] if f"GPU{gpu['index']}" == name]
        return shell(f"{command} -i {{place}}", place=places[0]) if places else command

    def only(self, command: str, gpus: Sequence[Gpu]) -> str:
        """Return the nvidia-smi command, limited to these GPUs. Bus addresses select the GPUs, because GPU numbers can
        change."""
        if len(gpus) == len(self.facts["gpus"]):
            return command
        return shell(f"{command} -i {{places}}", places=",".join(address(gpu["slot"]) for gpu in gpus))

    def reset(self, gpus: Sequence[Gpu]) -> str:
        """Return the command that resets these GPUs. Before Ampere, GPUs with NVLink can only be reset together with
        the GPUs that they are linked to (nvidia-smi's manual, --gpu-reset)."""
        return self.only("sudo nvidia-smi --gpu-reset", self.together(gpus))

    def together(self, gpus: Sequence[Gpu]) -> Sequence[Gpu]:
        # Only GPUs before Ampere retire pages.
        linked = [gpu for gpu in self.gpus if gpu["retired"] and any(link["gbs"] for link in gpu["nvlinks"])]
        if not any(gpu in linked for gpu in gpus):
            return gpus
        return [gpu for gpu in self.facts["gpus"] if gpu in linked or gpu in gpus]


def have(gpus: Sequence[Gpu]) -> str:
    return "has" if len(gpus) == 1 else "have"


def its(gpus: Sequence[Gpu]) -> str:
    return "its" if len(gpus) == 1 else "their"


def duration(seconds: float | None) -> str:
    """Format a duration, such as "3 days", "5 h" or "40 s"."""
    if seconds is None:
        return "an unknown time"
    for size, unit in ((86400, "day"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return plural(int(seconds // size), unit) if unit == "day" else f"{seconds // size:.0f} {unit}"
    return f"{seconds:.0f} s"
