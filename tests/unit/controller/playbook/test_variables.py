"""Reading the cluster variables of a node from a real inventory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from ansible.errors import AnsibleError
from ansible.inventory.manager import InventoryManager
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar
from ansible.vars.hostvars import HostVars
from ansible.vars.manager import VariableManager

from muster_controller.playbook import variables as controller_variables

if TYPE_CHECKING:
    from pathlib import Path

    World = tuple[dict[str, Any], Templar, DataLoader]

HOSTS = """
gpu_nodes:
  vars:
    per_box: 4
  hosts:
    node1:
      ansible_host: 203.0.113.1
      cluster_gpus: "{{ per_box * 2 }}"
    node2:
      ansible_host: 203.0.113.2
      cluster_address: "{{ hostvars['node1'].ansible_host }}"
      cluster_quarantined: "yes"
      cluster_launch_nodes: [node1, "{{ inventory_hostname }}"]
    node3:
      cluster_gpus: "{{ nowhere }}"
      cluster_torch_version: 2.10
"""


@pytest.fixture
def world(tmp_path: Path) -> World:
    """Return the arguments of an action plugin: task_vars, templar and loader."""
    folder = tmp_path / "rack"
    folder.mkdir()
    (folder / "hosts.yml").write_text(HOSTS)
    loader = DataLoader()
    inventory = InventoryManager(loader, sources=[str(folder)])
    variables = VariableManager(loader, inventory)
    task_vars = {"hostvars": HostVars(inventory, variables, loader)}
    return task_vars, Templar(loader=loader, variables=task_vars), loader


def test_inventory_values_override_role_defaults(world: World) -> None:
    node = controller_variables.node_variables(*world, "node1")
    assert node["cluster_address"] == "203.0.113.1"
    assert node["cluster_gpus"] == 8
    assert node["cluster_nproc_per_node"] == 8
    assert node["cluster_master_port"] == 29500
    assert node["cluster_name"] == "rack"
    assert node["cluster_launch_nodes"] == []


def test_values_are_converted_to_the_types_declared_by_the_role(world: World) -> None:
    node = controller_variables.node_variables(*world, "node2")
    assert node["cluster_address"] == "203.0.113.1"
    assert node["cluster_quarantined"] is True
    assert node["cluster_nproc_per_node"] == 1
    assert type(node["cluster_launch_nodes"]) is list
    assert node["cluster_launch_nodes"] == ["node1", "node2"]


def test_each_unreadable_value_is_a_separate_error(world: World) -> None:
    task_vars, templar, loader = world
    roles = controller_variables.load_roles(loader, "cluster")
    names = [*roles.options, "ansible_host", "per_box"]
    reading = controller_variables.read_node(task_vars, templar, roles, "node3", names)
    assert "'nowhere' is undefined" in reading.errors["cluster_gpus"]
    assert reading.errors["cluster_torch_version"] == "is 2.1, not text; enclose it in quotes"
    assert reading.values["cluster_address"] == "node3"
    assert reading.values["per_box"] == 4
    assert "ansible_host" not in reading.values
    with pytest.raises(AnsibleError, match="node3: cluster_gpus cannot be evaluated"):
        controller_variables.node_variables(*world, "node3")


def test_project_root_contains_ansible_cfg() -> None:
    assert (controller_variables.project_root() / "ansible.cfg").is_file()
