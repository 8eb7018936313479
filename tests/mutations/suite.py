"""Runs script/test in a copy of the checkout, and reads which tests failed."""

from __future__ import annotations

import json
import os
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
# A unit test that a mutation has wait for ever is ended by name; those on machines have waits of their own.
OPTIONS = {"unit": "-o faulthandler_timeout=200 -o faulthandler_exit_on_timeout=true", "default": ""}
# Of the run that this one is started in, or left from this one's start.
OWN = {"PYTHONPATH", "MUSTER_TEST_ONLY", "MUSTER_TEST_UNSTEADY"}
GRACE = 300  # seconds for script/test to remove its machines


class ScriptTest:
    """limit: seconds, after which a run is ended."""

    def __init__(self, checkout: Path, name: str, limit: float) -> None:
        self.checkout, self.name, self.limit = checkout, name, limit
        self.log = checkout.parent / f"{checkout.name}.log"
        self.failed = checkout.parent / f"{checkout.name}.failed"
        self.only = checkout.parent / f"{checkout.name}.only"

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
        env = {key: value for key, value in os.environ.items() if key not in OWN}
        env |= {
            "ANSIBLE_CONFIG": str(self.checkout / "ansible.cfg"),
            "MUSTER_TEST_READY": "yes",
            "MUSTER_TEST_FAILED": str(self.failed),
            "PYTEST_ADDOPTS": OPTIONS[self.name],
        }
        self.failed.write_text("")
        if tests:
            self.only.write_text(json.dumps(dict.fromkeys(tests, True), indent=0))
            env["MUSTER_TEST_ONLY"] = str(self.only)
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
                return Outcome(read_failures(self.failed.read_text()), in_time=False)
            finally:
                end(child)
        failures = read_failures(self.failed.read_text())
        if code not in (0, 5) and not failures:  # 5: none of the tests is there
            failures = [Failure(stage)]
        return Outcome(failures)


def end(child: subprocess.Popen[bytes]) -> None:
    """End a run with everything that it has started."""
    if child.poll() is None:
        os.killpg(child.pid, signal.SIGTERM)
        deadline = time.monotonic() + GRACE
        while child.poll() is None and time.monotonic() < deadline:
            time.sleep(0.1)
    with suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()


def read_failures(text: str) -> list[Failure]:
    """Read what script/test writes: a stage, and a test as JSON has it, or nothing behind it."""
    found: dict[Failure, None] = {}
    for line in text.splitlines():
        stage, _, test = line.partition(" ")
        found[Failure(stage, json.loads(f'"{test}"'))] = None
    named = {failure.stage for failure in found if failure.test}
    return [failure for failure in found if failure.test or failure.stage not in named]


def by_stage(failures: Sequence[Failure]) -> Iterator[tuple[str, list[str]]]:
    for stage in dict.fromkeys(failure.stage for failure in failures):
        yield stage, [failure.test for failure in failures if failure.stage == stage and failure.test]
