"""Find the compute processes on the GPUs with nvidia-smi. nvidia-smi does not list graphics processes in this query."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from ..tools.run import run
from .seats import HOLDERS_SECONDS, NOT_SEEN, holder

if TYPE_CHECKING:
    from ..tools.run import CommandResult

Json = dict[str, Any]

SECONDS = 12.0  # for each of two queries; a driver that is not loaded yet answers the first one slowly
GPU = "gpu-{}"


def computing(*, gpus: bool) -> Json:
    """Return {computing: {seat: [holder]}, uuids, why}. gpus: whether the launch uses GPUs; if not, nothing is
    queried."""
    if not gpus:
        return {"computing": {}, "uuids": [], "why": ""}
    asked = ask("index,uuid", SECONDS)
    uuids = {uuid: int(index) for index, uuid in asked.gpus if index.isdecimal()}
    found: dict[str, list[Json]] = {}
    deadline = time.monotonic() + HOLDERS_SECONDS
    for uuid, pid in asked.apps:
        if uuid in uuids:
            who = holder(int(pid), deadline - time.monotonic()) if pid.isdecimal() else NOT_SEEN
            found.setdefault(GPU.format(uuids[uuid]), []).append(who)
    return {"computing": found, "uuids": sorted(uuids, key=uuids.__getitem__), "why": asked.why}


class Asked(NamedTuple):
    """Output of nvidia-smi: the requested fields of each GPU, and (uuid, pid) of each compute process. why: the error
    of nvidia-smi."""

    gpus: list[list[str]]
    apps: list[list[str]]
    why: str


def ask(fields: str, seconds: float) -> Asked:
    """Run both queries in parallel, because each query waits for the same driver. fields: argument of --query-gpu."""
    questions = (f"--query-gpu={fields}", "--query-compute-apps=gpu_uuid,pid")
    with ThreadPoolExecutor(max_workers=len(questions)) as pool:
        gpus, apps = pool.map(partial(_answer, seconds=seconds), questions)
    if gpus.code != 0:
        return Asked([], [], gpus.why)
    return Asked(rows(gpus.text), rows(apps.text) if apps.code == 0 else [], apps.why if apps.code != 0 else "")


def _answer(question: str, seconds: float) -> CommandResult:
    return run("nvidia-smi", question, "--format=csv,noheader,nounits", seconds=seconds)


def rows(text: str) -> list[list[str]]:
    return [[word.strip() for word in line.split(",")] for line in text.splitlines() if "," in line]
