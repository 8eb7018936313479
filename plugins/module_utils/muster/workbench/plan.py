"""Plan the notebook setup of a node, or its removal. Pure functions.

Other workbench modules use this module to find the environments that get a kernel.
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
    """root: folder of JupyterLab. programs: texts of programs in the root folder, by name.
    environments: paths by name.
    """

    root: str
    users_root: str
    programs: Mapping[str, str] = field(default_factory=dict)
    environments: Mapping[str, str] = field(default_factory=dict)
    present: bool = True


@dataclass(frozen=True)
class Python:
    """The Python interpreter of an environment.

    version: such as "3.12"; "" if it cannot run. ipykernel: whether ipykernel is installed.
    """

    version: str = ""
    ipykernel: bool = False


@dataclass(frozen=True)
class WorkbenchState:
    """texts: texts of Muster's files and of all kernels, by path. link: target of the link that starts the unit.
    pythons: Python interpreters of the environments, by name. own: Python version of JupyterLab. built: names of
    Muster's files in the root folder, for the removal. running: users with a running notebook.
    """

    texts: Mapping[str, str] = field(default_factory=dict)
    link: str = ""
    pythons: Mapping[str, Python] = field(default_factory=dict)
    own: str = ""
    built: Sequence[str] = ()
    running: Sequence[str] = ()


@dataclass
class WorkbenchPlan:
    """files: new contents, or None to remove a file. stop: users whose notebooks are stopped first. remove: names to
    remove from the root folder.
    """

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
            plan.differences.append(f"{path} is no longer needed")
    if seen.link != files.WANTED_LEADS_TO:
        plan.link = files.WANTED_LEADS_TO
        plan.differences.append(f"{files.WANTED} points to {seen.link or 'nothing'}")
    return plan


def _unusable(name: str, seen: WorkbenchState) -> str:
    """Return why an environment cannot have a kernel; "" if it can, or if JupyterLab is not installed yet."""
    python = seen.pythons.get(name, Python())
    if not python.version:
        return f"environment {name} gets no kernel, because its Python does not run"
    if python.ipykernel or python.version == seen.own or not seen.own:
        return ""
    return (
        f"environment {name} gets no kernel: its Python {python.version} has no ipykernel, and JupyterLab uses Python"
        f" {seen.own}; install ipykernel in it"
    )


def _absent(seen: WorkbenchState) -> WorkbenchPlan:
    plan = WorkbenchPlan(stop=seen.running, remove=seen.built)
    plan.files = dict.fromkeys(seen.texts)
    plan.link = "" if seen.link else None
    plan.differences = [f"the notebook of {name} is running" for name in seen.running]
    plan.differences += [f"{path} exists" for path in (*seen.texts, *([files.WANTED] if seen.link else []))]
    plan.differences += [f"{name} of JupyterLab exists" for name in seen.built]
    return plan


def environments(cluster: Mapping[str, Any]) -> dict[str, str]:
    """Return the stable paths of environments, by name. cluster: the node's variables of the role cluster."""
    return {place.name: place.path for place in places(cluster)}
