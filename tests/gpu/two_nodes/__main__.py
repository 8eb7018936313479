"""Create two nodes, run the experiments, and remove the nodes; see README.md."""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from . import layers, machine, nodes, recordings
from .experiments import EXPERIMENTS, Experiment, Lab, choose
from .report import FAILED, FINDING, LEFT_OUT, Result, compare, summary, table

if TYPE_CHECKING:
    from collections.abc import Iterator

LIMIT = 540  # seconds in total
END = 30  # of these for the removal
ARTIFACTS = Path("artifacts/two-nodes")


class Session:
    """A run of the experiments: clock, steps and results."""

    def __init__(self, out: Path, limit: float) -> None:
        self.out = out
        self.began = time.monotonic()
        self.limit = limit
        self.steps: dict[str, float] = {}
        self.results: list[Result] = []

    def now(self) -> float:
        return time.monotonic() - self.began

    def say(self, text: str) -> None:
        print(f"[{self.now():3.0f} s] {text}", flush=True)

    @contextmanager
    def step(self, name: str) -> Iterator[list[str]]:
        """Run a step, then print its duration and the texts appended to the yielded list. Add the step's name to an
        exception."""
        began, said = self.now(), list[str]()
        try:
            yield said
        except Exception as error:
            self.say(f"{name} FAILED: {error}")
            raise
        finally:
            self.steps[name] = round(self.now() - began, 1)
        self.say(f"{name}: {self.steps[name]:.1f} s{''.join(f'; {one}' for one in said)}")

    def make(self) -> None:
        with self.step("place"):
            nodes.remove()
            layers.make_place()
        with self.step("base") as said:
            said.append(layers.make_base())
        with self.step("controller") as said:
            said.append(layers.make_controller(nodes.ADDRESS))
        with self.step("nodes") as said:
            said.append(nodes.make_groups())
            for node in nodes.NODES:
                nodes.begin(node)
            said.append(f"network: {nodes.make_network()}")
        with self.step("boot") as said:
            said.append(nodes.wait_for_boot())

    def try_out(self, one: Experiment, lab: Lab) -> None:
        began = self.now()
        try:
            result = compare(one.name, one.expected, one.run(lab, one.name), self.now() - began)
        except Exception as error:
            result = Result(one.name, FAILED, str(one.expected), str(error), seconds=self.now() - began)
            lab.end()
        self.results.append(result)
        self.say(result.line())
        self.write()

    def write(self) -> None:
        recordings.pack(self.out / "recordings", self.out / "recordings.tgz")
        if ARTIFACTS.is_dir():
            recordings.pack(ARTIFACTS, self.out / "artifacts.tgz")
        (self.out / "summary.json").write_text(summary(machine.described(), self.steps, self.results))
        (self.out / "summary.txt").write_text(table(self.results))

    def leave_out(self, name: str, why: str) -> None:
        self.results.append(Result(name, LEFT_OUT, "", why))
        self.say(self.results[-1].line())

    def run(self, wanted: list[str]) -> None:
        chosen, left_out = choose(wanted, machine.gpus())
        self.make()
        folder = self.out / "recordings"
        folder.mkdir(parents=True)
        lab = Lab(folder, ARTIFACTS)
        try:
            for one in chosen:
                if self.now() + one.seconds + END <= self.limit:
                    self.try_out(one, lab)
        finally:
            tried = {one.name for one in self.results}
            for one in chosen:
                if one.name not in tried:
                    self.leave_out(one.name, "no time was left")
            for name, why in left_out.items():
                self.leave_out(name, why)
            self.write()


def end(number: int, _frame: object) -> None:
    raise SystemExit(f"ended by {signal.Signals(number).name}")


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests/gpu/two_nodes/run", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="EXPERIMENT", help="default: all, by priority")
    parser.add_argument("--list", action="store_true", help="list the experiments")
    parser.add_argument("--limit", type=float, default=LIMIT, help=f"seconds in total (default: {LIMIT})")
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("OUT", "artifacts/gpu/two_nodes")))
    parser.add_argument("--remove", action="store_true", help="only remove the leftovers of a killed run")
    given = parser.parse_args()
    if given.list:
        print("\n".join(f"{one.name:<11} {one.seconds:>3} s  {one.does}; {one.expected}" for one in EXPERIMENTS))
        return 0
    if os.getuid() != 0:
        parser.error("nodes need root")
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGALRM):
        signal.signal(number, end)
    signal.alarm(int(given.limit) - END)
    given.out.mkdir(parents=True, exist_ok=True)
    session = Session(given.out, given.limit)
    session.say(machine.described())
    try:
        if not given.remove:
            session.run(given.names)
    finally:
        signal.alarm(0)
        with session.step("removal"):
            if left := nodes.remove():
                raise RuntimeError(f"left: {', '.join(left)}")
            shutil.rmtree(given.out / "recordings", ignore_errors=True)
            shutil.rmtree(ARTIFACTS, ignore_errors=True)
        print(table(session.results), end="")
    return int(any(one.outcome in (FAILED, FINDING) for one in session.results))


if __name__ == "__main__":
    sys.exit(main())
