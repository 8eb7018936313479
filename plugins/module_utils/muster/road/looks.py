"""Which roles can be excused from a node by one look at it, and which looks a step takes for those that come."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping


@dataclass(frozen=True)
class RoleLook:
    """role: whose first look is taken. module: by which it looks. tasks: the file of its tasks in which that is."""

    role: str
    module: str
    tasks: str = "main"


LOOKS: Mapping[str, tuple[RoleLook, ...]] = {
    "baseline": (RoleLook("node_baseline", "node_plan"),),
    "network": (
        RoleLook("cluster_hosts", "hosts_file"),
        RoleLook("ssh_mesh", "ssh_mesh_key", "user"),
        RoleLook("firewall", "firewall"),
        RoleLook("shared_data", "shared_data"),
    ),
    "pytorch": (
        RoleLook("pytorch", "pytorch_env"),
        RoleLook("launch_users", "launch_users"),
        RoleLook("workbench", "workbench"),
    ),
}
# No role, but the last task of its step: where only this is to be done, a node stays for it and no role comes.
RECORD = RoleLook("installed_record", "installed_record")
# Roles of which all nodes take part, or none: each is told what the others brought.
OF_ALL = ("ssh_mesh",)


def looks_of(step: str) -> tuple[RoleLook, ...]:
    return (*LOOKS[step], RECORD) if step == "pytorch" else LOOKS[step]


def to_come(step: str, tags: Collection[str], skipped: Collection[str], *, road: bool) -> tuple[str, ...]:
    """Return the steps whose looks are taken together: this one, and what follows it on the road in the same run."""
    if not road:
        return (step,) if step in LOOKS else ()
    later = list(LOOKS)[list(LOOKS).index(step) + 1 :] if step in LOOKS else [*LOOKS]
    chosen = [one for one in later if ("all" in tags or one in tags) and one not in skipped]
    return (step, *chosen) if step in LOOKS else (*chosen,)


def comes_anyhow(step: str, values: Mapping[str, object]) -> str:
    """Return why no quick look excuses a node from a step; empty where one does. values: the node's options."""
    sources = ("cluster_http_proxy", "cluster_https_proxy", "cluster_extra_ca", "cluster_offline_dir")
    if step == "baseline" and (values["cluster_mirror"] != "upstream" or any(values[name] for name in sources)):
        return "its package sources are looked at by the role itself"
    if step == "network" and int(str(values["mtu_training"] or 0)) > 0:
        return "its MTU is looked at by the role itself"
    if step == "pytorch" and (values["cluster_environments"] or values["workbench_nodes"]):
        return "environments beside the default one are looked at by the roles themselves"
    return ""


def waits(step: str, values: Mapping[str, object]) -> bool:
    """Whether a step's look is taken by the step itself: which build goes with GPUs is known behind their stack."""
    return step == "pytorch" and int(str(values["cluster_gpus"])) > 0


OPTIONS = (
    *("cluster_mirror", "cluster_http_proxy", "cluster_https_proxy", "cluster_extra_ca", "cluster_offline_dir"),
    *("mtu_training", "cluster_environments", "workbench_nodes", "cluster_gpus", "cluster_address"),
    *("cluster_name", "ansible_host"),
)
