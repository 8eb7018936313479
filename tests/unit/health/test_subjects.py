"""A subject has the same name everywhere: for its probe on the node, its facts, and its rules on the controller."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from muster.health.node import judge_looks
from muster.health.subjects import has_facts, subjects
from muster.launch.unit import unit_properties
from muster_node.looks.health import OPTIONS, look
from muster_node.looks.subjects import LOOKS
from muster_node.tools.transfer import decode, encode
from paths import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ON_NODES = sorted((ROOT / "plugins/module_utils/muster_node").rglob("*.py"))


def test_generated_lists_are_up_to_date() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "script/subjects.py", "--show"], check=True, capture_output=True, text=True
    )
    utils = ROOT / "plugins/module_utils"
    lists = [utils / "muster/health/every_subject.py", utils / "muster_node/looks/subjects.py"]
    assert "".join(path.read_text() for path in lists) == done.stdout, "run .venv-dev/bin/python script/subjects.py"


@pytest.mark.parametrize("name", subjects())
def test_probe_is_named_after_its_subject(name: str) -> None:
    path = ROOT / f"plugins/module_utils/muster_node/looks/{name}.py"
    assert path.exists() == (name in subjects()[name].LOOKS)


def imported(path: Path) -> Iterator[str]:
    room = path.relative_to(ROOT / "plugins/module_utils").parts[:-1]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            yield ".".join(
                [*room[: len(room) + 1 - node.level], node.module or ""] if node.level else [node.module or ""]
            )
        elif isinstance(node, ast.Import):
            yield from (name.name for name in node.names)


@pytest.mark.parametrize("path", ON_NODES, ids=[path.stem for path in ON_NODES])
def test_node_code_does_not_import_rules(path: Path) -> None:
    assert not [name for name in imported(path) if name.partition(".")[0] == "muster"]


def test_nccl_health_imports_no_rules() -> None:
    names = [
        node.module or ""
        for node in ast.walk(ast.parse((ROOT / "library/nccl_health.py").read_text()))
        if isinstance(node, ast.ImportFrom)
    ]
    own = [name.removeprefix("ansible.module_utils.") for name in names if ".muster" in name]
    assert [name for name in own if not name.startswith("muster_node.")] == ["muster.launch.unit"]


def request() -> dict[str, Any]:
    given = {
        "node": "node1",
        "user": "nobody-of-this-name",
        "address": "127.0.0.1",
        "torchrun": "/nowhere/bin/torchrun",
    }
    return {**{name: option.get("default") for name, option in OPTIONS.items()}, **given}


def test_this_machine_can_be_evaluated() -> None:
    """The test runs without permissions: missing data has a reason, and all results can be written as JSON."""
    looks = look(request(), unit_properties("root", "/", 5))
    assert set(looks) == {*LOOKS, "later"}
    assert looks["collective"]["skipped"] == "not requested (health_collective)"
    verdict = judge_looks(decode(encode(looks)), request())
    assert "job.user.missing" in [finding["id"] for finding in verdict["findings"]]
    assert {name for name in subjects() if has_facts(name)} <= set(verdict["facts"])
    assert json.loads(json.dumps(verdict)) == verdict


def test_checks_without_data_are_skipped_and_do_not_pass() -> None:
    looks = look(request(), unit_properties("root", "/", 5))
    del looks["ras"]
    coverage = judge_looks(looks, request())["verdict"]["coverage"]
    assert {"id": "job.ras", "why": "not checked"} in coverage["skipped"]
    assert "job.ras" not in coverage["ran"]
