"""Decide which roles can be skipped on a node after a quick inspection, and which inspections a step runs for later
steps.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping


@dataclass(frozen=True)
class RoleLook:
    """role: the role whose first inspection is run. module: the module that inspects the node. tasks: the role's file
    with that task.
    """

    role: str
    module: str
    tasks: str = "main"


FIREWALL = RoleLook("firewall", "firewall")
LOOKS: Mapping[str, tuple[RoleLook, ...]] = {
    "inspect": (FIREWALL,),
    "baseline": (RoleLook("node_baseline", "node_plan"),),
    "network": (
        RoleLook("cluster_hosts", "hosts_file"),
        RoleLook("ssh_mesh", "ssh_mesh_key", "user"),
        FIREWALL,
        RoleLook("shared_data", "shared_data"),
    ),
    "pytorch": (
        RoleLook("pytorch", "pytorch_env"),
        RoleLook("launch_users", "launch_users"),
        RoleLook("workbench", "workbench"),
    ),
}
# Not a role, but the last task of the step. If only this is due, no role runs on the node.
RECORD = RoleLook("installed_record", "installed_record")
# Roles that run on all nodes or on none, because each node gets data of the others.
OF_ALL = ("ssh_mesh",)


def looks_of(step: str) -> tuple[RoleLook, ...]:
    return (*LOOKS[step], RECORD) if step == "pytorch" else LOOKS[step]


def to_come(step: str, tags: Collection[str], skipped: Collection[str], *, road: bool) -> tuple[str, ...]:
    """Return the steps whose inspections run together: this step and the steps that follow in the same run."""
    if not road:
        return (step,) if step in LOOKS else ()
    later = list(LOOKS)[list(LOOKS).index(step) + 1 :] if step in LOOKS else [*LOOKS]
    chosen = [one for one in later if ("all" in tags or one in tags) and one not in skipped]
    return (step, *chosen) if step in LOOKS else (*chosen,)


def comes_anyhow(step: str, values: Mapping[str, object]) -> str:
    """Return why a step must run on a node even if a quick inspection finds no differences; "" if the step can be
    skipped. values: the node's options.
    """
    sources = ("cluster_http_proxy", "cluster_https_proxy", "cluster_extra_ca", "cluster_offline_dir")
    if step == "baseline" and (values["cluster_mirror"] != "upstream" or any(values[name] for name in sources)):
        return "only the role checks the package sources"
    if step == "network" and int(str(values["mtu_training"] or 0)) > 0:
        return "only the role checks the MTU"
    if step == "pytorch" and (values["cluster_environments"] or values["workbench_nodes"]):
        return "only the roles check environments other than the default"
    return ""


def waits(step: str, values: Mapping[str, object]) -> bool:
    """Return whether the step must run its own inspection.

    On nodes with GPUs, the GPU stack must be resolved first, because it decides the PyTorch build.
    """
    return step == "pytorch" and int(str(values["cluster_gpus"])) > 0


OPTIONS = (
    *("cluster_mirror", "cluster_http_proxy", "cluster_https_proxy", "cluster_extra_ca", "cluster_offline_dir"),
    *("mtu_training", "cluster_environments", "workbench_nodes", "cluster_gpus", "cluster_address"),
    *("cluster_name", "ansible_host"),
)
