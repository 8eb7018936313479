"""Steps whose nodes are inspected together, and roles without a quick inspection."""

from __future__ import annotations

import pytest

from muster.road.looks import LOOKS, comes_anyhow, to_come, waits
from muster.road.steps import STEPS
from paths import ROOT

PLAIN = {
    "cluster_mirror": "upstream",
    "cluster_http_proxy": "",
    "cluster_https_proxy": "",
    "cluster_extra_ca": "",
    "cluster_offline_dir": "",
    "mtu_training": 0,
    "workbench_nodes": [],
    "cluster_environments": {},
    "cluster_gpus": 0,
}


def test_inspections_cover_the_selected_steps() -> None:
    assert to_come("baseline", ["all"], [], road=True) == ("baseline", "network", "pytorch")
    assert to_come("baseline", ["baseline", "pytorch"], [], road=True) == ("baseline", "pytorch")
    assert to_come("network", ["all"], ["pytorch"], road=True) == ("network",)
    assert to_come("network", ["all"], [], road=False) == ("network",)
    assert to_come("inspect", ["inspect", "network"], [], road=True) == ("inspect", "network")
    assert to_come("inspect", ["all"], [], road=False) == ("inspect",)


@pytest.mark.parametrize(
    ("step", "own"),
    [
        ("baseline", {"cluster_mirror": "custom"}),
        ("baseline", {"cluster_https_proxy": "http://proxy:3128"}),
        ("network", {"mtu_training": 9000}),
        ("pytorch", {"cluster_environments": {"nlp": {"requirements": "nlp.txt"}}}),
        ("pytorch", {"workbench_nodes": ["node1"]}),
    ],
)
def test_roles_run_when_no_quick_inspection_covers_them(step: str, own: dict[str, object]) -> None:
    assert comes_anyhow(step, PLAIN) == ""
    assert comes_anyhow(step, {**PLAIN, **own}).startswith("only the role")


def test_pytorch_inspection_waits_for_the_gpu_stack() -> None:
    assert waits("pytorch", {**PLAIN, "cluster_gpus": 8})
    assert not waits("pytorch", PLAIN)
    assert not waits("network", {**PLAIN, "cluster_gpus": 8})


def test_every_role_without_an_inspection_always_runs() -> None:
    roles = {step.tag: step.roles for step in STEPS}
    for tag, looks in LOOKS.items():
        assert set(roles[tag]) - {look.role for look in looks} <= {"package_sources", "mtu"}
        for look in looks:
            text = (ROOT / f"roles/{look.role}/tasks/{look.tasks}.yml").read_text()
            assert f" {look.module}:" in text
