"""Reads what the inventory says of the nodes, once for all of them; documented in library/inspect_plan.py."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parents[1] / room) for room in ("module_utils", "plugin_utils")]

from ansible.errors import AnsibleError
from ansible.plugins.action import ActionBase

from muster_controller.documentation import argument_spec
from muster_controller.variables import load_roles, project_root, read_node

REQUESTES = (
    *("cluster_name", "cluster_artifacts_dir", "cluster_address", "cluster_interface", "cluster_gpus", "cluster_user"),
    *("cluster_master_port", "cluster_run_root", "cluster_quarantined", "pytorch_root", "node_baseline_user_uid"),
    *("node_baseline_user_gid", "firewall_mode", "firewall_tight"),
)
WRITES = ("pytorch_root", "cluster_run_root")


class ActionModule(ActionBase):
    """Contacts no node."""

    _supports_check_mode = True
    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        self.validate_argument_spec(argument_spec("inspect_plan"))
        task_vars = task_vars or {}
        roles = load_roles(self._loader)
        requests = {}
        for name in task_vars["groups"]["gpu_nodes"]:
            reading = read_node(task_vars, self._templar, roles, name, REQUESTES)
            for variable, error in reading.errors.items():
                raise AnsibleError(f"{name}: {variable} {error}.")
            requests[name] = reading.values
        platforms = self._loader.load_from_file(str(project_root() / "roles/cluster/vars/main.yml"))
        result.update(
            changed=False,
            requests=requests,
            peers=[request["cluster_address"] for request in requests.values()],
            writes={name: [request[variable] for variable in WRITES] for name, request in requests.items()},
            platforms=platforms["_cluster_platforms"],
        )
        return result
