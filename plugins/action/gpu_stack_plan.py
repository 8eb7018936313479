"""Resolves the GPU stack of all nodes.

Reads the requests of the inventory (gpu_stack_*, cluster_torch_version, pytorch_variant). For every node, reads the
result of its inspection or, if there is none, cluster_gpus and cluster_gpu_model. Returns one stack for all nodes with
a one-line reason for each choice, or all reasons why no stack fits and the closest supported alternative. Contacts no
node; use it with run_once. The compatibility table is roles/gpu_stack/files/versions.yml.

msg: The stack with its reasons, or the reasons why no stack fits, as text.
stack: The same as data: torch, variant, index, cuda, nccl, cudnn, branch, driver, warnings, and under nodes the source,
    modules, build and package lists of each node.
managed: Those of the parts that may change the node.
parts: The roles that install or check something on each node, in the order in which they run.
rdma: The RDMA software of each node: source (the distribution, DOCA, or kept), packages, modules, load, and the reason
    (why); refusals if no RDMA software fits.
repositories: The package repositories that each node needs, in the format of the module apt_repositories.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from ansible.errors import AnsibleActionFail

from muster.gpu_stack import spark_cable
from muster.gpu_stack.model import StackNodeFacts, StackRequest
from muster.gpu_stack.packages import PARTS, RDMA, doca, needed, parts_of, repository
from muster.gpu_stack.rdma import DOCA
from muster.gpu_stack.report import drivers, report
from muster.gpu_stack.resolve import resolve
from muster.gpu_stack.table import VersionsTable
from muster.nvidia_driver.family import is_part
from muster.nvidia_driver.model import DriverState as DriverSeen
from muster.packages import mirrors
from muster.packages.repositories import fingerprints
from muster_controller.gpu_stack.rdma import OPTIONS as RDMA_OPTIONS
from muster_controller.gpu_stack.rdma import part_of, table
from muster_controller.packages.sources import mirrors_table
from muster_controller.playbook.action import ControllerAction, Options
from muster_controller.playbook.variables import controller_file, load_roles, project_root, read_values, registered

if TYPE_CHECKING:
    from collections.abc import Mapping

    from muster.gpu_stack.packages import StackRepository
    from muster.gpu_stack.rdma import RdmaPart

VERSIONS = "roles/gpu_stack/files/versions.yml"
REPOSITORIES = "roles/gpu_stack/files/repositories.yml"
DGX = "/etc/dgx-release"
MIRRORED = ("nvidia", "container_toolkit")
OF_THE_CLUSTER = (
    *("cluster_torch_version", "pytorch_variant", "gpu_stack_driver", "gpu_stack_source"),
    *("gpu_stack_modules", "gpu_stack_build", "gpu_stack_repository_keys"),
    *("cluster_mirror", "cluster_mirror_urls", "cluster_offline_dir"),
    *("cuda_toolkit_versions", "nccl_install", "container_toolkit_engine", "dcgm_install"),
)
REPLACE, REMOVE_RUNFILE = "nvidia_driver_replace", "nvidia_driver_remove_runfile"
OF_A_NODE = (
    *("cluster_address", "cluster_interface"),
    *("cluster_gpus", "cluster_gpu_model", "gpu_stack_system", REPLACE, REMOVE_RUNFILE),
    *(f"{part}_mode" for part in PARTS),
    *RDMA_OPTIONS,
)


class ActionModule(ControllerAction):
    OPTIONS: ClassVar[Options] = {
        # Name of the variable with the registered node_inspect result of each node.
        "looks": {"type": "str", "default": ""},
        # Output: the whole stack, the driver change of each node (drivers), or nothing.
        "shows": {"type": "str", "choices": ["stack", "drivers", "nothing"], "default": "stack"},
        # Option values that override the inventory.
        "instead": {
            "type": "dict",
            "default": {},
            "options": {"cluster_torch_version": {"type": "str"}, "gpu_stack_driver": {"type": "str"}},
        },
    }

    def work(self) -> dict[str, Any]:
        nodes, values = self._nodes(self.task_vars, self.options["looks"])
        values.update({name: value for name, value in self.options["instead"].items() if value})
        versions = VersionsTable(self._loader.load_from_file(str(project_root() / VERSIONS)))
        stack = resolve(versions, request_of(values), nodes, datetime.now(tz=timezone.utc).date())
        if stack.refusals:
            raise AnsibleActionFail(report(stack))
        keys = self._keys(values["gpu_stack_repository_keys"])
        trains = {seen.node: seen.has_gpus and stack.variant != "cpu" for seen in nodes}
        rdma = self._rdma(trains)
        parts = {
            node: parts_of(stack.nodes[node], self._values[node], has_gpus=has_gpus, rdma=rdma[node].is_due)
            for node, has_gpus in trains.items()
        }
        request = mirrors.MirrorsRequest(
            values["cluster_mirror"], values["cluster_mirror_urls"], values["cluster_offline_dir"]
        )
        repositories, managed, notes = {}, {}, {}
        for seen in nodes:
            own = self._values[seen.node]
            mine = managed[seen.node] = [part for part in parts[seen.node] if own[f"{part}_mode"] == "manage"]
            places = mirrors.resolve(mirrors_table(self._loader), request, seen.system, seen.machine)
            notes.update(dict.fromkeys(f"{note}." for note in places.notes))
            repositories[seen.node] = self._repositories(seen, needed(stack.nodes[seen.node], mine), places, keys)
            if RDMA in mine and rdma[seen.node].source == DOCA and not places.offline:
                key = controller_file(own["rdma_doca_key"])
                if key is None:
                    raise AnsibleActionFail(f"{seen.node}: rdma_doca_key {own['rdma_doca_key']} cannot be read.")
                repositories[seen.node].append(doca(own["rdma_doca_url"], key))
        stack = replace(stack, warnings=(*stack.warnings, *notes))
        result: dict[str, Any] = {"stack": asdict(stack), "parts": parts, "managed": managed}
        result["repositories"] = repositories
        result["rdma"] = {node: {**asdict(part), "refusals": [*map(str, part.refusals)]} for node, part in rdma.items()}
        if self.options["shows"] != "nothing":
            result["msg"] = report(stack) + self._cable(nodes) if self.options["shows"] == "stack" else drivers(stack)
        return result

    def _cable(self, nodes: list[StackNodeFacts]) -> str:
        sparks = [seen.node for seen in nodes if spark_cable.has_cable(seen.gpus, seen.model)]
        at = {name: (self._values[name]["cluster_interface"], self._values[name]["cluster_address"]) for name in sparks}
        return f"\n\n{spark_cable.plan(at)}" if at else ""

    def _nodes(self, task_vars: Mapping[str, Any], looks: str) -> tuple[list[StackNodeFacts], dict[str, Any]]:
        """Return the facts of every node for which a plan is possible, and the cluster's values from the inventory."""
        roles = load_roles(self._loader)
        nodes = []
        self._values: dict[str, dict[str, Any]] = {}
        self._facts: dict[str, Any] = {}
        for name in task_vars["groups"]["gpu_nodes"]:
            values = read_values(task_vars, self._templar, roles, name, (*OF_THE_CLUSTER, *OF_A_NODE))
            self._values[name] = values
            self._facts[name] = registered(task_vars, name, looks).get("facts")
            node = seen(name, values, self._facts[name])
            # The GPUs of an excluded or unreachable node are unknown, unless the inventory declares them.
            if node.looked or node.model or not looks:
                nodes.append(node)
        return nodes, values

    def _rdma(self, trains: Mapping[str, bool]) -> dict[str, RdmaPart]:
        names = table(self._loader)
        return {
            node: part_of(names, node, self._values[node], self._facts[node], has_gpus=has_gpus)
            for node, has_gpus in trains.items()
        }

    def _repositories(
        self, node: StackNodeFacts, names: list[str], places: mirrors.Sources, keys: Mapping[str, str]
    ) -> list[StackRepository]:
        """Return the node's repositories with these names. If an offline folder replaces all of them, return none."""
        rows = self._loader.load_from_file(str(project_root() / REPOSITORIES))
        upstream = mirrors.resolve(mirrors_table(self._loader), mirrors.MirrorsRequest(), node.system, node.machine)
        return [
            repository(
                name,
                rows[name],
                uri=getattr(places, name, mirrors.PackageOrigin()).uri,
                upstream=getattr(upstream, name, mirrors.PackageOrigin()).uri,
                key=keys.get(name, ""),
            )
            for name in names
            if not places.offline
        ]

    def _keys(self, paths: Mapping[str, str]) -> dict[str, str]:
        """Return the signing keys that replace NVIDIA's keys."""
        keys, wrong = {}, []
        for name, path in paths.items():
            place = Path(self._loader.path_dwim(path))
            if name not in MIRRORED:
                wrong.append(f"unknown repository {name}. Use {' or '.join(MIRRORED)}.")
                continue
            try:
                keys[name] = place.read_text(encoding="utf-8")
                if not fingerprints(keys[name].encode()):
                    wrong.append(f"{place} contains no OpenPGP key. Export the key with gpg --armor --export.")
            except OSError as error:
                wrong.append(f"{place} cannot be read: {error.strerror}.")
            except ValueError:
                wrong.append(f"{place} is not an ASCII-armored key. Export the key with gpg --armor --export.")
        if wrong:
            raise AnsibleActionFail("\n".join(f"gpu_stack_repository_keys: {sentence}" for sentence in wrong))
        return keys


def request_of(values: Mapping[str, Any]) -> StackRequest:
    """Return the requested stack from the variables in the inventory."""
    # 2.13.0+cu126 names the build as well.
    torch, _, build = values["cluster_torch_version"].partition("+")
    return StackRequest(
        torch=torch,
        variant=build or values["pytorch_variant"],
        driver=values["gpu_stack_driver"],
        source=values["gpu_stack_source"],
        modules=values["gpu_stack_modules"],
        build=values["gpu_stack_build"],
        cuda_toolkits=tuple(values["cuda_toolkit_versions"]),
        nccl=values["nccl_install"],
        container_toolkit=values["container_toolkit_engine"] != "none",
        dcgm=values["dcgm_install"],
    )


def seen(name: str, values: Mapping[str, Any], facts: Mapping[str, Any] | None) -> StackNodeFacts:
    """Return the facts of a node, from an inspection or as declared in the inventory."""
    managed = values["nvidia_driver_mode"] == "manage"
    if not facts:
        return StackNodeFacts(
            name,
            system=values["gpu_stack_system"],
            model=values["cluster_gpu_model"],
            gpu_count=values["cluster_gpus"],
            managed=managed,
            looked=False,
        )
    system, gpus = facts["system"], facts["gpus"]
    driver = DriverSeen(facts["stack"], gpus, facts["secure_boot"])
    runfile = [*facts["stack"]["runfile"]["programs"], *facts["stack"]["runfile"]["libraries"]]
    dgx = DGX in facts["stack"]["files"]
    replaces = REMOVE_RUNFILE if values[REMOVE_RUNFILE] and runfile else ""
    return StackNodeFacts(
        name,
        system=f"{system['id']}-{system['version']}",
        machine=system["machine"],
        python=system["python"],
        gpus=tuple(device["id"] for device in gpus["devices"]),
        model=values["cluster_gpu_model"],
        gpu_count=values["cluster_gpus"],
        nvswitches=gpus["nvswitches"],
        kernels=tuple(facts["packages"]["kernels"]),
        releases=tuple(driver.next_kernels),
        secure_boot=facts["secure_boot"],
        key_enrolled=facts["key_enrolled"],
        managed=managed and not system["container"] and not dgx,
        dgx=dgx,
        container=system["container"],
        virtual=bool(system["virtual"]),
        driver=facts["packages"]["driver"] or gpus["driver_version"],
        works=driver.works,
        packages=tuple(name for name in driver.packages if is_part(name)),
        replaces=REPLACE if values[REPLACE] else replaces,
    )
