"""Resolves the GPU stack of all nodes; documented in library/gpu_stack_plan.py."""

from __future__ import annotations

import sys
from dataclasses import asdict
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path[:0] = [str(Path(__file__).parents[1] / room) for room in ("module_utils", "plugin_utils")]

from ansible.errors import AnsibleActionFail, AnsibleError
from ansible.plugins.action import ActionBase

from muster.gpu_stack.model import Seen, Wish
from muster.gpu_stack.report import report
from muster.gpu_stack.resolve import resolve
from muster.gpu_stack.table import Table
from muster_vars import load_roles, project_root, read_node

if TYPE_CHECKING:
    from collections.abc import Mapping

TABLE = "roles/gpu_stack/files/versions.yml"
OF_THE_CLUSTER = (
    *("cluster_torch_version", "pytorch_variant", "gpu_stack_driver", "gpu_stack_source"),
    *("gpu_stack_modules", "gpu_stack_build"),
)
OF_A_NODE = ("cluster_gpus", "cluster_gpu_model", "gpu_stack_system")


class ActionModule(ActionBase):
    """Contacts no node."""

    _supports_check_mode = True
    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: Mapping[str, Any] | None = None) -> dict[str, Any]:
        task_vars = task_vars or {}
        result: dict[str, Any] = super().run(tmp, task_vars)
        _, options = self.validate_argument_spec({"looks": {"type": "str", "default": ""}})
        roles = load_roles(self._loader)
        nodes = []
        for name in task_vars["groups"]["gpu_nodes"]:
            reading = read_node(task_vars, self._templar, roles, name, (*OF_THE_CLUSTER, *OF_A_NODE))
            for variable, error in reading.errors.items():
                raise AnsibleError(f"{name}: {variable} {error}.")
            look = task_vars["hostvars"].raw_get(name).get(options["looks"], {}) if options["looks"] else {}
            nodes.append(seen(name, reading.values, look.get("facts")))
        values = reading.values
        # 2.13.0+cu126 names the build as well.
        torch, _, build = values["cluster_torch_version"].partition("+")
        wish = Wish(
            torch=torch,
            variant=build or values["pytorch_variant"],
            driver=values["gpu_stack_driver"],
            source=values["gpu_stack_source"],
            modules=values["gpu_stack_modules"],
            build=values["gpu_stack_build"],
        )
        table = Table(self._loader.load_from_file(str(project_root() / TABLE)))
        stack = resolve(table, wish, nodes, datetime.now(tz=timezone.utc).date())
        if stack.refusals:
            raise AnsibleActionFail(report(stack))
        result.update(changed=False, msg=report(stack), stack=asdict(stack))
        return result


def seen(name: str, values: Mapping[str, Any], facts: Mapping[str, Any] | None) -> Seen:
    """Return what is known of a node: what a look saw, or what the inventory declares."""
    if not facts:
        return Seen(
            name,
            system=values["gpu_stack_system"],
            model=values["cluster_gpu_model"],
            gpu_count=values["cluster_gpus"],
            looked=False,
        )
    system, gpus = facts["system"], facts["gpus"]
    return Seen(
        name,
        system=f"{system['id']}-{system['version']}",
        machine=system["machine"],
        python=system["python"],
        gpus=tuple(device["id"] for device in gpus["devices"]),
        model=values["cluster_gpu_model"],
        gpu_count=values["cluster_gpus"],
        nvswitches=gpus["nvswitches"],
        kernels=tuple(facts["packages"]["kernels"]),
        secure_boot=facts["secure_boot"],
        key_enrolled=facts["key_enrolled"],
        driver=facts["packages"]["driver"] or gpus["driver_version"],
    )
