"""Run script/test in a copy of the checkout, and read the failed tests."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING

from mutations.attribution import Failure, Outcome

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from mutations.mutant import Mutant

SUITES = {"unit": ["script/test", "unit"], "default": ["script/test"]}
# A mutation may make a unit test hang: faulthandler ends it. Tests on machines have their own timeouts.
OPTIONS = {"unit": "-o faulthandler_timeout=200 -o faulthandler_exit_on_timeout=true", "default": ""}
GRACE = 300  # seconds for script/test to remove its machines


class ScriptTest:
    """Runs script/test. limit: time limit of a run in seconds."""

    def __init__(self, checkout: Path, name: str, limit: float) -> None:
        self.checkout, self.name, self.limit = checkout, name, limit
        self.log = checkout.parent / f"{checkout.name}.log"
        self.kept = checkout / "artifacts/tests"

    def __call__(self, mutants: Sequence[Mutant], only: Sequence[Failure] | None) -> Outcome:
        with ExitStack() as applied:
            for one in mutants:
                one.apply(self.checkout)
                applied.callback(one.revert, self.checkout)
            if only is None:
                return self.run(SUITES[self.name], self.name)
            found = Outcome()
            for stage, tests in by_stage(only):
                found = self.run(["script/test", stage], stage, tests)
                if found.failures or not found.in_time:
                    break
            return found

    def run(self, argv: list[str], stage: str, tests: Sequence[str] = ()) -> Outcome:
        """Run a stage with script/test. tests: run only these failed tests of the stage."""
        shutil.rmtree(self.kept, ignore_errors=True)
        if tests:
            asked = cache_of(self.kept, stage)
            asked.parent.mkdir(parents=True)
            asked.write_text(json.dumps(dict.fromkeys(tests, True)))
            argv = [*argv, "--last-failed", "--last-failed-no-failures=none"]
        env = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        env |= {"ANSIBLE_CONFIG": str(self.checkout / "ansible.cfg"), "PYTEST_ADDOPTS": OPTIONS[self.name]}
        with self.log.open("ab") as log:
            child = subprocess.Popen(
                argv,
                cwd=self.checkout,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
            try:
                code = child.wait(self.limit)
            except subprocess.TimeoutExpired:
                return Outcome(read_failures(self.kept), in_time=False)
            finally:
                end(child)
        failures = read_failures(self.kept)
        if code not in (0, 5) and not failures:  # 5: no tests found
            failures = [Failure(stage)]
        return Outcome(failures)


def end(child: subprocess.Popen[bytes]) -> None:
    """End a run together with all its child processes."""
    if child.poll() is None:
        os.killpg(child.pid, signal.SIGTERM)
        deadline = time.monotonic() + GRACE
        while child.poll() is None and time.monotonic() < deadline:
            time.sleep(0.1)
    with suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()


def cache_of(kept: Path, stage: str) -> Path:
    """Return the path where pytest keeps the failed tests of a stage."""
    return kept / f"{stage}.cache/v/cache/lastfailed"


def read_failures(kept: Path) -> list[Failure]:
    """Read the results of the last run: failed tests, and stages that failed without a failed test."""
    try:
        outcomes = json.loads((kept / "results.json").read_text())
    except FileNotFoundError:  # the run was ended
        outcomes = {path.name.removesuffix(".cache"): "" for path in kept.glob("*.cache")}
    found = []
    for stage, outcome in outcomes.items():
        path = cache_of(kept, stage)
        tests = list(json.loads(path.read_text())) if path.exists() else []
        found += [Failure(stage, test) for test in tests]
        if not tests and outcome not in ("", "passed", "not run"):
            found.append(Failure(stage))
    return found


def by_stage(failures: Sequence[Failure]) -> Iterator[tuple[str, list[str]]]:
    for stage in dict.fromkeys(failure.stage for failure in failures):
        yield stage, [failure.test for failure in failures if failure.stage == stage and failure.test]
