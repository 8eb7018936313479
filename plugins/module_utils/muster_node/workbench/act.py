"""Having a node ready for notebooks, and taking that off again."""

from __future__ import annotations

import pwd
import shutil
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from ansible.module_utils.muster.verdict.foreign import quote
from ansible.module_utils.muster.workbench import files as domain

from ..tools import files, trust
from ..tools.result import TaskRefusedError
from . import notebook

if TYPE_CHECKING:
    from ansible.module_utils.muster.workbench.plan import WorkbenchPlan, WorkbenchRequest


def act(plan: WorkbenchPlan, request: WorkbenchRequest) -> None:
    for name in plan.stop:
        said = notebook.as_owner(pwd.getpwnam(name), "stop", {"users_root": request.users_root})
        if said.get("error"):
            raise TaskRefusedError(
                f"the notebook of {name} was not ended. Its account reports: {quote(str(said['error']))}"
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
