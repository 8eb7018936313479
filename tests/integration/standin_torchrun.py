"""Launches without PyTorch: a stub of torchrun on the nodes, for tests that do not need real ranks."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

from paths import ROOT

if TYPE_CHECKING:
    from machines import Machine, Play

TORCHRUN = "/usr/local/lib/muster-tests/torchrun"
SOURCE = ROOT / "tests/standins/programs/torchrun.py"


def provide(play: Play, *machines: Machine) -> None:
    """Create the training user, and install the stub instead of an environment. Launches must set cluster_torchrun."""
    result = play("site.yml", tags="baseline")
    assert result.rc == 0, result.stdout
    for machine in machines:
        put(machine)


def put(machine: Machine) -> None:
    machine.inside("mkdir", "--parents", TORCHRUN.rpartition("/")[0])
    subprocess.run(["podman", "cp", str(SOURCE), f"{machine.container}:{TORCHRUN}"], check=True)
    machine.inside("chmod", "755", TORCHRUN)
