"""Inspect, apply and remove the notebook setup of a node."""

from __future__ import annotations

import os
import pwd
import shutil
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ansible.module_utils.muster.pytorch.lock import is_digest
from ansible.module_utils.muster.pytorch.request import is_environment
from ansible.module_utils.muster.verdict.commands import playbook
from ansible.module_utils.muster.verdict.foreign import quote
from ansible.module_utils.muster.workbench import files as domain
from ansible.module_utils.muster.workbench.files import is_kernel
from ansible.module_utils.muster.workbench.plan import Python, WorkbenchRequest, WorkbenchState, make_plan

from ..tools import files, trust
from ..tools.result import RefusedError, diff, refuse
from ..tools.run import names, run
from . import notebook

if TYPE_CHECKING:
    from ansible.module_utils.muster.workbench.plan import WorkbenchPlan

FIX = f"To change it, run {playbook('site.yml', tags='workbench', workbench_mode='manage')}"
ASK = "import sys, importlib.util as u; print('%d.%d' % sys.version_info[:2], u.find_spec('ipykernel') is not None)"
PYTHON_SECONDS = 20.0
MOST_ANSWER = 1000  # bytes


def request_of(params: dict[str, Any]) -> WorkbenchRequest:
    given = {key: params[key] for key in ("root", "users_root", "programs", "environments")}
    refuse([f"{name!r} is not a valid kernel name" for name in params["environments"] if not is_kernel(name)])
    return WorkbenchRequest(**given, present=params["state"] == "present")


def provide(params: dict[str, Any], *, check: bool) -> dict[str, Any]:
    """Apply the changes, unless in check mode. params: options of library/workbench.py."""
    request = request_of(params)
    foreign = trust.foreign_writer(request.root)
    if foreign:
        raise RefusedError(f"{request.root} is not safe to use: {foreign}", "Set workbench_root to a folder of root")
    plan = make_plan(request, observe(request))
    refuse((), plan.differences if params["mode"] == "verify" else (), FIX)
    shown = [diff(path, files.text(path) or "", text or "") for path, text in plan.files.items()]
    if plan.needed and not check:
        act(plan, request)
    links = [domain.WANTED] if plan.link is not None else []
    changes = {"file": [*links, *(f"{request.root}/{name}" for name in plan.remove)]}
    said = {"changed": plan.needed, "differences": plan.differences, "changes": changes}
    return {**said, "diff": shown, "notes": plan.notes}


def act(plan: WorkbenchPlan, request: WorkbenchRequest) -> None:
    for name in plan.stop:
        said = notebook.as_owner(pwd.getpwnam(name), "stop", {"users_root": request.users_root})
        if said.get("error"):
            raise RefusedError(
                f"the notebook of {name} could not be stopped. Its systemd reported: {quote(str(said['error']))}"
            )
    if request.present:
        trust.make_folder(request.root)
    for path, text in plan.files.items():
        if text is not None:
            files.replace(path, text.encode(), mode=0o644, parents=True)
            continue
        files.remove(path)
        if path.startswith(f"{domain.kernels_folder(request.root)}/"):
            remove_empty(Path(path).parent)
    if plan.link:
        trust.make_folder(str(Path(domain.WANTED).parent))
        files.link(domain.WANTED, plan.link)
    elif plan.link is not None:
        files.remove(domain.WANTED)
        remove_empty(Path(domain.WANTED).parent)
    remove(request.root, plan)


def remove(root: str, plan: WorkbenchPlan) -> None:
    trust.refuse_foreign(root)
    for name in plan.remove:
        path = Path(root, name)
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
    if not plan.remove:
        return
    for name in ("share/jupyter/kernels", "share/jupyter", "share", "envs", "wheels", "."):
        remove_empty(Path(root, name))


def remove_empty(path: Path) -> None:
    with suppress(OSError):
        path.resolve().rmdir()


def observe(request: WorkbenchRequest) -> WorkbenchState:
    kernels = [domain.kernel_path(request.root, name) for name in names(domain.kernels_folder(request.root))]
    paths = [*(f"{request.root}/{name}" for name in request.programs), domain.UNIT, *kernels]
    texts = {path: text for path in paths if (text := files.text(path)) is not None}
    return WorkbenchState(
        texts=texts,
        link=link(domain.WANTED),
        pythons={} if not request.present else {name: python(path) for name, path in request.environments.items()},
        own=python(f"{request.root}/current").version if request.present else "",
        built=() if request.present else built(request.root),
        running=() if request.present else running(request.users_root),
    )


def link(path: str) -> str:
    with suppress(OSError):
        return str(Path(path).readlink())
    return ""


def python(environment: str) -> Python:
    """Inspect an environment's Python as nobody, because root must not run programs of other users."""
    argv = (f"{environment}/bin/python", "-I", "-c", ASK)
    done = run(*argv, seconds=PYTHON_SECONDS, user=pwd.getpwnam("nobody"), most=MOST_ANSWER)
    words = done.text.split()
    return Python(words[0], words[1] == "True") if done.code == 0 and len(words) == 2 else Python()


def built(root: str) -> list[str]:
    """Return the files in JupyterLab's folder that the role pytorch created."""
    found = [f"envs/{name}" for name in names(f"{root}/envs") if is_environment(name)]
    found += [f"wheels/{name}" for name in names(f"{root}/wheels") if is_digest(name)]
    return found + [name for name in ("current",) if os.path.lexists(f"{root}/{name}")]


def running(users_root: str) -> list[str]:
    """Return users with a running notebook, which is detected by the runtime folder of the notebook's unit."""
    found = []
    for name in names(users_root):
        with suppress(KeyError):
            if Path(f"/run/user/{pwd.getpwnam(name).pw_uid}/muster-notebook").is_dir():
                found.append(name)
    return found
