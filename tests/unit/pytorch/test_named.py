"""Environments by their names: where each lies, and what is wrong with what is requested of them (cases/environments)."""

from __future__ import annotations

from typing import Any

import pytest

from cases import cases
from muster.pytorch import environments
from muster.pytorch.environments import Place

CLUSTER = {
    "cluster_torchrun": "/opt/muster/pytorch/current/bin/torchrun",
    "cluster_environments_root": "/opt/muster/pytorch/named",
    "cluster_environments": {"vision": {"requirements": "vision.txt"}, "theirs": {"provided": True}},
}


@cases(__file__, "environments")
def test_problems(case: dict[str, Any]) -> None:
    assert [f"{what}. {fix}" for what, fix in environments.problems(case["declared"])] == case["problems"]


def test_every_environment_has_a_path_that_stays() -> None:
    assert environments.places(CLUSTER) == (
        Place("default", "/opt/muster/pytorch/current"),
        Place("vision", "/opt/muster/pytorch/named/vision/current"),
        Place("theirs", "/opt/muster/pytorch/named/theirs/current"),
    )
    assert environments.places(CLUSTER)[1].python == "/opt/muster/pytorch/named/vision/current/bin/python"


def test_a_launch_finds_its_torchrun_by_the_name() -> None:
    own = {**CLUSTER, "cluster_torchrun": "/opt/site/bin/torchrun"}
    assert environments.torchrun(own, "") == environments.torchrun(own, "default") == "/opt/site/bin/torchrun"
    assert environments.torchrun(own, "vision") == "/opt/muster/pytorch/named/vision/current/bin/torchrun"
    with pytest.raises(KeyError):
        environments.torchrun(own, "nlp")


def test_what_somebody_else_keeps_is_not_built() -> None:
    assert environments.built(CLUSTER["cluster_environments"]) == ("vision",)
