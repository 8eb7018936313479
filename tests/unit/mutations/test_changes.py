"""Mutations of source files: the intended text is changed and nothing else."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

import pytest
import yaml

from mutations import python_changes, yaml_changes
from mutations.mutant import Change, mutant

if TYPE_CHECKING:
    from pathlib import Path
    from types import ModuleType

PYTHON = b'''"""A docstring."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    WANTED = "types"


@decorated("kept")
def decide(value: "str" = "given", *, strict: bool = False) -> "int | None":
    """Another one."""
    if value == "\xc3\xbc" and not strict:
        raise ValueError(f"{value} is {strict}")
    for part in [one for one in value if one in "abc"]:
        self.seen = part
        if part:
            continue
        else:
            print(part)
    return 3 if strict else len(value)
'''
PYTHON_LINES = [
    ("compare", '    if value != "\xfc" and not strict:'),
    ("compare", '    for part in [one for one in value if one not in "abc"]:'),
    ("constant", 'def decide(value: "str" = "", *, strict: bool = False) -> "int | None":'),
    ("constant", 'def decide(value: "str" = "given", *, strict: bool = True) -> "int | None":'),
    ("constant", '    for part in [one for one in value if one in ""]:'),
    ("constant", '    if value == "" and not strict:'),
    ("constant", "    return 4 if strict else len(value)"),
    ("delete", "        pass"),
    ("delete", "        pass"),
    ("delete", "            pass"),
    ("delete", "            pass"),
    ("drop", "        pass"),
    ("drop", "            pass"),
    ("drop", "            pass"),
    ("logic", '    if value == "\xfc" or not strict:'),
    ("negate", '    for part in [one for one in value if (not (one in "abc"))]:'),
    ("negate", "        if (not (part)):"),
    ("negate", '    if (not (value == "\xfc" and not strict)):'),
    ("negate", "    return 3 if (not (strict)) else len(value)"),
    ("return", "    return None"),
]


def changes(of: ModuleType, data: bytes) -> list[Change]:
    return [each.change for each in of.candidates(data) if each.is_one()]


def new_lines(data: bytes, change: Change) -> list[str]:
    before, after = data.decode().splitlines(), change.applied(data).decode().splitlines()
    at = next(at for at, (old, new) in enumerate(zip(before, after, strict=False)) if old != new)
    kept = len(before) - at - 1
    assert after[:at] == before[:at]
    return after[at:][: max(1, len(after) - at - kept)]


def test_python_mutations_are_complete() -> None:
    found = changes(python_changes, PYTHON)
    assert sorted((each.kind, new_lines(PYTHON, each)[0]) for each in found) == sorted(PYTHON_LINES)
    for each in found:
        assert ast.dump(ast.parse(each.applied(PYTHON))) != ast.dump(ast.parse(PYTHON))


@pytest.mark.parametrize(
    "source",
    [
        'DOCUMENTATION = "module: x"\n',
        'T = TypeVar("T")\n',
        "from x import y\n",
        "class A:\n    name: 'str'\n",
        "x = y < z < w\n",
    ],
)
def test_types_and_documentation_are_never_mutated(source: str) -> None:
    assert changes(python_changes, source.encode()) == []


def test_comment_between_values_is_not_an_operator() -> None:
    source = b"x = (\n    a  # and\n    and b\n)\n"
    assert [each for each in changes(python_changes, source) if each.kind == "logic"] == []


TASKS = b"""---
# The first.
- name: Write it
  ansible.builtin.copy:
    dest: /etc/x
    mode: "0644"
  become: true
  when: wanted | bool

# The second.
- name: Several
  when:
    - one
    - two
  block:
    - name: Read it
      ansible.builtin.command: cat /etc/x
      changed_when: false

    - name: Show it
      ansible.builtin.debug: {msg: x}
"""


def removed(change: Change) -> str:
    return change.old.strip().splitlines()[0].strip()


def test_yaml_mutations_are_complete() -> None:
    found = changes(yaml_changes, TASKS)
    assert sorted((each.kind, removed(each), each.new) for each in found) == [
        ("condition", "false", "not (false)"),
        ("condition", "wanted | bool", "not (wanted | bool)"),
        ("line", "- one", ""),
        ("line", "- two", ""),
        ("line", "become: true", ""),
        ("line", "changed_when: false", ""),
        ("line", 'mode: "0644"', ""),
        ("line", "when:", ""),
        ("line", "when: wanted | bool", ""),
        ("task", "- name: Read it", ""),
        ("task", "- name: Several", ""),
        ("task", "- name: Show it", ""),
        ("task", "- name: Write it", ""),
    ]
    (task,) = [each for each in found if removed(each) == "- name: Write it"]
    assert yaml.safe_load(task.applied(TASKS)) == yaml.safe_load(TASKS)[1:]
    assert b"# The second." in task.applied(TASKS)


def test_single_item_lists_and_block_scalars_are_not_split() -> None:
    data = b"paths:\n  - /etc/x\ntext: |\n  # no comment\n  x\nlast: 1\n"
    found = changes(yaml_changes, data)
    assert [each.old for each in found] == ["text: |\n  # no comment\n  x\n", "last: 1\n"]


def test_mutation_is_applied_and_reverted(tmp_path: Path) -> None:
    file = tmp_path / "x.py"
    file.write_bytes(PYTHON)
    seconds: list[float] = []
    for change in changes(python_changes, PYTHON):
        one = mutant("x.py", "room", PYTHON, change)
        one.apply(tmp_path)
        assert file.read_bytes() == change.applied(PYTHON) != PYTHON
        seconds.append(file.stat().st_mtime)
        one.revert(tmp_path)
        assert file.read_bytes() == PYTHON
        seconds.append(file.stat().st_mtime)
    assert len(set(map(int, seconds))) == len(seconds), "Python would take one for another"


def test_mutation_of_another_file_is_rejected(tmp_path: Path) -> None:
    one = mutant("x.py", "room", b"x = 1\n", Change("constant", 4, 5, "1", "2"))
    (tmp_path / "x.py").write_text("y = 30\n")
    with pytest.raises(ValueError, match="the text at byte 4 is not '1'"):
        one.apply(tmp_path)


def test_mutant_keeps_its_key_when_its_line_moves() -> None:
    one = mutant("x.py", "room", b"a\nb\nc\nd == e\n", Change("compare", 8, 10, "==", "!="))
    assert (one.place, one.diff) == ("x.py:4", "@@ -2,3 +2,3 @@\n b\n c\n-d == e\n+d != e")
    moved = mutant("x.py", "room", b"\na\nb\nc\nd == e\n", Change("compare", 9, 11, "==", "!="))
    assert (moved.place, moved.key) == ("x.py:5", one.key)
