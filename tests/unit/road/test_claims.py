"""Messages about nodes that another administrator has claimed, and which steps claim nodes."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from cases import cases
from muster.road.claims import loss, refusal
from muster.road.steps import STEPS
from paths import ROOT

CHANGING = {"baseline", "network", "gpu_stack", "pytorch"}


@cases(__file__, "refusal")
def test_refusal_names_the_administrator_who_claimed_the_nodes(case: dict[str, Any]) -> None:
    assert refusal(case["holders"], begun=case["begun"]) == case["said"]


@cases(__file__, "loss")
def test_lost_claims_are_described(case: dict[str, Any]) -> None:
    assert loss(case["holders"]) == case["said"]


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.tag)
def test_steps_that_change_nodes_claim_them_first(step: Any) -> None:
    text = (ROOT / step.playbook).read_text()
    assert ("claim_nodes" in text) == (step.tag in CHANGING)
    if step.tag in CHANGING:
        first = yaml.safe_load(text)[-1]["pre_tasks"][0]
        assert first["claim_nodes"] == {"take_over": "{{ cluster_take_over }}", "for_roles": True}
        assert first["run_once"] is True
