"""Modules that roles run on a node, and their options. Ansible runs the tasks, and module stubs respond as in the case.

Every file in cases/plays contains a list of plays. vars: variables of the play. answers: results by task name or module
name, for all nodes or one of them; by default, a module reports a change. nodes: number of nodes, one by default.
calls: the expected modules in order, each with all options (only the first line of texts, and `on` for another node
than node1), or with its name alone if another play lists the options.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cases import load_cases
from roles_here import play

FILES = load_cases(Path(__file__).parent / "cases/plays")
PLAYS = {f"{name}-{number}": each for name, plays in FILES.items() for number, each in enumerate(plays, 1)}


@pytest.mark.parametrize("case", PLAYS.values(), ids=PLAYS)
def test_role_calls_modules_with_the_expected_options(case: dict[str, Any], tmp_path: Path) -> None:
    known = {"cluster_interface": "eth0", **case.get("vars", {})}
    calls, failed = play(
        tmp_path,
        case["role"],
        case.get("answers", {}),
        tasks=case.get("tasks", "main"),
        check=case.get("check", False),
        nodes=case.get("nodes", 1),
        **known,
    )
    wanted = case.get("calls", [])
    by_name = [isinstance(each, str) for each in wanted] + [False] * len(calls)
    assert [
        module if named else {module: first_lines(given)}
        for (module, given), named in zip(calls, by_name, strict=False)
    ] == wanted
    assert failed == case.get("failed", "")


def first_lines(given: Any) -> Any:
    """Return the options with only the first line of each text."""
    if isinstance(given, dict):
        return {name: first_lines(each) for name, each in given.items()}
    if isinstance(given, list):
        return [first_lines(each) for each in given]
    return given.splitlines()[0] if isinstance(given, str) and "\n" in given else given
