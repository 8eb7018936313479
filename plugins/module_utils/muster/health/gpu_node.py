"""The GPUs of a node as the rules see them: facts, request, and functions that name GPUs in messages and commands."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..gpu_info.values import address
from ..verdict.commands import shell
from ..verdict.words import few, plural

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@dataclass(frozen=True)
class GpuNode:
    """A node and its GPUs. facts: the facts of gpu_info. request: the options of nccl_health."""

    facts: Mapping[str, Any]
    request: Mapping[str, Any]

    @property
    def name(self) -> str:
        return str(self.request["node"])

    @property
    def gpus(self) -> list[dict[str, Any]]:
        """Return the GPUs that respond."""
        return [gpu for gpu in self.facts["gpus"] if not gpu["lost"]]

    @property
    def under_windows(self) -> bool:
        return bool(self.facts["container"] == "wsl")

    def named(self, gpus: Sequence[Mapping[str, Any]]) -> str:
        """Return a name for these GPUs, such as "GPU 3 (0000:2a:00.0)", "GPUs 0 and 1" or "all 8 GPUs"."""
        if len(gpus) == 1:
            return f"GPU {gpus[0]['index']} ({gpus[0]['slot']})"
        if len(gpus) == len(self.facts["gpus"]):
            return f"all {len(gpus)} GPUs"
        return f"GPUs {few([str(gpu['index']) for gpu in gpus])}"

    def at(self, command: str, name: str) -> str:
        """Return the nvidia-smi command, limited to one GPU. name: the name of the GPU in `nvidia-smi topo`, such as
        GPU3."""
        places = [address(gpu["slot"]) for gpu in self.facts["gpus"] if f"GPU{gpu['index']}" == name]
        return shell(f"{command} -i {{place}}", place=places[0]) if places else command

    def only(self, command: str, gpus: Sequence[Mapping[str, Any]]) -> str:
        """Return the nvidia-smi command, limited to these GPUs. Bus addresses select the GPUs, because GPU numbers can
        change."""
        if len(gpus) == len(self.facts["gpus"]):
            return command
        return shell(f"{command} -i {{places}}", places=",".join(address(gpu["slot"]) for gpu in gpus))


def have(gpus: Sequence[Mapping[str, Any]]) -> str:
    return "has" if len(gpus) == 1 else "have"


def duration(seconds: int | None) -> str:
    """Format a duration, such as "3 days", "5 h" or "40 s"."""
    if seconds is None:
        return "an unknown time"
    for size, unit in ((86400, "day"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return plural(seconds // size, unit) if unit == "day" else f"{seconds // size} {unit}"
    return f"{seconds} s"
