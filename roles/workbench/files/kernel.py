"""A kernel in an environment that need not have ipykernel. Written by Muster (role workbench).

Run by the environment's own Python. What the environment has comes first; what a kernel needs and it lacks, such as
ipykernel itself, comes from JupyterLab's environment, whose Python has the same version.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent


def main() -> None:
    del sys.path[0]  # this folder
    tools = (HERE / "current").resolve() / "lib" / "python{}.{}".format(*sys.version_info[:2]) / "site-packages"
    sys.path.append(str(tools))
    importlib.import_module("ipykernel.kernelapp").launch_new_instance()


if __name__ == "__main__":
    main()
