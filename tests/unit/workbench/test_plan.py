"""Planned notebook setup of a node, and its removal (cases/plan)."""

from __future__ import annotations

import json
from typing import Any

from cases import cases
from muster.workbench import files
from muster.workbench.plan import Python, WorkbenchRequest, WorkbenchState, make_plan

ROOT, USERS = "/opt/muster/workbench", "/var/lib/muster/users"
PROGRAMS = {"lab.py": "# lab\n"}


@cases(__file__, "plan")
def test_workbench_plan_matches_the_case(case: dict[str, Any]) -> None:
    pythons = {name: Python(**one) for name, one in case["seen"].pop("pythons", {}).items()}
    earlier = case.get("earlier")
    texts = files.texts(ROOT, USERS, PROGRAMS, earlier) if earlier else {}
    request = WorkbenchRequest(ROOT, USERS, PROGRAMS, case.get("environments", {}), case.get("present", True))
    plan = make_plan(request, WorkbenchState(texts=texts, pythons=pythons, **case["seen"]))
    assert plan.differences == case.get("differences", [])
    assert plan.notes == case.get("notes", [])
    assert [path for path, text in plan.files.items() if text is not None] == case.get("written", [])
    assert [path for path, text in plan.files.items() if text is None] == case.get("removed", [])
    assert plan.needed == bool(plan.differences)


def test_default_kernel_replaces_the_built_in_kernel_of_jupyterlab() -> None:
    assert files.kernel_path(ROOT, "default") == f"{ROOT}/share/jupyter/kernels/python3/kernel.json"


def test_kernel_is_configured_without_a_debugger() -> None:
    assert json.loads(files.kernel_text(ROOT, "default", "/opt/x"))["metadata"] == {"debugger": False}


def test_notebook_unit_uses_a_private_folder_and_contains_no_token() -> None:
    text = files.unit_text(ROOT, USERS)
    assert "RuntimeDirectoryMode=0700\n" in text
    assert f"JUPYTER_TOKEN_FILE={USERS}/%u/notebook/token\n" in text
    assert "JUPYTER_TOKEN=" not in text
