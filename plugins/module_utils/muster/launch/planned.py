"""The plan of a launch as an object and as JSON. The JSON is used in plan.json, on the nodes and in module results."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, TypedDict

from .launchers import TORCHRUN

if TYPE_CHECKING:
    from collections.abc import Mapping

SYSTEM, USER = "system", "user"  # the manager of its units


class PlannedImage(TypedDict):
    """A container image in a plan. id: image ID; "" until the nodes have reported it."""

    source: str
    id: str
    folders: list[str]


class PlannedFetch(TypedDict):
    """The files to fetch from the nodes at the end.

    most: maximum number of bytes. folder: "" for the working folder.
    """

    patterns: list[str]
    most: int
    folder: str


class PlannedWatcher(TypedDict):
    """The node that runs the watcher, and the ID of the first attempt that the watcher supervises."""

    node: str
    launch_id: str


@dataclass(frozen=True)
class PlannedNode:
    """A node of a plan, with its exact command and environment.

    interface: None until the node has reported it. from_node: the variables that the node must determine, with a
    description of their values. script: path of the script, or None. environment: the folder that contains torchrun.
    seats: None until the node has reported its GPUs.
    """

    node: str
    node_rank: int
    ranks: list[int]
    nproc: int
    address: str
    interface: str | None = None
    argv: list[str] = field(default_factory=list)
    env: dict[str, str] = field(default_factory=dict)
    from_node: dict[str, str] = field(default_factory=dict)
    unit: str = ""
    run_dir: str = ""
    work_dir: str = ""
    script: str | None = None
    environment: str = ""
    cache_root: str = ""
    seats: list[str] | None = None


@dataclass(frozen=True)
class LaunchPlan:
    """The plan of one attempt of a launch.

    given: the option that set each environment variable; variables set by Muster are not included. None in a plan of an
    earlier release. attempt: number of the attempt, starting at 1. project: {source, digest, files, bytes} of the
    copied project. data: paths that are compared before the start. what, begun: what was launched, by whom and when.
    """

    launch_id: str
    cluster: str
    user: str
    backend: str
    master_addr: str
    master_port: int
    world_size: int
    nodes: list[PlannedNode]
    manager: str = SYSTEM
    launcher: str = TORCHRUN.name
    given: dict[str, str] | None = None
    attempt: int = 1
    project: dict[str, Any] | None = None
    data: list[str] = field(default_factory=list)
    image: PlannedImage | None = None
    what: str | None = None
    begun: dict[str, Any] | None = None
    fetch: PlannedFetch | None = None
    watched: PlannedWatcher | None = None
    schema: int = 1

    @classmethod
    def read(cls, given: Mapping[str, Any]) -> LaunchPlan:
        """Return the plan stored in a JSON object. Raises ValueError if a part is missing."""
        try:
            nodes = [PlannedNode(**known(PlannedNode, entry)) for entry in given["nodes"]]
            return cls(**{**known(cls, given), "nodes": nodes})
        except (KeyError, TypeError, AttributeError) as problem:
            raise ValueError(f"not a launch plan ({problem})") from problem

    def as_json(self) -> dict[str, Any]:
        return {**written(self), "nodes": [written(entry) for entry in self.nodes]}

    @property
    def names(self) -> list[str]:
        """Return the names of the nodes in the order of their ranks."""
        return [entry.node for entry in self.nodes]

    @property
    def ranks(self) -> dict[str, list[int]]:
        return {entry.node: entry.ranks for entry in self.nodes}

    @property
    def head(self) -> PlannedNode:
        return self.nodes[0]

    @property
    def is_own(self) -> bool:
        """Return whether this is a user launch, which does not use root."""
        return self.manager == USER

    def by_node(self) -> dict[str, PlannedNode]:
        return {entry.node: entry for entry in self.nodes}


# Keys that are left out of JSON if their value is None.
LEFT_OUT = ("given", "what", "begun", "fetch", "watched", "seats")


def known(shape: type[LaunchPlan | PlannedNode], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return only the known fields of the JSON object, because a newer release may have written additional ones."""
    names = {one.name for one in fields(shape)}
    return {name: value for name, value in given.items() if name in names}


def written(part: LaunchPlan | PlannedNode) -> dict[str, Any]:
    return {name: value for name, value in vars(part).items() if value is not None or name not in LEFT_OUT}
