"""Which package repositories a node needs for its part of the stack, beside those that it has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypedDict
from urllib.parse import urljoin

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from .model import NodeStack

# Not of the stack that is resolved, and before all of it: modules of the driver are built against DOCA's.
RDMA = "rdma"
# The parts of a stack in the order in which they are brought: each has a role of its name. Which packages are whose.
PARTS = {
    "nvidia_driver": "driver",
    "cuda_toolkit": "cuda",
    "nccl": "nccl",
    "container_toolkit": "containers",
    "dcgm": "dcgm",
}


def parts_of(node: NodeStack, modes: Mapping[str, str], *, has_gpus: bool, rdma: bool) -> list[str]:
    """Return the roles that have something to do, or to judge, on a node.

    modes: manage, verify or off of each role, under the names of the options. rdma: whether that role is due there.
    """
    requested = [part for part, packages in PARTS.items() if getattr(node, packages) or part == "nvidia_driver"]
    parts = [part for part in requested if has_gpus and modes[f"{part}_mode"] != "off"]
    return [RDMA, *parts] if has_gpus and rdma else parts


def needed(node: NodeStack, managed: Collection[str]) -> list[str]:
    """Return the names of the repositories. managed: the parts that may be installed there."""
    names = []
    if ("nvidia_driver" in managed and node.source == "nvidia") or {"cuda_toolkit", "nccl", "dcgm"} & set(managed):
        names.append("nvidia")
    if "container_toolkit" in managed:
        names.append("container_toolkit")
    if "nvidia_driver" in managed and node.source in ("debian", "ubuntu"):
        names.append(node.source)
    return names


def doca(uri: str, key: str) -> StackRepository:
    """Return NVIDIA's repository for DOCA. key: the text of its key, which somebody has compared."""
    return {"name": "doca", "uri": uri if uri.endswith("/") else f"{uri}/", "key": key}


class StackRepository(TypedDict, total=False):
    """A repository as the module apt_repositories takes it, which documents each."""

    name: str
    of_archive: list[str]
    uri: str
    label: str
    priority: int
    key: str
    key_urls: list[str]
    fingerprints: list[str]


def repository(name: str, row: Mapping[str, Any], *, uri: str, upstream: str, key: str) -> StackRepository:
    """row: its entry in roles/gpu_stack/files/repositories.yml. uri: where it is. upstream: where NVIDIA has it, whose
    key a mirror may lack. key: the text of a key that is to be trusted instead of NVIDIA's, or "".
    """
    if "of_archive" in row:
        return {"name": name, "of_archive": row["of_archive"]}
    wanted: StackRepository = {
        "name": name,
        "uri": uri,
        "label": row.get("label", ""),
        "priority": row.get("priority", 0),
    }
    if key:
        return {**wanted, "key": key}
    places = dict.fromkeys(urljoin(base, path) for base in (uri, upstream) for path in row["keys"])
    return {**wanted, "key_urls": list(places), "fingerprints": list(row["keys"].values())}
