"""Configure the JupyterLab of a user. Written by Muster (role workbench), which overwrites local changes.

Loopback ports are open to all accounts of a node and are therefore not used: JupyterLab, TensorBoard and the kernels
listen on sockets in the unit's folder in /run/user, which only the owner can access. The token is a second protection.
"""

from __future__ import annotations

import os
from pathlib import Path

from jupyterlab.labapp import main

HERE = Path(__file__).resolve().parent


def tensorboard(runtime: str, folder: str) -> dict[str, object]:
    """Serve TensorBoard at /tensorboard/ behind the login of JupyterLab, because TensorBoard has no login."""
    return {
        "command": [str(HERE / "current/bin/python"), str(HERE / "tensorboard_socket.py"), "{unix_socket}", folder],
        "unix_socket": f"{runtime}/tensorboard",
        "environment": {"TMPDIR": runtime},
        "timeout": 60,
        "launcher_entry": {"title": "TensorBoard"},
    }


def arguments(runtime: str, home: str, folder: str) -> list[str]:
    settings = {
        "ServerApp.sock": f"{runtime}/socket",
        "ServerApp.sock_mode": "0600",
        "ServerApp.open_browser": False,
        "ServerApp.root_dir": home,
        # Only the token gives access, and nothing is written to the home directory.
        "PasswordIdentityProvider.allow_password_change": False,
        "KernelManager.transport": "ipc",
        "ServerProxy.servers": {"tensorboard": tensorboard(runtime, folder)},
        # The environment is owned by root and identical on all nodes.
        "LabApp.extension_manager": "readonly",
        # No requests to the internet.
        "LabApp.news_url": None,
        "LabApp.check_for_updates_class": "jupyterlab.handlers.announcements.NeverCheckForUpdate",
    }
    return [f"--{name}={value}" for name, value in settings.items()]


if __name__ == "__main__":
    main(arguments(os.environ["RUNTIME_DIRECTORY"], os.environ["HOME"], os.environ["TENSORBOARD_LOGDIR"]))
