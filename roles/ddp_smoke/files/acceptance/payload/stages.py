"""The stages in their order, cheap to dear, and how long each may take: the one table of what is tried."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Stage:
    """name: as in the reports. run: "module:function" in this package, imported by the worker alone. seconds: by mode;
    a mode that is not there leaves the stage out. group: whether it needs all ranks together. lasts: it goes on for
    --seconds, which come on top.
    """

    name: str
    run: str
    seconds: dict[str, float] = field(default_factory=dict)
    group: bool = True
    lasts: bool = False


STAGES = (
    Stage("world", "world:world", {"quick": 120, "full": 60, "soak": 60}),
    Stage("device", "device:device", {"quick": 120, "full": 420, "soak": 2700}, group=False),
    Stage("collectives", "collectives:collectives", {"quick": 120, "full": 300, "soak": 120}),
    Stage("bandwidth", "bandwidth:bandwidth", {"quick": 120, "full": 600, "soak": 120}),
    Stage("transport", "transport:transport", {"quick": 30, "full": 30, "soak": 30}),
    Stage("equality", "equality:equality", {"quick": 120, "full": 240, "soak": 240}),
    Stage("sampling", "sampling:sampling", {"quick": 120, "full": 60, "soak": 60}),
    Stage("checkpoint", "checkpoint:checkpoint", {"quick": 120, "full": 120, "soak": 120}),
    Stage("precision", "precision:precision", {"quick": 120, "full": 120, "soak": 120}),
    Stage("stragglers", "stragglers:stragglers", {"quick": 120, "full": 120, "soak": 120}),
    Stage("scaling", "scaling:scaling", {"quick": 120, "full": 120, "soak": 120}),
    Stage("train", "train:train", {"quick": 120, "full": 120, "soak": 120}),
    Stage("soak", "soak:soak", {"soak": 120}, lasts=True),
)


def chosen(mode: str, names: str) -> list[Stage]:
    """Raises ValueError for a name that is none of the mode's stages."""
    there = {stage.name: stage for stage in STAGES if mode in stage.seconds}
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    unknown = sorted(set(wanted) - set(there))
    if unknown:
        raise ValueError(f"--stages: {', '.join(unknown)} is none of {', '.join(there)}")
    return [stage for name, stage in there.items() if not wanted or name in wanted]
