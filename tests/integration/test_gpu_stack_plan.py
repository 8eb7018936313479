"""playbooks/plan.yml resolves the GPU stack from the inventory alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import yaml

from machines import run_playbook

if TYPE_CHECKING:
    from pathlib import Path

    from machines import Result

SAMPLES = ("198.51.100.11", "198.51.100.12")


def plan(folder: Path, *models: str, **variables: Any) -> Result:
    hosts = {
        f"node{number}": {"ansible_host": SAMPLES[number - 1], "cluster_gpus": 8, "cluster_gpu_model": model}
        for number, model in enumerate(models, 1)
    }
    inventory = folder / "inventory"
    inventory.mkdir()
    (inventory / "hosts.yml").write_text(yaml.safe_dump({"gpu_nodes": {"vars": variables, "hosts": hosts}}))
    return run_playbook(folder, "playbooks/plan.yml", inventory=inventory, tags="gpu_stack")


def test_stack_is_printed_with_reasons(tmp_path: Path) -> None:
    result = plan(tmp_path, "V100", "H100", gpu_stack_system="ubuntu-22.04")
    assert result.rc == 0, result.stdout
    planned = result.results("Plan the GPU stack")["node1"]
    stack, lines = planned["stack"], planned["msg"].splitlines()
    assert any(
        "instead of cu130, because PyTorch 2.13.0 built for cu130 has no code for the V100" in line for line in lines
    )
    assert any("nvidia-driver-pinning-580, then linux-headers-generic cuda-drivers-580" in line for line in lines)
    assert any(line.startswith("warn  node1, node2: not inspected yet. Assumptions: ubuntu-22.04") for line in lines)
    assert stack["branch"] == 580
    assert [stack["nodes"][name]["modules"] for name in ("node1", "node2")] == ["proprietary", "open"]
    assert result.changed == []


def test_impossible_request_is_refused_once_for_all_nodes(tmp_path: Path) -> None:
    result = plan(tmp_path, "B200", "B200", cluster_torch_version="2.6.0")
    assert result.rc != 0
    assert (
        "- node1, node2: PyTorch 2.6.0 built for cu124 has no code for the B200 (compute capability 10.0). "
        "Set cluster_torch_version to 2.7.1."
    ) in result.stdout
    assert "Traceback" not in result.stdout
