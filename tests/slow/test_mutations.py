"""Remove lines of each role, one at a time, in a copy of the checkout. The tests must detect each removal.

mutations.yml lists the removals and the tests. The tests first run from the same state without a removal. An undetected
removal shows a gap in the tests.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from machines import NODES, find_machine, list_nodes, make_bare, run_playbook
from mutations.checkout import copy_checkout
from paths import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from machines import Machine

pytestmark = pytest.mark.slow

TABLE: dict[str, list[dict[str, Any]]] = yaml.safe_load((Path(__file__).parent / "mutations.yml").read_text())
CASES = [pytest.param(role, each, id=f"{role}-{each['what']}") for role, listed in TABLE.items() for each in listed]


class Checkout:
    """A copy of the checkout. Tests in the copy use the running sandbox of this checkout."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        copy_checkout(ROOT, folder)

    def mutate(self, name: str, find: str, replace: str) -> None:
        path = self.folder / name
        text = path.read_text()
        assert text.count(find) == 1, f"stale: {name} has this {text.count(find)} times and not once:\n{find}"
        path.write_text(text.replace(find, replace))

    def test(self, *tests: str) -> Outcome:
        """Run these tests until the first failure."""
        begun = time.monotonic()
        report = self.folder / "report.xml"
        argv = [sys.executable, "-m", "pytest", "-q", "-x", f"--junitxml={report}"]
        if any(test.startswith("integration/") for test in tests):
            argv.append("--sandbox-is-up")
        done = subprocess.run(
            [*argv, *(f"tests/{test}" for test in tests)],
            cwd=self.folder,
            env={**os.environ, "ANSIBLE_CONFIG": str(self.folder / "ansible.cfg")},
            check=False,
            capture_output=True,
            text=True,
            timeout=600,
        )
        return Outcome(done.returncode, done.stdout, time.monotonic() - begun, report.read_text())


@dataclass(frozen=True)
class Outcome:
    """The result of a test run."""

    rc: int
    shown: str
    seconds: float
    report: str

    @property
    def detected_by(self) -> list[str]:
        """Return the tests that failed with an assertion, including assertions on the result of a play."""
        found = re.findall(r' name="([^"]*)"[^>]*><(?:failure|error) message="([^"]*)"', self.report)
        own = re.compile("(failed on setup with &quot;)?(AssertionError|assert |Failed: DID NOT RAISE)")
        return [name for name, said in found if own.match(said)]


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Machine]]:
    """Yield the nodes, and restore them afterwards."""
    list_nodes()
    play = run_playbook(tmp_path_factory.mktemp("up"), "playbooks/sandbox_up.yml")
    assert play.rc == 0, play.stdout
    yield [find_machine(name) for name in NODES]
    play = run_playbook(tmp_path_factory.mktemp("repaired"), "site.yml", tags="baseline,network")
    assert play.rc == 0, play.stdout


@pytest.fixture(scope="module")
def rows(figures: Callable[[str, list[dict[str, Any]]], Path]) -> Iterator[list[dict[str, Any]]]:
    rows: list[dict[str, Any]] = []
    yield rows
    if rows:
        figures("mutations", rows)


@pytest.fixture(scope="module")
def sound(machines: list[Machine], tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], None]:
    """Return a function that checks, once per role, that the tests pass without a mutation."""
    proved: set[str] = set()

    def prove(role: str) -> None:
        if role not in proved:
            for mutation in TABLE[role]:
                begin(machines, mutation)
            tests = dict.fromkeys(test for mutation in TABLE[role] for test in mutation["tests"])
            outcome = Checkout(tmp_path_factory.mktemp(role)).test(*tests)
            assert outcome.rc == 0, outcome.shown
            proved.add(role)

    return prove


def begin(machines: list[Machine], mutation: dict[str, Any]) -> None:
    """Undo the effects of the removed line on the nodes."""
    for machine in machines:
        if mutation.get("begin"):
            machine.inside("sh", "-ec", mutation["begin"])


@pytest.mark.parametrize(("role", "mutation"), CASES)
def test_removal_of_a_line_is_detected(
    role: str,
    mutation: dict[str, Any],
    machines: list[Machine],
    sound: Callable[[str], None],
    rows: list[dict[str, Any]],
    tmp_path: Path,
) -> None:
    sound(role)
    mutant = Checkout(tmp_path / "mutant")
    mutant.mutate(mutation["file"], mutation["find"], mutation.get("replace", ""))
    begin(machines, mutation)
    outcome = mutant.test(*mutation["tests"])
    for machine in machines:
        if not machine.ssh_answers():
            make_bare(tmp_path / "bare", machine.name)
    assert outcome.rc == 1, f"no test failed:\n{outcome.shown}"
    assert outcome.detected_by, f"no assertion failed:\n{outcome.shown}"
    rows.append(
        {
            "role": role,
            "what": mutation["what"],
            "seen by": ", ".join(f"`{name}`" for name in outcome.detected_by),
            "after": f"{outcome.seconds:.0f} s",
        }
    )


def test_every_role_has_five_mutations() -> None:
    assert {role: len(listed) for role, listed in TABLE.items() if len(listed) < 5} == {}
    assert {"node_baseline", "cluster_hosts", "ssh_mesh", "firewall"} <= set(TABLE)
