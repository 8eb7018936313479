"""A rank's second process: it does the stages in their order, and may be killed at any moment."""

from __future__ import annotations

import importlib
import json
import os
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch.distributed as dist

from .context import Context, NotTriedError
from .meeting import WAIT_SECONDS, AbsentError, Meeting
from .options import EXIT_GOOD
from .stages import Stage, chosen
from .table import merged, table

if TYPE_CHECKING:
    import argparse

MOST_WRONG = 20  # sentences; the number of all is in the facts
MOST_REPORT = 60_000  # characters: a launch's supervisor takes lines of 64 KiB
CLOSE_SECONDS = 20.0


class Pipe:
    """To the rank's first process: one JSON object a line, written whole."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    def send(self, message: dict[str, Any]) -> None:
        data = (json.dumps(message) + "\n").encode()
        while data:
            data = data[os.write(self.descriptor, data) :]


def main(options: argparse.Namespace) -> int:
    pipe = Pipe(options.pipe)
    stages = chosen(options.mode, options.stages)
    names = [stage.name for stage in stages]
    context = Context(options, pipe.send)
    meeting = Meeting(context.join_store(), context.rank, context.world_size)
    if options.lost:
        before = json.loads(options.lost)
        meeting.tell(before["stage"], before)
    longest = max(seconds_of(stage, options) for stage in stages)
    for stage in stages[names.index(options.first) if options.first else len(names) :]:
        seconds = seconds_of(stage, options)
        pipe.send({"is": "begin", "seconds": seconds + WAIT_SECONDS})  # its peers may still be starting
        report = report_of(stage, context, meeting, longest, lambda limit: pipe.send({"is": "begin", "seconds": limit}))
        meeting.tell(stage.name, report)
        pipe.send({"is": "end", "seconds": seconds, "report": report})
        if not meeting.together(stage.name, seconds) and stage is not stages[-1]:
            os._exit(EXIT_GOOD)  # a group with a rank that is not as the others may not even end
    if not options.judged:
        close(options, names, meeting)
    os._exit(EXIT_GOOD)  # neither a group nor a device may hold it up: all was said


def seconds_of(stage: Stage, options: argparse.Namespace) -> float:
    return (options.limit or stage.seconds[options.mode]) + (options.seconds if stage.lasts else 0)


def report_of(stage: Stage, context: Context, meeting: Meeting, longest: float, begin: Any) -> dict[str, Any]:
    """{stage, status, seconds, why, facts}; wrong where the stage says so, failed where it raised."""
    began = time.monotonic()
    context.wrong = []
    facts: dict[str, Any] = {}
    why = ""
    try:
        if stage.group and not dist.is_initialized():
            context.at("waiting for the other ranks")
            meeting.gather(stage.name, WAIT_SECONDS)
            context.form_group(stage.name, longest + WAIT_SECONDS)
        began = time.monotonic()
        begin(seconds_of(stage, context.options))
        module, _, function = stage.run.partition(":")
        facts = getattr(importlib.import_module(f".{module}", __package__), function)(context) or {}
        status = "wrong" if context.wrong else "ok"
        why = "; ".join(context.wrong[:MOST_WRONG])
    except NotTriedError as skipped:
        status, why = "skipped", str(skipped)
    except AbsentError as absent:
        status, why, facts = "failed", str(absent), {"absent": absent.ranks}
    except Exception as problem:
        traceback.print_exc()
        status, why = "failed", f"{type(problem).__name__}: {problem}"[:1000]
    seconds = round(time.monotonic() - began, 3)
    report = {"stage": stage.name, "status": status, "seconds": seconds, "why": why, "facts": facts}
    return fitting(report)


def fitting(report: dict[str, Any]) -> dict[str, Any]:
    """The report, or one that says why it cannot be sent."""
    try:
        size = len(json.dumps(report))
    except (TypeError, ValueError) as problem:
        return {**report, "status": "failed", "facts": {}, "why": f"its report is no JSON: {problem}"[:1000]}
    if size > MOST_REPORT:
        return {**report, "status": "failed", "facts": {}, "why": f"its report is too large ({size} characters)"}
    return report


def close(options: argparse.Namespace, names: list[str], meeting: Meeting) -> None:
    """Rank 0 shows what came of it, for whoever started this by hand; then all end together."""
    if meeting.rank == 0:
        reports = meeting.reports(names)
        print(table(names, reports), flush=True)
        if options.output:
            path = Path(options.output)
            path.mkdir(parents=True, exist_ok=True)
            (path / "smoke.json").write_text(json.dumps(merged(options.mode, reports), indent=1), encoding="utf-8")
    meeting.close(CLOSE_SECONDS)
