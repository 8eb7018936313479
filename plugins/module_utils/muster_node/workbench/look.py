"""What there is on the node for notebooks: looks that change nothing."""

from __future__ import annotations

import os
import pwd
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from ansible.module_utils.muster.pytorch.lock import is_digest
from ansible.module_utils.muster.pytorch.request import is_environment
from ansible.module_utils.muster.workbench import files as domain
from ansible.module_utils.muster.workbench.plan import Python, WorkbenchState

from ..tools import files
from ..tools.run import names, run

if TYPE_CHECKING:
    from ansible.module_utils.muster.workbench.plan import WorkbenchRequest

ASK = "import sys, importlib.util as u; print('%d.%d' % sys.version_info[:2], u.find_spec('ipykernel') is not None)"
PYTHON_SECONDS = 20.0
MOST_ANSWER = 1000  # bytes


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
    """Asked as nobody: what somebody else keeps there is not run by root."""
    argv = (f"{environment}/bin/python", "-I", "-c", ASK)
    done = run(*argv, seconds=PYTHON_SECONDS, user=pwd.getpwnam("nobody"), most=MOST_ANSWER)
    words = done.text.split()
    return Python(words[0], words[1] == "True") if done.code == 0 and len(words) == 2 else Python()


def built(root: str) -> list[str]:
    """What lies in JupyterLab's folder of the role pytorch's making; what it would not name is somebody else's."""
    found = [f"envs/{name}" for name in names(f"{root}/envs") if is_environment(name)]
    found += [f"wheels/{name}" for name in names(f"{root}/wheels") if is_digest(name)]
    return found + [name for name in ("current",) if os.path.lexists(f"{root}/{name}")]


def running(users_root: str) -> list[str]:
    """Accounts with a notebook, by the folder that its unit has as long as it runs."""
    found = []
    for name in names(users_root):
        with suppress(KeyError):
            if Path(f"/run/user/{pwd.getpwnam(name).pw_uid}/muster-notebook").is_dir():
                found.append(name)
    return found
