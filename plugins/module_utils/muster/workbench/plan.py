"""What must change on a node for notebooks, or for none: pure.

The environments of a node that get a kernel: the one place of the workbench that knows them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..pytorch.environments import places
from . import files

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@dataclass(frozen=True)
class WorkbenchRequest:
    """root: JupyterLab's folder. programs: texts that lie in it, by name. environments: paths by name."""

    root: str
    users_root: str
    programs: Mapping[str, str] = field(default_factory=dict)
    environments: Mapping[str, str] = field(default_factory=dict)
    present: bool = True


@dataclass(frozen=True)
class Python:
    """The Python of an environment. version: as "3.12"; empty where it does not run. ipykernel: whether it is there."""

    version: str = ""
    ipykernel: bool = False


@dataclass(frozen=True)
class WorkbenchState:
    """texts: of our files and all kernels that lie there, by path. link: where the one that starts the unit leads.
    pythons: of the environments by name. own: of JupyterLab's. built: names of Muster's in the root, for its removal.
    running: accounts whose notebook runs."""

    texts: Mapping[str, str] = field(default_factory=dict)
    link: str = ""
    pythons: Mapping[str, Python] = field(default_factory=dict)
    own: str = ""
    built: Sequence[str] = ()
    running: Sequence[str] = ()


@dataclass
class WorkbenchPlan:
    """files: a text, or None for one that goes. stop: accounts whose notebook is ended first. remove: in the root."""

    files: dict[str, str | None] = field(default_factory=dict)
    link: str | None = None
    stop: Sequence[str] = ()
    remove: Sequence[str] = ()
    differences: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def needed(self) -> bool:
        return bool(self.differences)


def make_plan(request: WorkbenchRequest, seen: WorkbenchState) -> WorkbenchPlan:
    return _present(request, seen) if request.present else _absent(seen)


def _present(request: WorkbenchRequest, seen: WorkbenchState) -> WorkbenchPlan:
    plan = WorkbenchPlan()
    usable = {name: path for name, path in request.environments.items() if not (why := _unusable(name, seen))}
    plan.notes += [why for name in request.environments if (why := _unusable(name, seen))]
    wanted = files.texts(request.root, request.users_root, request.programs, usable)
    for path, text in wanted.items():
        if seen.texts.get(path) != text:
            plan.files[path] = text
            plan.differences.append(f"{path} {'has other content' if path in seen.texts else 'is missing'}")
    for path in seen.texts:
        if path not in wanted:
            plan.files[path] = None
            plan.differences.append(f"{path} is for no environment any more")
    if seen.link != files.WANTED_LEADS_TO:
        plan.link = files.WANTED_LEADS_TO
        plan.differences.append(f"{files.WANTED} leads to {seen.link or 'nothing'}")
    return plan


def _unusable(name: str, seen: WorkbenchState) -> str:
    """Why an environment cannot have a kernel; nothing where it can, or where there is no JupyterLab yet."""
    python = seen.pythons.get(name, Python())
    if not python.version:
        return f"the environment {name} gets no kernel: its Python does not run"
    if python.ipykernel or python.version == seen.own or not seen.own:
        return ""
    return (
        f"the environment {name} gets no kernel: it has Python {python.version} and no ipykernel, and JupyterLab's is"
        f" {seen.own}; put ipykernel into it"
    )


def _absent(seen: WorkbenchState) -> WorkbenchPlan:
    plan = WorkbenchPlan(stop=seen.running, remove=seen.built)
    plan.files = dict.fromkeys(seen.texts)
    plan.link = "" if seen.link else None
    plan.differences = [f"the notebook of {name} runs" for name in seen.running]
    plan.differences += [f"{path} is there" for path in (*seen.texts, *([files.WANTED] if seen.link else []))]
    plan.differences += [f"{name} of JupyterLab is there" for name in seen.built]
    return plan


def environments(cluster: Mapping[str, Any]) -> dict[str, str]:
    """Paths by name, which stay when another environment is built. cluster: a node's variables of that role."""
    return {place.name: place.path for place in places(cluster)}
