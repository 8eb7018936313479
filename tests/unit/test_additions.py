"""A new option, check, cause or outcome requires changes to at most four handwritten files (tested in a copy of the
tree)."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from paths import BIN, ROOT

if TYPE_CHECKING:
    from pathlib import Path

MOST_FILES = 4
PARTS = ("ansible.cfg", "pyproject.toml", "inventory", "library", "playbooks", "plugins", "roles", "script")
MUSTER = "plugins/module_utils/muster"
# By file: the text before the addition, and the addition.
Edits = dict[str, list[tuple[str, str]]]
OPTION: Edits = {
    "roles/launch/meta/argument_specs.yml": [
        (
            "    options:\n",
            '      launch_dummy: {description: Word that the ranks find in MUSTER_DUMMY., type: str, default: ""}\n',
        )
    ],
    "roles/launch/defaults/main.yml": [("argument_specs.yml.\n", 'launch_dummy: ""\n')],
    f"{MUSTER}/launch/options.py": [('    script: str = ""\n', '    dummy: str = ""\n')],
    f"{MUSTER}/launch/plan.py": [
        ("        LAUNCH_MARK: request.launch_id,\n", '        "MUSTER_DUMMY": options.dummy,\n')
    ],
}
CHECK: Edits = {
    f"{MUSTER}/health/limits.py": [
        (
            'BASELINE = playbook("site.yml", tags="baseline")\n',
            'DUMMY = Check("os.limits.dummy", seen="never", reads="nothing", fires="never")\n',
        ),
        ("CHECKS = (", "DUMMY, "),
    ]
}
CAUSE: Edits = {
    f"{MUSTER}/diagnosis/causes/agreement.py": [
        (
            "CAUSES = (\n",
            '    disagreement("dummy", "nnodes", "dummies"),\n',
        )
    ]
}
ENDING: Edits = {
    f"{MUSTER}/launch/endings.py": [
        (
            '    """The outcomes of a launch, each with the check that reports it."""\n',
            '    DUMMY = Check("launch.dummy", seen="never", reads="nothing", fires="never")\n',
        ),
        ("Decided = Literal[\n", "    Ending.DUMMY,\n"),
    ]
}


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tree")
    for part in PARTS:
        if (ROOT / part).is_dir():
            shutil.copytree(ROOT / part, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / part, folder)
    return folder


def add(tree: Path, edits: Edits) -> None:
    assert len(edits) <= MOST_FILES
    for name, added in edits.items():
        text = (tree / name).read_text(encoding="utf-8")
        for behind, new in added:
            assert behind in text, f"{name} has no {behind!r}"
            text = text.replace(behind, behind + new, 1)
        (tree / name).write_text(text, encoding="utf-8")


def printed(tree: Path, *words: str | Path) -> str:
    """Return the output of a command in the copy, with the copy's configuration, even if it fails."""
    env = {**os.environ, "ANSIBLE_CONFIG": str(tree / "ansible.cfg")}
    return subprocess.run(words, cwd=tree, env=env, capture_output=True, text=True, check=False).stdout


def test_new_option_reaches_every_rank_and_the_documentation(tree: Path) -> None:
    add(tree, OPTION)
    words = ("-i", "inventory/sandbox", "-e", "launch_script=/srv/train.py", "-e", "launch_dummy=arrived")
    plan = printed(tree, BIN / "ansible-playbook", "playbooks/plan.yml", *words)
    assert plan.count("MUSTER_DUMMY=arrived") == 2, plan
    assert "Word that the ranks find" in printed(tree, BIN / "ansible-doc", "torchrun_launch")


def test_new_check_appears_in_the_catalogue(tree: Path) -> None:
    add(tree, CHECK)
    assert "| `os.limits.dummy` |" in printed(tree, sys.executable, "script/findings.py", "--show")


def test_new_cause_appears_on_the_errors_page(tree: Path) -> None:
    add(tree, CAUSE)
    assert "agreement.dummy" in printed(tree, sys.executable, "script/errors.py", "--show")


def test_mypy_finds_every_place_that_must_handle_a_new_outcome(tree: Path) -> None:
    add(tree, ENDING)
    matching = {
        str(path.relative_to(tree))
        for path in (tree / MUSTER).rglob("*.py")
        if re.search(r"^ +never\(", path.read_text(encoding="utf-8"), re.MULTILINE)
    }
    words = ("--no-error-summary", "--follow-imports=silent", f"--cache-dir={tree}/cache")
    said = printed(tree, sys.executable, "-m", "mypy", *words, *sorted(matching))
    assert matching
    assert {line.partition(":")[0] for line in said.splitlines() if 'to "never"' in line} == matching, said
