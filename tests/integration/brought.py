"""accelerate on nodes of the sandbox, beside their environment and not in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from machines import Machine

VERSION = "1.15.0"
FOLDER = "/opt/muster-test-accelerate"
TORCHRUN = f"{FOLDER}/bin/torchrun"
CURRENT = "/opt/muster/pytorch/current"


def install(machine: Machine) -> None:
    """Make a copy of the node's environment, with accelerate in it; one that is there already stays."""
    if machine.inside("test", "-x", f"{FOLDER}/bin/accelerate", check=False).returncode == 0:
        return
    machine.inside("rm", "--recursive", "--force", FOLDER)
    # A virtual environment finds its packages by where its python lies.
    machine.inside("sh", "-c", f"cp --archive $(readlink --canonicalize {CURRENT}) {FOLDER}")
    pip = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    machine.inside(f"{FOLDER}/bin/python", *pip, f"accelerate=={VERSION}")
