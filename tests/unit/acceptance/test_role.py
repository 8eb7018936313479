"""The role: which stages may be requested, and when a launch that ended badly is judged all the same."""

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


def test_the_stages_that_can_be_requested_are_those_of_the_payload() -> None:
    options = yaml.safe_load((ROLE / "meta/argument_specs.yml").read_text())["argument_specs"]["main"]["options"]
    table = runpy.run_path(str(ROLE / "files/acceptance/payload/stages.py"))["STAGES"]
    assert options["ddp_smoke_stages"]["choices"] == [stage.name for stage in table]
    assert options["ddp_smoke_mode"]["default"] == "quick"
    # What the rule in muster/inventory/values.py knows: every mode has all stages but this one.
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
    ids=["ended well", "ended badly", "before the first stage", "refused", "no launch", "check mode"],
)
def test_a_failed_launch_stops_the_role_where_nothing_was_reported(launch: dict[str, Any], *, stops: bool) -> None:
    task = yaml.safe_load((ROLE / "tasks/try.yml").read_text())[0]
    templar = Templar(loader=DataLoader(), variables={task["register"]: launch})
    assert templar.evaluate_conditional(trust_as_template(task["failed_when"])) is stops


def test_the_rates_can_be_kept_as_json() -> None:
    """YAML reads a date without quotes as one, which smoke.json cannot hold."""
    json.dumps(yaml.safe_load((ROLE / "files/gpu_rates.yml").read_text()))
