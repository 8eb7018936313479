"""A rank's first process: it starts the worker, gives each stage its time, and reports what became of it.

It imports no torch and touches no device, so that it is there to report when a device hangs. A worker that hangs or
dies is replaced by one that goes on behind the stage which it was in; so is one whose peers did (payload/meeting.py).
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .meeting import BEHIND_SECONDS
from .options import EXIT_GOOD, EXIT_NOT_DONE, EXIT_USAGE, EXIT_WRONG
from .stages import Stage, chosen
from .watched import state_of

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    Report = dict[str, Any]

START_SECONDS = 120.0  # until a worker says that it is there: torch is imported, from a slow disk perhaps
STARTS = 2  # workers that may hang or die before they say anything; then the device does not answer
CLOSE_SECONDS = 60.0  # for what comes behind the last stage
LOOK_SECONDS = 5.0  # at the process of a worker that says nothing
STOPPED = 2  # looks in a row at which it was stopped by a signal, which nobody here sends
STATES = {"T": ", stopped by a signal", "D": ", waiting for a device"}  # by the kernel's letter
KILL_SECONDS = 5.0  # a process that waits in the kernel may not end at all
ALIVE_SECONDS = 20.0  # between two lines of a stage that says nothing, so that nobody takes the ranks for dead


def say(event: str, **facts: Any) -> None:
    """One line for whoever judges; Muster's supervisor carries it to the controller."""
    sys.stdout.write("@muster " + json.dumps({"event": event, **facts}) + "\n")  # at once: other ranks write there too
    sys.stdout.flush()


def main(options: argparse.Namespace) -> int:
    """Have every stage done, each once; for the exit statuses see payload/options.py."""
    try:
        stages = chosen(options.mode, options.stages)
    except ValueError as problem:
        print(problem, file=sys.stderr)
        return EXIT_USAGE
    reports: list[Report] = []
    lost: Report | None = None
    silent = 0
    while len(reports) < len(stages) or (lost and not options.judged):
        worker = Worker(stages[len(reports) :], lost)
        lost = None
        for report in worker.reports():
            reports.append(report)
            say("stage", rank=int(os.environ["RANK"]), **report)
            if report["status"] in ("timeout", "lost"):
                lost = report
        silent = 0 if worker.spoke else silent + 1
        if silent == STARTS:
            reports += not_tried(stages[len(reports) :])
            break
    if options.output:
        keep(Path(options.output), reports)
    return EXIT_GOOD if options.judged else status_of(reports)


def not_tried(stages: list[Stage]) -> list[Report]:
    rank = os.environ["RANK"]
    why = f"the processes of rank {rank} do not come to their first stage: its device may not answer"
    left = [{"stage": stage.name, "status": "skipped", "seconds": 0.0, "why": why, "facts": {}} for stage in stages]
    for report in left:
        say("stage", rank=int(rank), **report)
    return left


def keep(folder: Path, reports: list[Report]) -> None:
    """A copy that cannot be written changes nothing of what was found."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"rank-{os.environ['RANK']}.json").write_text(json.dumps(reports, indent=1), encoding="utf-8")
    except OSError as problem:
        print(f"{folder}: {problem}", file=sys.stderr)


def status_of(reports: list[Report]) -> int:
    statuses = {report["status"] for report in reports}
    if "wrong" in statuses:
        return EXIT_WRONG
    return EXIT_NOT_DONE if statuses - {"ok", "skipped"} else EXIT_GOOD


class Worker:
    """spoke: whether it came to a stage."""

    def __init__(self, stages: list[Stage], before: Report | None) -> None:
        """before: how the worker before was lost, which its peers are to be told."""
        self.left = list(stages)
        self.before = json.dumps(before) if before else ""
        self.spoke = False
        self.count = 0  # of places that it said it is at, in this stage
        self.clock("starting", START_SECONDS)

    def clock(self, where: str, seconds: float) -> None:
        self.where, self.limit, self.began = where, seconds, time.monotonic()

    def reports(self) -> Iterator[Report]:
        """Yield the report of each stage; end early behind one in which the worker was lost, or which it gave up."""
        reading, writing = os.pipe()
        first = self.left[0].name if self.left else ""
        own = [f"--pipe={writing}", f"--parent={os.getpid()}", f"--first={first}", f"--lost={self.before}"]
        words = [sys.executable, "-u", sys.argv[0], *sys.argv[1:], *own]
        process = subprocess.Popen(words, pass_fds=[writing])
        os.close(writing)
        try:
            yield from self.listen(process, reading)
        finally:
            os.close(reading)
            end(process)

    def listen(self, process: subprocess.Popen[bytes], pipe: int) -> Iterator[Report]:
        text, stopped, spoken = b"", 0, time.monotonic()
        while True:
            rest = self.began + self.limit - time.monotonic()
            ready, _, _ = select.select([pipe], [], [], max(0.0, min(rest, LOOK_SECONDS)))
            if ready:
                stopped = 0
                piece = os.read(pipe, 65536)
                if not piece:
                    yield from self.lost("lost", how_it_ended(process))
                    return
                *lines, text = (text + piece).split(b"\n")
                for line in lines:
                    yield from self.take(line)
            # Also of a worker that says often where it is: nobody else hears that.
            if os.environ.get("LOCAL_RANK") == "0" and time.monotonic() - spoken >= ALIVE_SECONDS:
                spoken = time.monotonic()
                print(f"{self.where}, for {spoken - self.began:.0f} s", flush=True)
            if ready:
                continue
            if process.poll() is not None:  # a child that it left behind still has its end of the pipe
                yield from self.lost("lost", how_it_ended(process))
                return
            state = state_of(process.pid)
            stopped = stopped + 1 if state == "T" else 0
            if rest <= 0 or stopped == STOPPED:
                why = (
                    f"did not go on{STATES['T']}"
                    if stopped == STOPPED
                    else f"did not end within {self.limit:g} s{STATES.get(state, '')}"
                )
                yield from self.lost("timeout", why, state)
                return

    def take(self, line: bytes) -> Iterator[Report]:
        try:
            message = json.loads(line)
            kind = message["is"]
        except (ValueError, TypeError, KeyError):
            return  # cut short by its death, or not the worker's
        if kind == "begin":
            self.spoke, self.count = True, 0
            self.clock("at its beginning", message["seconds"])
        elif kind == "at":
            self.count += 1
            self.where = "in " + message["text"]
        elif kind == "say":
            say(**message["event"])
        elif kind == "end":
            stage = self.left.pop(0)
            self.clock(f"behind {stage.name}", message["seconds"] + BEHIND_SECONDS if self.left else CLOSE_SECONDS)
            yield message["report"]

    def lost(self, status: str, why: str, state: str = "") -> Iterator[Report]:
        """The stage in which it was lost; nothing behind the last one, and where it gave up by itself."""
        if self.left and why:
            seconds = round(time.monotonic() - self.began, 3)
            facts = {"at": self.count, "state": state}
            why = f"{why} ({self.where})"
            yield {"stage": self.left[0].name, "status": status, "seconds": seconds, "why": why, "facts": facts}


def how_it_ended(process: subprocess.Popen[bytes]) -> str:
    """Nothing where it ended by itself, in order that a new one takes part in a new process group."""
    try:
        code = process.wait(KILL_SECONDS)
    except subprocess.TimeoutExpired:
        return "its process closed its pipe, and does not end"
    if code == 0:
        return ""
    return f"its process was ended by {signal_name(-code)}" if code < 0 else f"its process ended with {code}"


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # most real-time signals have none
        return f"signal {number}"


def end(process: subprocess.Popen[bytes]) -> None:
    for seconds, kill in ((1.0, False), (KILL_SECONDS, True)):  # perhaps it was about to end
        if kill and process.poll() is None:
            process.kill()
        with suppress(subprocess.TimeoutExpired):
            process.wait(seconds)
            return
