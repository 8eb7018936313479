"""The inventory is validated before any node is contacted."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from machines import Play

LAB = Path(__file__).parents[2] / "inventory/lab"
SAMPLE = "node1: 198.51.100.11 is reserved for documentation"


def test_sandbox_inventory_is_valid(play: Play) -> None:
    result = play("playbooks/validate.yml")
    assert result.rc == 0, result.stdout
    assert not result.changed


@pytest.mark.parametrize(
    "requested",
    [{}, {"tags": "baseline"}, {"limit": "node2"}, {"check": True}, {"extravars": {"cluster_validated": "no"}}],
    ids=["whole", "one tag", "one node", "check mode", "text for a boolean"],
)
def test_pipeline_never_connects_to_sample_addresses(play: Play, requested: dict[str, Any]) -> None:
    result = play("site.yml", inventory=LAB, **requested)
    assert result.rc != 0
    assert SAMPLE in result.stdout
    tasks = {event["event_data"]["task"] for event in result.events if event["event"].startswith("runner_on")}
    assert tasks == {"Validate the inventory"}


def test_plan_accepts_sample_addresses(play: Play) -> None:
    result = play("playbooks/plan.yml", inventory=LAB)
    assert result.rc == 0, result.stdout
    assert "--local-addr=198.51.100.12" in result.stdout


def test_all_problems_are_reported_at_once(play: Play, tmp_path: Path) -> None:
    (tmp_path / "hosts.yml").write_text(
        "gpu_nodes:\n"
        "  vars: {cluster_user: root, cluster_master_port: 29x00}\n"
        "  hosts:\n"
        "    node1: {ansible_host: '{{ nowhere }}'}\n"
        "    node2: {ansible_host: 192.0.2.7}\n"
    )
    result = play("playbooks/baseline.yml", inventory=tmp_path)
    message = result.results("Validate the inventory")["localhost"]["msg"]
    place = f"- {tmp_path}/hosts.yml line"
    assert message.splitlines() == [
        "The inventory has 4 problems; no node was contacted.",
        f"{place} 2: every node: cluster_master_port is '29x00', not a whole number. Correct cluster_master_port.",
        f"{place} 4: node1: ansible_host cannot be evaluated: 'nowhere' is undefined. Correct ansible_host.",
        f"{place} 5: node2: 192.0.2.7 is reserved for documentation (192.0.2.0/24). Set the node's real address.",
        f"{place} 2: every node: cluster_user is root. Set an unprivileged user: training must not run as root.",
    ]


def test_inventory_without_nodes_is_refused(play: Play, tmp_path: Path) -> None:
    (tmp_path / "hosts.yml").write_text("all:\n  hosts:\n    lonely:\n")
    result = play("site.yml", inventory=tmp_path)
    assert result.rc != 0
    assert "the group gpu_nodes is empty" in result.stdout


def test_fewer_forks_than_nodes_are_refused(play: Play) -> None:
    result = play("playbooks/validate.yml", cmdline="--forks 1")
    assert result.rc != 0
    assert "forks is 1" in result.stdout


@pytest.mark.parametrize(
    ("hosts", "sentence"),
    [
        (
            "    node1: {ansible_host: 10.0.0.1}\n    node1: {ansible_host: 10.0.0.2}\n",
            "Found duplicate mapping key 'node1'",
        ),
        ("    node1: {ansible_host: 10.0.0.1\n", "hosts.yml line 4: invalid YAML (did not find"),
    ],
    ids=["duplicate node", "unclosed brace"],
)
def test_syntax_error_in_the_inventory_is_reported(play: Play, tmp_path: Path, hosts: str, sentence: str) -> None:
    (tmp_path / "hosts.yml").write_text(f"gpu_nodes:\n  hosts:\n{hosts}")
    result = play("playbooks/validate.yml", inventory=tmp_path)
    assert result.rc != 0
    assert sentence in result.stdout
    assert "gpu_nodes is empty" not in result.stdout


def test_yaml_boolean_unknown_option_and_plain_password_are_reported(play: Play, tmp_path: Path) -> None:
    (tmp_path / "hosts.yml").write_text(
        "gpu_nodes:\n  hosts:\n    node1: {ansible_host: 10.0.0.1, ansible_become_password: hunter2}\n"
        "  vars: {firewall_mode: off, node_baselin_mode: verify}\n"
    )
    result = play("playbooks/validate.yml", inventory=tmp_path)
    *others, secret = result.results("Validate the inventory")["localhost"]["msg"].splitlines()
    place = f"- {tmp_path}/hosts.yml line 4: node1: "
    assert others == [
        "The inventory has 3 problems; no node was contacted.",
        f'{place}firewall_mode is False: YAML reads unquoted off as a boolean; use "off". Correct firewall_mode.',
        f"{place}node_baselin_mode is not a Muster option. Correct it to node_baseline_mode, or rename the variable.",
    ]
    assert secret.startswith(f"- {tmp_path}/hosts.yml: ansible_become_password is a secret")
    assert secret.endswith("ansible-vault encrypt_string --prompt.")
    assert "hunter2" not in result.stdout
