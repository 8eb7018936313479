"""JupyterLab of whoever runs it. Written by Muster (role workbench), which overwrites changes in here.

Loopback is open to every account of a node, so nothing here listens there: JupyterLab, TensorBoard and the kernels have
sockets in the unit's own folder in /run/user, which only its owner may enter. The token is behind that.
"""

from __future__ import annotations

import os
from pathlib import Path

from jupyterlab.labapp import main

HERE = Path(__file__).resolve().parent


def tensorboard(runtime: str, folder: str) -> dict[str, object]:
    """TensorBoard has no log-in: JupyterLab's own stands before it, at /tensorboard/, and starts it when asked."""
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
        # The token is the one way in, and nothing is written into a home.
        "PasswordIdentityProvider.allow_password_change": False,
        "KernelManager.transport": "ipc",
        "ServerProxy.servers": {"tensorboard": tensorboard(runtime, folder)},
        # The environment is root's, and the same on all nodes.
        "LabApp.extension_manager": "readonly",
        # Nothing is asked of the internet.
        "LabApp.news_url": None,
        "LabApp.check_for_updates_class": "jupyterlab.handlers.announcements.NeverCheckForUpdate",
    }
    return [f"--{name}={value}" for name, value in settings.items()]


if __name__ == "__main__":
    main(arguments(os.environ["RUNTIME_DIRECTORY"], os.environ["HOME"], os.environ["TENSORBOARD_LOGDIR"]))
