"""Who computes on the GPUs, as nvidia-smi lists it: a screen's graphics are not among them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from ..tools.run import run
from .seats import HOLDERS_SECONDS, NOT_SEEN, holder

if TYPE_CHECKING:
    from collections.abc import Iterator

Json = dict[str, Any]

SECONDS = 12.0  # for each of two questions; a driver that sleeps takes long to answer the first
GPU = "gpu-{}"


def computing(*, gpus: bool) -> Json:
    """Return {computing: {seat: [holder]}, uuids, why}. gpus: whether the launch uses any; else nothing is asked."""
    nothing: Json = {"computing": {}, "uuids": [], "why": ""}
    if not gpus:
        return nothing
    listed = run("nvidia-smi", "--query-gpu=index,uuid", "--format=csv,noheader", seconds=SECONDS)
    if listed.code != 0:
        return {**nothing, "why": listed.why}
    names = {uuid: int(index) for index, uuid in rows(listed.text) if index.isdecimal()}
    uuids = sorted(names, key=names.__getitem__)
    apps = run("nvidia-smi", "--query-compute-apps=gpu_uuid,pid", "--format=csv,noheader", seconds=SECONDS)
    if apps.code != 0:
        return {**nothing, "uuids": uuids, "why": apps.why}
    found: dict[str, list[Json]] = {}
    deadline = time.monotonic() + HOLDERS_SECONDS
    for uuid, pid in rows(apps.text):
        if uuid in names:
            who = holder(int(pid), deadline - time.monotonic()) if pid.isdecimal() else NOT_SEEN
            found.setdefault(GPU.format(names[uuid]), []).append(who)
    return {"computing": found, "uuids": uuids, "why": ""}


def rows(text: str) -> Iterator[tuple[str, str]]:
    for line in text.splitlines():
        first, comma, second = line.partition(",")
        if comma:
            yield first.strip(), second.strip()
