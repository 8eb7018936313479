"""The cluster's variables of a node are read with a real inventory."""

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
    """Return what an action plugin is given: task_vars, a templar and a loader."""
    folder = tmp_path / "rack"
    folder.mkdir()
    (folder / "hosts.yml").write_text(HOSTS)
    loader = DataLoader()
    inventory = InventoryManager(loader, sources=[str(folder)])
    variables = VariableManager(loader, inventory)
    task_vars = {"hostvars": HostVars(inventory, variables, loader)}
    return task_vars, Templar(loader=loader, variables=task_vars), loader


def test_defaults_apply_under_what_the_inventory_says(world: World) -> None:
    node = controller_variables.node_variables(*world, "node1")
    assert node["cluster_address"] == "203.0.113.1"
    assert node["cluster_gpus"] == 8
    assert node["cluster_nproc_per_node"] == 8
    assert node["cluster_master_port"] == 29500
    assert node["cluster_name"] == "rack"
    assert node["cluster_launch_nodes"] == []


def test_types_are_those_that_the_role_declares(world: World) -> None:
    node = controller_variables.node_variables(*world, "node2")
    assert node["cluster_address"] == "203.0.113.1"
    assert node["cluster_quarantined"] is True
    assert node["cluster_nproc_per_node"] == 1
    assert type(node["cluster_launch_nodes"]) is list
    assert node["cluster_launch_nodes"] == ["node1", "node2"]


def test_a_value_that_cannot_be_read_is_an_error_of_its_own(world: World) -> None:
    task_vars, templar, loader = world
    roles = controller_variables.load_roles(loader, "cluster")
    names = [*roles.options, "ansible_host", "per_box"]
    reading = controller_variables.read_node(task_vars, templar, roles, "node3", names)
    assert "'nowhere' is undefined" in reading.errors["cluster_gpus"]
    assert reading.errors["cluster_torch_version"] == "is 2.1, not text; put it in quotes"
    assert reading.values["cluster_address"] == "node3"
    assert reading.values["per_box"] == 4
    assert "ansible_host" not in reading.values
    with pytest.raises(AnsibleError, match="node3: cluster_gpus cannot be evaluated"):
        controller_variables.node_variables(*world, "node3")


def test_the_project_root_holds_the_configuration() -> None:
    assert (controller_variables.project_root() / "ansible.cfg").is_file()
