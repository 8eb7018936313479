"""Launches without PyTorch: a stand-in of torchrun on the nodes, for tests of what goes on around the ranks."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

from paths import ROOT

if TYPE_CHECKING:
    from machines import Machine, Play

TORCHRUN = "/usr/local/lib/muster-tests/torchrun"
SOURCE = ROOT / "tests/standins/programs/torchrun.py"


def provide(play: Play, *machines: Machine) -> None:
    """The nodes have the training user and, in the place of an environment, the stand-in: give cluster_torchrun."""
    result = play("site.yml", tags="baseline")
    assert result.rc == 0, result.stdout
    for machine in machines:
        put(machine)


def put(machine: Machine) -> None:
    machine.inside("mkdir", "--parents", TORCHRUN.rpartition("/")[0])
    subprocess.run(["podman", "cp", str(SOURCE), f"{machine.container}:{TORCHRUN}"], check=True)
    machine.inside("chmod", "755", TORCHRUN)
