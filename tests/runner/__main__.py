"""Entry point of script/test: python -m runner [--elapsed S] [--no-nodes WHY] VERB [ARGUMENTS]."""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, NoReturn

from . import sandboxes
from .plan import fits, rotated
from .results import NOT_RUN, PASSED, Counts, Result, clock, last_time, table
from .sandboxes import ROOT
from .seconds import page, read_seconds
from .stage import UnknownStageError, find_stage, of_tier, read_stages
from .work import KEPT, TIMES, Work, keep_results, opening, run_alone

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .stage import Stage

# Seconds after which continuous integration must be finished: it starts no stage that is likely to end later.
CI_LIMIT = 50 * 60.0
VERBS = ("all", "ci", "down", "seconds", "slow", "stages")
# Tiers of each verb. ci adds stages of the tier all as time permits.
TIERS_OF = {"default": ["default"], "all": ["default", "all"], "ci": ["default"], "slow": ["slow"]}
PAGE = ROOT / "docs/dev/test_seconds.md"
# Exit status if all possible stages passed, and the rest needs containers.
NO_NODES = 3


def main() -> int:
    options = parse()
    stages = read_stages()
    verb = options.verb
    if verb == "stages":
        print("\n".join(listed(stage) for stage in stages.values()))
        return 0
    if verb == "seconds":
        write_seconds(list(stages))
        return 0
    if verb == "down":
        return 1 if sandboxes.remove_all() else 0
    if verb in TIERS_OF:
        if options.arguments:
            return refuse(f"script/test {verb} takes no arguments.")
        return several(stages, options)
    try:
        stage = find_stage(stages, verb, VERBS)
    except UnknownStageError as problem:
        return refuse(str(problem))
    if stage.nodes and options.no_nodes:
        return refuse(f"{stage.name} needs containers, and {options.no_nodes}.", NO_NODES)
    print(opening(stage), flush=True)
    signal.signal(signal.SIGINT, leave_to_stage)
    result = run_alone(stage, options.arguments)
    print(f"\n{table([result])}")
    if stage.nodes:
        print("Its machines stay up for the next run; script/test down removes them.")
    return 0 if result.outcome == PASSED else 1


def leave_to_stage(number: int, frame: object) -> None:
    """Ignore the signal. The stage also receives Ctrl-C and ends, and then the table is printed."""


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="script/test", add_help=False, allow_abbrev=False)
    parser.add_argument("--elapsed", type=float, default=0.0, help="seconds since script/test was called")
    parser.add_argument("--no-nodes", default="", help="reason why containers cannot be started")
    parser.add_argument("verb")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    return parser.parse_args()


def refuse(text: str, status: int = 2) -> int:
    print(text, file=sys.stderr)
    return status


def listed(stage: Stage) -> str:
    return f"{stage.name:<18} {stage.tier:<8} {last_time(TIMES, stage):<21}  {stage.does}"


def write_seconds(names: Sequence[str]) -> None:
    kept = json.loads(TIMES.read_text()) if TIMES.exists() else {}
    PAGE.write_text(page(names, kept, {name: read_seconds(KEPT / f"{name}.xml") for name in names}))
    print(f"Written: {PAGE.relative_to(ROOT)}")


def several(stages: dict[str, Stage], options: argparse.Namespace) -> int:
    """Run several stages in two lanes and print their table."""
    began = time.monotonic() - float(options.elapsed)

    def now() -> float:
        return time.monotonic() - began

    work = Work(show=lambda text: print(text, flush=True))
    interrupt(work)
    lanes = min(len(sandboxes.LANES), os.cpu_count() or 1)
    wanted = of_tier(stages, *TIERS_OF[options.verb])
    left_out = run_possible(work, wanted, lanes, options.no_nodes)
    if options.verb == "ci" and not work.stopping and all(one.outcome == PASSED for one in work.results):
        further = rotated(of_tier(stages, "all"), commits())
        work.retry = True
        left_out += work.run(further, lanes, lambda stage: fits(stage, now(), CI_LIMIT))
    if not options.no_nodes:
        sandboxes.remove_all()
    return conclude(work, left_out, now())


def run_possible(work: Work, wanted: Sequence[Stage], lanes: int, no_nodes: str) -> list[Stage]:
    """Run the stages that this machine supports. Add the other stages to the results with the reason."""
    possible = [stage for stage in wanted if not (stage.nodes and no_nodes)]
    left_out = work.run(possible, lanes)
    work.results += [Result(stage, NOT_RUN, why=no_nodes) for stage in wanted if stage not in possible]
    return left_out


def conclude(work: Work, left_out: Sequence[Stage], seconds: float) -> int:
    keep_results(work.results)
    print(f"\n{table(work.results)}")
    if left_out:
        print(f"\nLeft out for time: {', '.join(stage.name for stage in left_out)}")
    for result in work.results:
        for test in result.retried:
            print(f"\n{test} failed at first and passed when run again: the test or the product has a race.")
    total = sum((result.counts for result in work.results), Counts())
    failed = [result for result in work.results if result.outcome not in {PASSED, NOT_RUN}]
    missing = [result for result in work.results if result.outcome == NOT_RUN]
    print(f"\n{total}")
    word = "Failed" if failed else "Passed, without what needs containers," if missing else "Passed"
    print(f"{word} after {clock(seconds)}.")
    return 1 if failed else NO_NODES if missing else 0


def interrupt(work: Work) -> None:
    """End all stages on Ctrl-C and SIGTERM. The table is still printed."""

    def stop(number: int, frame: object) -> None:
        del frame
        if work.stopping:
            leave(number)
        work.stop()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)


def leave(number: int) -> NoReturn:
    raise SystemExit(128 + number)


def commits() -> int:
    """Return the number of commits. It selects the rotating stage, independently of local state."""
    argv = ["git", "rev-list", "--count", "HEAD"]
    done = subprocess.run(argv, cwd=ROOT, check=False, capture_output=True, text=True)
    return int(done.stdout) if done.returncode == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
