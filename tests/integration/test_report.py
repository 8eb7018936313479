"""A failed run of any step leaves a report with the failure. tests/unit/report covers other outcomes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from machines import Machine, Play


def report_in(folder: Path) -> tuple[dict[str, Any], str]:
    """Return run.json and the report of the only run in the folder."""
    (page,) = folder.glob("*/2*/report.html")
    return json.loads((page.parent / "run.json").read_text()), page.read_text()


def test_report_names_the_task_that_failed_on_one_node(play: Play, networked: list[Machine], tmp_path: Path) -> None:
    package = "{{ ['no-such-package'] if inventory_hostname == 'node2' else [] }}"
    requested = {"node_baseline_extra_packages": package, "cluster_artifacts_dir": str(tmp_path)}
    result = play("site.yml", tags="baseline", extravars=requested)
    assert result.rc != 0
    run, page = report_in(tmp_path)
    assert (run["status"], run["playbook"], run["tags"]) == ("stopped", "site.yml", ["baseline"])
    assert [failure["node"] for failure in run["failures"]] == ["node2"]
    assert "no-such-package" in run["failures"][0]["why"]
    assert "<h1>Stopped</h1>" in page


def test_report_names_unreachable_nodes(play: Play, networked: list[Machine], tmp_path: Path) -> None:
    play("playbooks/baseline.yml", extravars={"ansible_port": 9, "cluster_artifacts_dir": str(tmp_path)})
    run, page = report_in(tmp_path)
    assert [failure["node"] for failure in run["failures"]] == [node.name for node in networked]
    assert all(failure["unreachable"] for failure in run["failures"])
    assert "was not reached" in page
