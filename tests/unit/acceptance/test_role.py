"""The ddp_smoke role: which stages can be requested, and the evaluation of failed launches."""

from __future__ import annotations

import json
import runpy
from typing import Any

import pytest
import yaml
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template

from paths import ROOT

ROLE = ROOT / "roles/ddp_smoke"
REPORT = {"event": "stage", "stage": "world", "from_rank": 0}


def test_stages_of_the_role_match_the_payload() -> None:
    options = yaml.safe_load((ROLE / "meta/argument_specs.yml").read_text())["argument_specs"]["main"]["options"]
    table = runpy.run_path(str(ROLE / "files/acceptance/payload/stages.py"))["STAGES"]
    assert options["ddp_smoke_stages"]["choices"] == [stage.name for stage in table]
    assert options["ddp_smoke_mode"]["default"] == "quick"
    # Assumed by the rule in muster/inventory/values.py: every mode has all stages except this one.
    modes = set(options["ddp_smoke_mode"]["choices"])
    assert {stage.name: set(stage.seconds) for stage in table if set(stage.seconds) != modes} == {"soak": {"soak"}}


@pytest.mark.parametrize(
    ("launch", "stops"),
    [
        ({"failed": False, "verdict": {}, "events": [REPORT]}, False),
        ({"failed": True, "verdict": {}, "events": [{"from_rank": 1}, REPORT]}, False),
        ({"failed": True, "verdict": {}, "events": [{"from_rank": 1}, {"event": "step", "from_rank": 1}]}, True),
        ({"failed": True, "verdict": {}, "events": []}, True),
        (
            {
                "failed": True,
                "msg": "No launch. The group gpu_nodes of the inventory is empty: add the nodes as in"
                " inventory/lab/hosts.yml.",
            },
            True,
        ),
        ({"changed": False, "plan": {}}, False),
    ],
    ids=["succeeded", "failed", "before the first stage", "no report", "no launch", "check mode"],
)
def test_role_stops_after_a_failed_launch_without_reports(launch: dict[str, Any], *, stops: bool) -> None:
    task = yaml.safe_load((ROLE / "tasks/try.yml").read_text())[0]
    templar = Templar(loader=DataLoader(), variables={task["register"]: launch})
    assert templar.evaluate_conditional(trust_as_template(task["failed_when"])) is stops


def test_rate_table_can_be_written_as_json() -> None:
    """YAML reads dates without quotes as date objects, which JSON does not support."""
    json.dumps(yaml.safe_load((ROLE / "files/gpu_rates.yml").read_text()))
