"""Run stages in separate processes in two lanes, with progress and a log per stage."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from . import sandboxes
from .plan import take_next
from .results import (
    FAILED,
    PASSED,
    STOPPED,
    Result,
    clock,
    describe,
    keep_seconds,
    last_time,
    read_counts,
    read_failed,
)
from .sandboxes import BIN, ROOT

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import IO

    from .sandboxes import Sandbox
    from .stage import Stage

KEPT = ROOT / "artifacts/tests"
RESULTS = "results.json"  # in KEPT: outcomes of the last run's stages
TIMES = KEPT / "seconds.json"
PROGRESS = re.compile(r"\[ *(\d{1,3})%\]")
SHOWN = 60.0  # seconds between progress lines
GRACE = 20.0  # seconds for a stage to end by itself
MOST_RETRIED = 3
MOST_LINES = 400  # of output of a failed stage
NICENESS = 10  # of a stage without nodes beside one with nodes
TAIL = 4096  # bytes of a log searched for progress


def environment(sandbox: Sandbox, stage: Stage) -> dict[str, str]:
    return {
        **os.environ,
        "MUSTER_TEST_REPORT": str(report_of(stage)),  # for a stage that runs pytest itself
        **sandbox.env,
        "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
        "PATH": f"{BIN}:{os.environ['PATH']}",
        "PYTHONUNBUFFERED": "1",
    }


def sandbox_of(stage: Stage, lane: int) -> Sandbox:
    own = sandboxes.of_lane(lane)
    return sandboxes.beside(own, stage.sandbox, sandboxes.PLATFORMS[1]) if stage.sandbox else own


def report_of(stage: Stage) -> Path:
    return KEPT / f"{stage.name}.xml"


def argv_of(stage: Stage, command: Sequence[str], further: Sequence[str]) -> list[str]:
    """Return the argv of a command. For pytest and molecule, add the user's further arguments."""
    if command[0] == "pytest":
        cache = f"cache_dir={KEPT / (stage.name + '.cache')}"
        return ["python", "-m", *command, "-o", cache, f"--junitxml={report_of(stage)}", *further]
    return [*command, *(further if command[0] == "molecule" else ())]


def opening(stage: Stage) -> str:
    """Return the line that is printed when a stage starts."""
    return f"== {stage.name}: {stage.does} ({last_time(TIMES, stage)})"


class Running:
    """A running stage. Its process has a separate process group."""

    def __init__(self, stage: Stage, sandbox: Sandbox, output: IO[bytes] | None) -> None:
        self.stage, self.sandbox, self.output = stage, sandbox, output
        self.began = time.monotonic()
        self.process: subprocess.Popen[bytes] | None = None
        self.stopped = False

    def run(self, *further: str) -> int:
        """Run the commands of the stage until one fails. Return the exit status."""
        report_of(self.stage).unlink(missing_ok=True)
        for command in self.stage.commands:
            status = self.call(argv_of(self.stage, command, further))
            if status or self.stopped:
                return status or 1
        return 0

    def call(self, argv: Sequence[str]) -> int:
        self.process = subprocess.Popen(
            argv,
            cwd=ROOT,
            env=environment(self.sandbox, self.stage),
            stdin=subprocess.DEVNULL if self.output else None,
            stdout=self.output,
            stderr=subprocess.STDOUT if self.output else None,
            start_new_session=self.output is not None,
        )
        if self.output and not self.stage.nodes:
            yield_processor(self.process.pid)
        return self.process.wait()

    def stop(self) -> None:
        """End the process group with SIGTERM, then with SIGKILL."""
        self.stopped = True
        process = self.process
        if process is None or process.poll() is not None:
            return
        for number in (signal.SIGTERM, signal.SIGKILL):
            with suppress(ProcessLookupError):
                os.killpg(process.pid, number)
            with suppress(subprocess.TimeoutExpired):
                process.wait(GRACE)
                return


def yield_processor(pid: int) -> None:
    """Lower the priority of a session, so that stages with nodes, which take longest and mostly wait, are not slowed
    down.

    If the kernel groups processes by session (autogroup), a process's niceness applies only within the group. The group
    has its own nice value (sched(7)).
    """
    with suppress(OSError):
        os.setpriority(os.PRIO_PGRP, pid, os.nice(0) + NICENESS)
    with suppress(OSError):
        Path(f"/proc/{pid}/autogroup").write_text(str(NICENESS))


@dataclass
class Work:
    """Runs stages in lanes. show: function that prints a line. retry: whether to repeat the failed tests of a stage if
    only few tests failed."""

    show: Callable[[str], None]
    retry: bool = False
    results: list[Result] = field(default_factory=list)
    running: dict[int, Running] = field(default_factory=dict)
    stopping: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)

    def run(self, stages: Sequence[Stage], lanes: int, fits: Callable[[Stage], bool] | None = None) -> list[Stage]:
        """Run stages until no stage is left. Return the stages that did not fit into the time limit when they were
        due."""
        waiting = list(stages)
        left_out: list[Stage] = []

        def take(lane: int) -> Stage | None:
            with self.lock:
                while not self.stopping and (stage := take_next(waiting, lane)):
                    waiting.remove(stage)
                    if fits is None or fits(stage):
                        return stage
                    left_out.append(stage)
                return None

        def work(lane: int) -> None:
            while stage := take(lane):
                self.run_stage(stage, lane)

        threads = [threading.Thread(target=work, args=(lane,), daemon=True) for lane in range(lanes)]
        for thread in threads:
            thread.start()
        shown = time.monotonic()
        while any(thread.is_alive() for thread in threads):
            time.sleep(0.2)
            if time.monotonic() - shown >= SHOWN:
                shown = time.monotonic()
                self.show_progress()
        return left_out

    def run_stage(self, stage: Stage, lane: int) -> None:
        KEPT.mkdir(parents=True, exist_ok=True)
        log = KEPT / f"{stage.name}.log"
        self.show(opening(stage))
        retried: list[str] = []
        with log.open("wb") as output:
            current = self.running[lane] = Running(stage, sandbox_of(stage, lane), output)
            status = current.run()
            failed = read_failed(report_of(stage))
            if self.retry and status and 0 < len(failed) <= MOST_RETRIED and not current.stopped:
                self.show(f"== {stage.name}: failed tests run once more: {', '.join(failed)}")
                status = current.run("--last-failed")
                retried = failed if status == 0 else []
        del self.running[lane]
        result = finished(current, status, retried)
        if status == 0:
            keep_seconds(TIMES, stage.name, result.seconds)
        with self.lock:
            self.results.append(result)
        self.show(f"== {stage.name} after {clock(result.seconds)}: {describe(result)}")
        if result.outcome == FAILED:
            self.show("\n".join(failures(log.read_text(errors="replace"))))
            self.show(f"== The whole output of {stage.name}: {log.relative_to(ROOT)}")

    def show_progress(self) -> None:
        parts = [describe_progress(one) for _, one in sorted(self.running.items())]
        if parts:
            self.show(f"   {', '.join(parts)}")

    def stop(self) -> None:
        """End all running stages, and start no further stages."""
        self.stopping = True
        for one in list(self.running.values()):
            one.stop()


def finished(current: Running, status: int, retried: list[str]) -> Result:
    outcome = STOPPED if current.stopped else FAILED if status else PASSED
    seconds = time.monotonic() - current.began
    return Result(current.stage, outcome, seconds, read_counts(report_of(current.stage)), retried)


def describe_progress(one: Running) -> str:
    """Return the progress of a stage: elapsed time and share of finished tests."""
    text = f"{one.stage.name} {clock(time.monotonic() - one.began)}"
    with suppress(OSError), (KEPT / f"{one.stage.name}.log").open("rb") as log:
        log.seek(max(0, log.seek(0, os.SEEK_END) - TAIL))
        found = PROGRESS.findall(log.read().decode(errors="replace"))
        if found:
            text += f" ({found[-1]} % of its tests)"
    return text


def failures(log: str) -> list[str]:
    """Return the part of a stage's output that describes failures, limited to MOST_LINES lines."""
    lines = log.splitlines()
    begin = next((place for place, line in enumerate(lines) if re.match(r"=+ (FAILURES|ERRORS) =+", line)), 0)
    return lines[begin:][-MOST_LINES:]


def keep_results(results: Sequence[Result]) -> None:
    """Write the outcome of each stage as JSON."""
    KEPT.mkdir(parents=True, exist_ok=True)
    (KEPT / RESULTS).write_text(json.dumps({one.stage.name: one.outcome for one in results}, indent=1))


def run_alone(stage: Stage, further: Sequence[str]) -> Result:
    """Run one stage in the terminal with further arguments."""
    KEPT.mkdir(parents=True, exist_ok=True)
    current = Running(stage, sandbox_of(stage, 0), None)
    status = current.run(*further)
    result = finished(current, status, [])
    keep_results([result])
    if status == 0 and not further:
        keep_seconds(TIMES, stage.name, result.seconds)
    return result
