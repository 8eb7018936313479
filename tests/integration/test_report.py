"""A run that fails leaves a page that says where, whichever step it was. Other endings: tests/unit/report."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from machines import Machine, Play, Result


@dataclass(frozen=True)
class Runs:
    """Runs of which the artifacts are kept apart."""

    play: Play
    folder: Path

    def __call__(self, playbook: str, *, tags: str | None = None, check: bool = False, **options: Any) -> Result:
        options["cluster_artifacts_dir"] = str(self.folder)
        return self.play(playbook, extravars=options, tags=tags, check=check)

    @property
    def pages(self) -> list[Path]:
        return sorted(self.folder.glob("*/2*/report.html"))

    def page(self) -> tuple[dict[str, Any], str]:
        """The run.json of the only run that left something, and its page."""
        (page,) = self.pages
        return json.loads((page.parent / "run.json").read_text()), page.read_text()


@pytest.fixture
def runs(ground: list[Machine], play: Play, tmp_path: Path) -> Runs:
    return Runs(play, tmp_path / "kept")


def test_a_task_that_fails_on_one_node(runs: Runs) -> None:
    package = "{{ ['no-such-package'] if inventory_hostname == 'node2' else [] }}"
    result = runs("site.yml", tags="baseline", node_baseline_extra_packages=package)
    run, page = runs.page()
    assert result.rc != 0
    assert (run["status"], run["playbook"], run["tags"]) == ("stopped", "site.yml", ["baseline"])
    assert [failure["node"] for failure in run["failures"]] == ["node2"]
    assert "no-such-package" in run["failures"][0]["why"]
    assert "<h1>Stopped</h1>" in page
    assert "ansible-playbook site.yml" in run["command"]


def test_nodes_that_cannot_be_reached(runs: Runs, ground: list[Machine]) -> None:
    runs("playbooks/baseline.yml", ansible_port=9)
    run, page = runs.page()
    assert {failure["node"]: failure["unreachable"] for failure in run["failures"]} == {
        node.name: True for node in ground
    }
    assert "was not reached" in page
