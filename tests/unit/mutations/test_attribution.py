"""Attribution of test failures to mutants, tested with a toy project whose script/test runs pytest, and with simulated
runs."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from mutations.attribution import NOT_ENDED, Failure, Outcome, Result, attribute
from mutations.mutant import Change, Mutant, mutant
from mutations.records import Records, table
from mutations.suite import ScriptTest, cache_of, read_failures

if TYPE_CHECKING:
    from collections.abc import Sequence

pytestmark = pytest.mark.extended

ROOT = Path(__file__).parents[3]
SOURCE = b"ONE = 1\nTWO = 2\nTHREE = 3\nFOUR = 4\n"
TESTS = """
import toy

def test_one():
    assert toy.ONE == 1

def test_two():
    assert toy.TWO == 2

def test_both():
    assert (toy.ONE, toy.TWO) == (1, 2)

def test_four():
    while toy.FOUR != 4:
        pass
"""
UNIT = {"does": "all", "tier": "default", "seconds": 5, "nodes": False, "tests": ["-q", "tests/unit"]}
BOTH, FIRST, SECOND, FOURTH = (f"tests/unit/test_toy.py::test_{name}" for name in ("both", "one", "two", "four"))


def change_of(text: bytes, new: str, source: bytes = SOURCE) -> Mutant:
    start = source.index(text)
    change = Change("constant", start, start + len(text), text.decode(), new)
    return mutant("plugins/toy.py", f"room/{text.decode()}", source, change)


ONE, TWO, THREE = (change_of(text, "9") for text in (b"1", b"2", b"3"))
NO_IMPORT = change_of(b"FOUR = 4", "raise ImportError")
FOR_EVER = change_of(b"4", "5")


@pytest.fixture
def toy(tmp_path: Path) -> ScriptTest:
    """Create a project with the given script/test, which has only the unit stage."""
    runner = {f"tests/runner/{path.name}": path.read_text() for path in (ROOT / "tests/runner").glob("*.py")}
    for name, text in {
        **runner,
        "tests/runner/stages.yml": yaml.safe_dump({"unit": UNIT}),
        "script/test": (ROOT / "script/test").read_text(),
        "script/setup": "#!/bin/sh\n",
        "plugins/toy.py": SOURCE.decode(),
        "tests/unit/test_toy.py": TESTS,
        "pyproject.toml": '[tool.pytest.ini_options]\npythonpath = ["plugins"]\n',
        "ansible.cfg": "",
    }.items():
        (tmp_path / "project" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "project" / name).write_text(text)
    for name in ("test", "setup"):
        (tmp_path / "project/script" / name).chmod(0o755)
    (tmp_path / "project/.venv-dev").symlink_to(ROOT / ".venv-dev")
    return ScriptTest(tmp_path / "project", "unit", 60)


def test_each_mutant_is_attributed_to_the_test_that_catches_it(toy: ScriptTest) -> None:
    assert toy([], None) == Outcome()
    assert {failure.test for failure in toy([ONE, TWO, THREE], None).failures} == {BOTH, FIRST, SECOND}
    found = {result.mutant: result.caught_by for result in attribute([ONE, TWO, THREE], toy)}
    assert found[ONE] in {BOTH, FIRST}
    assert found[TWO] in {BOTH, SECOND}
    assert found[THREE] == ""
    assert (toy.checkout / "plugins/toy.py").read_bytes() == SOURCE


def test_mutant_that_breaks_imports_does_not_hide_other_mutants(toy: ScriptTest) -> None:
    assert toy([NO_IMPORT], None).failures == [Failure("unit", "tests/unit/test_toy.py")]
    assert attribute([ONE, NO_IMPORT, THREE], toy) == [
        Result(ONE, FIRST),
        Result(NO_IMPORT, "tests/unit/test_toy.py"),
        Result(THREE, ""),
    ]


def test_hanging_mutant_is_killed_with_its_children(toy: ScriptTest) -> None:
    toy.limit = 5
    assert attribute([FOR_EVER], toy) == [Result(FOR_EVER, NOT_ENDED)]
    mine = [path for path in Path("/proc").glob("[0-9]*/cwd") if is_link_to(path, toy.checkout)]
    assert mine == []


def is_link_to(path: Path, target: Path) -> bool:
    try:
        return path.readlink() == target
    except OSError:
        return False


class Ends:
    """A simulated test suite. ends: outcome for each set of active mutants."""

    def __init__(self, ends: dict[frozenset[Mutant], Outcome]) -> None:
        self.ends = ends
        self.asked: list[tuple[int, bool]] = []

    def __call__(self, mutants: Sequence[Mutant], only: Sequence[Failure] | None) -> Outcome:
        self.asked.append((len(mutants), only is not None))
        return self.ends.get(frozenset(mutants), Outcome())


def test_group_without_failures_survives_after_one_run() -> None:
    suite = Ends({})
    assert attribute([ONE, TWO, THREE], suite) == [Result(ONE, ""), Result(TWO, ""), Result(THREE, "")]
    assert suite.asked == [(3, False)]


def test_failure_without_a_single_culprit_catches_no_mutant() -> None:
    suite = Ends({frozenset([ONE, TWO]): Outcome([Failure("unit", FIRST)])})
    assert attribute([ONE, TWO], suite) == [Result(ONE, ""), Result(TWO, "")]
    assert suite.asked == [(2, False), (0, True), (1, True), (1, True)]


def test_failure_that_also_occurs_without_mutants_is_ignored() -> None:
    always = Outcome([Failure("unit", FIRST)])
    suite = Ends({frozenset(mutants): always for mutants in ([], [ONE], [TWO], [ONE, TWO])})
    assert attribute([ONE, TWO], suite) == [Result(ONE, ""), Result(TWO, "")]
    assert suite.asked == [(2, False), (0, True)]


def test_hanging_group_is_run_one_by_one() -> None:
    late = Outcome(in_time=False)
    suite = Ends({frozenset([ONE, TWO, THREE]): late, frozenset([TWO]): late})
    assert attribute([ONE, TWO, THREE], suite) == [Result(ONE, ""), Result(TWO, NOT_ENDED), Result(THREE, "")]


def test_tests_after_a_failed_stage_are_hidden_unless_linters_failed() -> None:
    broken, linted = Failure("molecule"), Failure("lint")
    group = frozenset([ONE, TWO])
    later = Outcome([Failure("integration", "t.py::test_x")])
    suite = Ends({group: Outcome([broken]), frozenset([ONE]): Outcome([broken]), frozenset([TWO]): Outcome()})
    assert attribute([ONE, TWO], suite) == [Result(ONE, "stage molecule"), Result(TWO, "")]
    assert suite.asked[-1] == (1, False)
    suite = Ends({group: Outcome([linted, *later.failures]), frozenset([ONE]): Outcome([linted, *later.failures])})
    assert attribute([ONE, TWO], suite) == [Result(ONE, "t.py::test_x"), Result(TWO, "")]
    assert suite.asked[-1] == (1, True)


def test_failures_stored_by_script_test_are_read(tmp_path: Path) -> None:
    failed = {"unit": ['tests/a.py::test_b[\xfc "x"]'], "pipeline": []}
    for stage, tests in failed.items():
        cache_of(tmp_path, stage).parent.mkdir(parents=True)
        cache_of(tmp_path, stage).write_text(json.dumps(dict.fromkeys(tests, True)))
    (tmp_path / "results.json").write_text('{"unit": "FAILED", "lint": "FAILED", "pipeline": "passed"}')
    assert read_failures(tmp_path) == [Failure("unit", 'tests/a.py::test_b[\xfc "x"]'), Failure("lint")]


def test_evaluated_mutants_are_stored_and_counted(tmp_path: Path) -> None:
    records = Records(tmp_path / "unit.jsonl")
    records.keep([Result(ONE, FIRST), Result(TWO, "stage lint")])
    records.keep([Result(THREE, "")])
    again = Records(tmp_path / "unit.jsonl").caught_by
    assert again == {ONE.key: FIRST, TWO.key: "stage lint", THREE.key: ""}
    assert table([ONE, TWO, THREE, FOR_EVER], again) == (
        f"1. plugins/toy.py:1  room/1, constant\n   caught by {FIRST}\n{shown(ONE)}\n\n"
        f"2. plugins/toy.py:2  room/2, constant\n   caught by stage lint\n{shown(TWO)}\n\n"
        f"3. plugins/toy.py:3  room/3, constant\n   SURVIVED\n{shown(THREE)}\n\n"
        "caught 2 of 3, 1 of them by a stage without a failed test\n"
    )


def shown(one: Mutant) -> str:
    return "\n".join(f"   {line}" for line in one.diff.splitlines())


def test_list_shows_drawn_mutations() -> None:
    argv = [str(ROOT / ".venv-dev/bin/python"), "-m", "mutations", "--seed", "3", "--count", "2", "--list"]
    env = {**os.environ, "PYTHONPATH": str(ROOT / "tests")}
    done = subprocess.run(argv, env=env, capture_output=True, text=True, check=True)
    assert done.stdout.count("\n@@ ") == 2
