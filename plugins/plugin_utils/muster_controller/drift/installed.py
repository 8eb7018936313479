"""Query the installed state of all nodes in parallel, with the program drift."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from muster.pytorch import environments
from muster_controller.nodes.asking import ask_nodes
from muster_controller.nodes.program import NodeProgram
from muster_controller.playbook.variables import load_roles, project_root, read_node

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from muster_controller.nodes.asking import NodeAnswer
    from muster_controller.playbook.action import ControllerAction

    Json = dict[str, Any]

PROGRAM = NodeProgram("drift")
SECONDS = 600.0  # to inspect every file of an environment on a slow disk
# The role firewall installs one of these, in addition to the packages of node_baseline.
FIREWALLS = ("ufw", "nftables")
KERNELS = ("linux-image-",)
OF_A_NODE = (
    *("pytorch_root", "node_baseline_extra_packages", "node_baseline_compiler", "node_baseline_podman"),
    *("cluster_environments", "cluster_environments_root"),
)


def requests(task_vars: Mapping[str, Any], templar: Any, loader: Any, nodes: Sequence[str]) -> dict[str, Json]:
    """Return the program's request for each node."""
    listed = loader.load_from_file(str(project_root() / "roles/node_baseline/vars/main.yml"))
    own = [str(name) for entry in listed["_node_baseline_packages"] for name in str(entry).split("|")]
    compiler = [str(name) for name in listed["_node_baseline_compiler"]]
    containers = [str(name) for name in listed["_node_baseline_containers"]]
    prefixes = [str(name) for name in listed["_node_baseline_gpu_packages"]]
    roles = load_roles(loader, "cluster", "pytorch", "node_baseline")
    found = {}
    for node in nodes:
        values = read_node(task_vars, templar, roles, node, OF_A_NODE).values
        asked = [
            *(compiler if values.get("node_baseline_compiler") else ()),
            *(containers if values.get("node_baseline_podman") else ()),
        ]
        more = [name for entry in values.get("node_baseline_extra_packages", ()) for name in str(entry).split("|")]
        found[node] = {
            "packages": [*own, *asked, *more, *FIREWALLS],
            "prefixes": [*prefixes, *KERNELS],
            "environment": f"{values['pytorch_root']}/current",
            "named": {
                name: f"{environments.folder_of(values['cluster_environments_root'], name)}/current"
                for name in environments.built(values["cluster_environments"])
            },
        }
    return found


def links_of(request: Json) -> dict[str, str]:
    """Return the links to a node's active environments, by name. The name "" means the default environment."""
    return {"": request["environment"], **request["named"]}


def ask_all(action: ControllerAction, verb: str, requested: Mapping[str, Json]) -> dict[str, NodeAnswer]:
    """Return the response of each node. A failure on one node does not affect the other nodes."""
    return ask_nodes(action, PROGRAM, verb, requested, SECONDS)
