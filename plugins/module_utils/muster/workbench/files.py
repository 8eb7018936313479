"""The files on a node that are needed for notebooks."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from ..pytorch.environments import DEFAULT

if TYPE_CHECKING:
    from collections.abc import Mapping

UNIT_NAME = "muster-notebook.service"
UNIT = f"/etc/systemd/user/{UNIT_NAME}"
WANTED = f"/etc/systemd/user/default.target.wants/{UNIT_NAME}"
WANTED_LEADS_TO = f"../{UNIT_NAME}"
HEAD = "# Written by Muster (role workbench), which overwrites changes in this file.\n"
# JupyterLab's own environment has a kernel with the same name but without PyTorch. This kernel hides it.
DEFAULT_KERNEL = "python3"
_KERNEL = re.compile(r"[A-Za-z0-9._-]{1,64}")


def unit_text(root: str, users_root: str) -> str:
    """Return the unit for all launch users. It starts with a user manager only if the user has requested this.

    A request in the file at_boot survives reboots; a request in the file wanted does not.
    """
    own = f"{users_root}/%u"
    return (
        HEAD
        + f"""[Unit]
Description=JupyterLab and TensorBoard of %u (Muster)
ConditionPathExists={own}/notebook/token
ConditionPathExists=|{own}/notebook/at_boot
ConditionPathExists=|%t/muster-notebook.wanted

[Service]
Environment=JUPYTER_TOKEN_FILE={own}/notebook/token
Environment=JUPYTER_RUNTIME_DIR=%t/muster-notebook/jupyter
Environment=JUPYTER_PATH={root}/share/jupyter
Environment=TENSORBOARD_LOGDIR={own}
RuntimeDirectory=muster-notebook
RuntimeDirectoryMode=0700
WorkingDirectory=%h
ExecStart={root}/current/bin/python {root}/lab.py
KillMode=control-group
TimeoutStopSec=20
Restart=on-failure
RestartSec=5
"""
    )


def kernel_text(root: str, name: str, path: str) -> str:
    """Return the Jupyter kernel of an environment.

    The debugger is disabled, because it would listen on loopback for all users.
    """
    shown = "PyTorch" if name == DEFAULT else f"PyTorch, {name}"
    argv = ["/bin/sh", f"{root}/kernel.sh", path, "{connection_file}"]
    spec = {"argv": argv, "display_name": shown, "language": "python", "metadata": {"debugger": False}}
    return json.dumps(spec, indent=1) + "\n"


def kernels_folder(root: str) -> str:
    return f"{root}/share/jupyter/kernels"


def kernel_path(root: str, name: str) -> str:
    return f"{kernels_folder(root)}/{DEFAULT_KERNEL if name == DEFAULT else name}/kernel.json"


def is_kernel(name: str) -> bool:
    return _KERNEL.fullmatch(name) is not None


def texts(root: str, users_root: str, programs: Mapping[str, str], environments: Mapping[str, str]) -> dict[str, str]:
    """Return all files by path.

    programs: texts of programs in the root folder, by name. environments: those that can have a kernel, by name.
    """
    found = {f"{root}/{name}": text for name, text in programs.items()}
    found[UNIT] = unit_text(root, users_root)
    for name, path in environments.items():
        found[kernel_path(root, name)] = kernel_text(root, name, path)
    return found
