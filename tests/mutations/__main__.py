"""Draw mutants of the product from a seed, and report which mutants the tests catch: script/test mutations --seed N."""

from __future__ import annotations

import argparse
import fcntl
import shutil
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from mutations.attribution import attribute
from mutations.checkout import copy_checkout, make_repository
from mutations.drawing import draw, groups
from mutations.records import Records, table
from mutations.suite import SUITES, ScriptTest

if TYPE_CHECKING:
    from mutations.mutant import Mutant

ROOT = Path(__file__).parents[2]
LIMITS = {"unit": 3600.0, "default": 4 * 3600.0}  # seconds for one run


def main() -> int:
    parser = argparse.ArgumentParser(prog="script/test mutations", description=__doc__)
    parser.add_argument("--seed", type=int, required=True, help="the same seed draws the same mutants")
    parser.add_argument("--count", type=int, default=30, help="number of mutants (default: 30)")
    parser.add_argument("--suite", choices=list(SUITES), default="default", help="tests to run")
    parser.add_argument("--list", action="store_true", help="print the mutants and run nothing")
    parser.add_argument("--survivors", action="store_true", help="run surviving mutants again")
    chosen = parser.parse_args()
    mutants = draw(ROOT, chosen.seed, chosen.count)
    if chosen.list:
        print("\n\n".join(f"{one.place}  {one.room}, {one.change.kind}\n{one.diff}" for one in mutants))
        return 0
    folder = ROOT / "artifacts/mutations" / str(chosen.seed)
    folder.mkdir(parents=True, exist_ok=True)
    alone = (folder / "lock").open("a")
    try:
        fcntl.flock(alone, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        sys.exit(f"Another run has the mutants of seed {chosen.seed}.")
    for number in (signal.SIGINT, signal.SIGTERM):  # also ends the running suite
        signal.signal(number, lambda *_: sys.exit(130))
    records = Records(folder / f"{chosen.suite}.jsonl")
    known = records.caught_by
    open_ones = [one for one in mutants if one.key not in known or (chosen.survivors and not known[one.key])]
    say(f"{len(mutants)} mutants drawn from seed {chosen.seed}; {len(open_ones)} to run with {chosen.suite} tests")
    if open_ones:
        run(open_ones, chosen.suite, folder, records)
    report = table(mutants, records.caught_by)
    (folder / f"{chosen.suite}.txt").write_text(report)
    print(report, end="")
    return 0


def run(mutants: list[Mutant], name: str, folder: Path, records: Records) -> None:
    """Run the unit tests first, because they take only a third of the time. Only mutants that survive the unit tests
    need machines."""
    checkout = folder / name
    shutil.rmtree(checkout, ignore_errors=True)
    copy_checkout(ROOT, checkout)
    make_repository(checkout)
    try:
        for part in dict.fromkeys(["unit", name]):
            mutants = run_groups(groups(mutants), ScriptTest(checkout, part, LIMITS[part]), records, last=part == name)
    finally:
        shutil.rmtree(checkout)


def run_groups(parts: list[list[Mutant]], suite: ScriptTest, records: Records, *, last: bool) -> list[Mutant]:
    """Run one suite group by group. Return the survivors. last: whether this is the last suite, which records
    survivors."""
    survivors: list[Mutant] = []
    for number, group in enumerate(parts, 1):
        begun = time.monotonic()
        results = attribute(group, suite)
        records.keep([one for one in results if last or one.caught_by])
        survivors += [one.mutant for one in results if not one.caught_by]
        say(f"{suite.name}: group {number} of {len(parts)}, {time.monotonic() - begun:.0f} s")
        for result in results:
            say(f"  {result.mutant.place}: {result.caught_by or 'SURVIVED'}")
    return survivors


def say(line: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {line}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
