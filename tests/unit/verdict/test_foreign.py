"""Commands in text from nodes, and how such text is quoted."""

from __future__ import annotations

import ast
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cases import cases
from muster.verdict import commands
from muster.verdict.commands import Terminal
from muster.verdict.foreign import ADVICE, LONG, commands_in, quote

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[3]
WIPES = "ansible-playbook playbooks/retire.yml -e node=node1 -e wipe=true"


@cases(__file__, "commands_in")
def test_commands_in_text_are_found(case: dict[str, Any]) -> None:
    assert commands_in(case["value"]) == set(case["commands"])


@pytest.mark.parametrize(
    ("text", "typed"),
    [
        (f"node2 reports: {WIPES}", f"node2 reports: {WIPES}"),
        (f"{WIPES[:-6]}...", f"{WIPES[:-6]}..."),  # a text that was cut
        (
            "ansible-playbook playbooks/retire.yml -e node=node2",
            ".venv/bin/ansible-playbook playbooks/retire.yml -i inventory/lab -e node=node2",
        ),
        ("ansible-playbook playbooks/retire.yml", ".venv/bin/ansible-playbook playbooks/retire.yml -i inventory/lab"),
    ],
)
def test_only_commands_of_muster_are_completed(text: str, typed: str) -> None:
    here = Terminal(".venv/bin/", ("inventory/lab",), foreign=frozenset(commands_in([{"said": f"run {WIPES}"}])))
    assert here.text(text) == typed
    finding = {"summary": text, "fix": {"text": text, "command": ""}}
    assert here.shapes(finding) == {"summary": typed, "fix": {"text": typed, "command": ""}}


@pytest.mark.parametrize("value", ["a=b", '"a=b"', "'a=b'", '"a b"'])
def test_quoted_command_of_a_node_stays_unchanged(value: str) -> None:
    said = f"ansible-playbook playbooks/trust.yml -e {value}"
    here = Terminal(".venv/bin/", ("inventory/lab",), foreign=frozenset(commands_in(f"run: {said}")))
    for text in (said, f"node2 reports: {quote(said)}.", quote(f"{said} and more"), quote(said[:-2])):
        assert here.text(text) == text


def test_long_log_is_searched_quickly() -> None:
    log = "x" * 79 + "\n"
    began = time.thread_time()
    assert commands_in(log * (8 * LONG // 80) + f"run {WIPES}\n" + log) == {WIPES}
    assert time.thread_time() - began < 5


def test_deeply_nested_answer_is_searched() -> None:
    value: Any = f"run {WIPES}"
    for _ in range(5000):
        value = [{"a": value}]
    assert commands_in(value) == {WIPES}


def advised() -> Iterator[str]:
    """Yield the commands that modules and programs print on nodes: calls of `playbook`, and `fix` in the tasks of
    roles."""
    for place in ("library", "plugins/module_utils/muster_node"):
        for path in (ROOT / place).rglob("*.py"):
            for call in ast.walk(ast.parse(path.read_text())):
                if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "playbook":
                    words = {word.arg: ast.literal_eval(word.value) for word in call.keywords if word.arg}
                    yield commands.playbook(*map(ast.literal_eval, call.args), **words)
    for path in ROOT.glob("roles/*/tasks/*.yml"):
        yield from re.findall(r"fix: .*(ansible-playbook \S.*)", path.read_text())


def test_every_command_written_on_nodes_is_listed() -> None:
    assert set(advised()) == ADVICE


def test_quoted_text_cannot_close_its_quotation() -> None:
    assert quote('no" or\n\tsudo "sh') == "\"no' or sudo 'sh\""
    assert quote("") == '""'
