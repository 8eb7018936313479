"""The table of planned changes from the results of tasks in check mode."""

from __future__ import annotations

import json
import subprocess
import sys
from fnmatch import fnmatchcase
from typing import Any

import pytest
import yaml

from cases import cases
from muster.road.changes import KINDS, collect, planned_changes, table, undo_of
from muster.road.steps import STEPS
from paths import ROOT

UNDO = yaml.safe_load((ROOT / "roles/wipe/files/undo.yml").read_text())
WIPED = yaml.safe_load((ROOT / "roles/wipe/vars/main.yml").read_text())["_wipe_roles"]
# These remove the files of another role, too: see roles/gpu_stack/tasks/forget.yml.
BY_ANOTHER = {"nccl": "gpu_stack", "rdma": "gpu_stack"}
INSTALLING = [
    role for step in STEPS for role in step.roles if step.tag in ("baseline", "network", "gpu_stack", "pytorch")
]

# Lists of the roles that are no changes of a node.
NOT_OWNED = {"_wipe_files", "_wipe_folders", "_pytorch_cluster_ca"}


def script(option: str) -> str:
    argv = [sys.executable, str(ROOT / "script/changes.py"), option]
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout


def paths_in(value: Any) -> list[str]:
    """Return the paths in /etc and /var in a variable of a role, at any depth."""
    if isinstance(value, str):
        return [value] if value.startswith(("/etc/", "/var/")) else []
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [path for one in inner for path in paths_in(one)]


def is_named(path: str, patterns: list[str]) -> bool:
    """Return whether a pattern has the path. Templates in the path stand for any text."""
    begin, mark, _ = path.partition("{{")
    return any(name.startswith(begin) if mark else fnmatchcase(path, f"{name}*") for name in patterns)


@cases(__file__, "changes")
def test_changes_of_all_tasks_are_in_one_table(case: dict[str, Any]) -> None:
    found = planned_changes()
    for one in case["tasks"]:
        for node in one.get("nodes", ["node1"]):
            collect(found, node, one["role"], one.get("task", "Inspect the node"), one["result"], case["about"])
    found["stopped"].update(case.get("stopped", {}))
    assert [[one[key] for key in ("node", "role", "kind", "name")] for one in found["rows"]] == case["rows"]
    assert table(found) == case["table"]


def test_undo_is_known_for_each_role_and_kind() -> None:
    for kind in KINDS:
        assert undo_of("node_baseline", kind, UNDO)
    assert {key.partition(".")[0] for key in UNDO} - {*KINDS, "default"} <= {*INSTALLING}
    wipe = [role for role in INSTALLING if "wipe=true" in undo_of(role, "file", UNDO)]
    assert {BY_ANOTHER.get(role, role) for role in wipe} <= {*WIPED, "nvidia_driver"}


def test_page_of_changes_is_current() -> None:
    assert (ROOT / "docs/changes.md").read_text() == script("--show"), "run .venv/bin/python script/changes.py"


def test_page_of_changes_has_every_role_and_its_files() -> None:
    owned = json.loads(script("--names"))
    assert {*WIPED, *INSTALLING, "nvidia_driver"} <= {*owned}
    assert {kind for kinds in owned.values() for kind in kinds} <= {*KINDS, "listener"}
    patterns = [name for kinds in owned.values() for entries in kinds.values() for name in entries]
    assert [one for one in patterns if "{{" in one] == [], "a template instead of a name"
    for path in ROOT.glob("roles/*/vars/main.yml"):
        if path.parents[1].name in owned:
            lists = yaml.safe_load(path.read_text()) or {}
            there = [one for name, value in lists.items() if name not in NOT_OWNED for one in paths_in(value)]
            assert [one for one in there if not is_named(one, patterns)] == []


@pytest.mark.parametrize("names", [["a" * 1000], ["\x1b[2J/etc/x"]])
def test_names_from_nodes_are_shortened_and_made_printable(names: list[str]) -> None:
    found = planned_changes()
    collect(found, "node1", "firewall", "Apply", {"changed": True, "changes": {"file": names}}, {})
    (name,) = (one["name"] for one in found["rows"])
    assert len(name) <= 300
    assert name.isprintable()


@pytest.mark.parametrize(
    "result",
    [
        {"changes": []},
        {"changes": {"file": 1, "unknown": "x", "download": "many"}},
        {"changes": {"download": 10**400}},
        {"changes": {"download": -1}},
        {"results": 1, "named": [], "diff": ["x", {"after_header": 1}]},
    ],
)
def test_malformed_results_of_nodes_are_tolerated(result: dict[str, Any]) -> None:
    found = planned_changes()
    collect(found, "node1", "firewall", "Apply", {"changed": True, **result}, {})
    assert [(one["kind"], one["name"]) for one in found["rows"]] == [("other", "Apply")]
    assert (found["unknown"], found["download"]) == ({}, {})
    assert table(found)
