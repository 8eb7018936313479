"""Nodes that install a 20 MB stub of torch from a package index that counts the bytes it sends."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from package_index import PackageIndex
from standin_wheels import relabelled_torch, torch_wheel, wheel

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from machines import Machine, Play, Result

ROOT = "/opt/muster-test-wheels"
PIP_CONF = "~/.config/pip/pip.conf"
TRUST = f"mkdir -p $(dirname {PIP_CONF}) && printf '[global]\\ntrusted-host = {{}}\\n' >{PIP_CONF}"
WEIGHT = 20_000_000
SHARED = 29599  # port for wheels between nodes: the last of firewall_launch_ports
LOOK = "Check PyTorch"
FETCH = "Download the wheels on one node for all nodes"
TASK = "Provide PyTorch (half a minute for a new environment, some minutes with CUDA)"


class CountedCluster:
    """Nodes that install PyTorch from a byte-counting index. lock: next to their inventory."""

    def __init__(self, play: Play, machines: list[Machine], index: PackageIndex, folder: Path) -> None:
        self.play = play
        self.machines = machines
        self.index = index
        self.lock = folder / "pytorch.lock.txt"

    def provide(self, *names: str, version: str = "2.0.0", **requested: Any) -> tuple[Result, int]:
        """Run the step on the named nodes, or on all nodes. Return the result and the bytes that the index sent."""
        self.index.take_count()
        limit = ",".join(names or [machine.name for machine in self.machines])
        extravars = self.extravars(version, **requested)
        result = self.play("playbooks/pytorch.yml", extravars=extravars, limit=limit)
        return result, self.index.take_count()

    def extravars(self, version: str = "2.0.0", **requested: Any) -> dict[str, Any]:
        return {
            "cluster_torch_version": version,
            "pytorch_root": ROOT,
            "pytorch_index_url": self.index.url,
            "pytorch_find_links": [],
            "pytorch_extra_ca": "",
            "pytorch_packages": [],
            "pytorch_lock": str(self.lock),
            **requested,
        }

    def clean(self) -> None:
        for machine in self.machines:
            machine.inside("rm", "-rf", ROOT)

    def sources(self, result: Result) -> dict[str, list[str]]:
        """Return the sources of the wheels for each node that built an environment."""
        return {name: done["wheels"]["came_from"] for name, done in result.results(TASK).items() if "wheels" in done}

    def torch(self, machine: Machine) -> str:
        """Import torch on the node, and return its version and the version of its dependency."""
        command = f"{ROOT}/current/bin/python -c 'import torch, tiny; print(torch.__version__, tiny.VERSION)'"
        return machine.ssh(command).stdout.strip()

    def wheelhouses(self) -> dict[str, list[str]]:
        """Return the wheels that each node keeps for other nodes."""
        find = f"cd {ROOT} && find wheels -type f 2>/dev/null || true"
        kept = {machine.name: machine.inside("sh", "-c", find).stdout.split() for machine in self.machines}
        return {name: files for name, files in kept.items() if files}


def make_tiny(folder: Path, version: str) -> None:
    wheel(folder, "tiny", version, {"tiny.py": f"VERSION = {version!r}\n"})


def relabelled_index(folder: Path, machine: Machine, release: str) -> PackageIndex:
    """Return an index with `tiny` and this release of torch, which is the real torch of the machine's environment."""
    wheels = folder / "index"
    wheels.mkdir()
    make_tiny(wheels, "1.0")
    packages = "readlink -f /opt/muster/pytorch/current/lib/python3*/site-packages"
    relabelled_torch(wheels, f"{release}+cpu", machine.inside("sh", "-c", packages).stdout.strip())
    return PackageIndex(wheels, gateway_of(machine))


def gateway_of(machine: Machine) -> str:
    """Return this machine's address in the sandbox's network."""
    return f"{machine.address.rpartition('.')[0]}.1"


@contextlib.contextmanager
def counted_cluster(play: Play, machines: list[Machine], folder: Path) -> Iterator[CountedCluster]:
    """Let these nodes install from a byte-counting index. Remove the index and the environments afterwards."""
    wheels = folder / "index"
    wheels.mkdir()
    make_tiny(wheels, "1.0")
    for version in ("2.0.0+cpu", "2.1.0+cpu"):
        torch_wheel(wheels, version, requires="tiny>=1.0", weight=WEIGHT)
    # This machine's address in the sandbox's network.
    gateway = machines[0].address.rpartition(".")[0] + ".1"
    trust = f"mkdir -p $(dirname {PIP_CONF}) && printf '[global]\\ntrusted-host = {gateway}\\n' >{PIP_CONF}"
    for machine in machines:
        machine.inside("sh", "-ec", trust)
    index = PackageIndex(wheels, gateway)
    index.start()
    cluster = CountedCluster(play, machines, index, folder)
    cluster.clean()
    yield cluster
    index.stop()
    cluster.clean()
    for machine in machines:
        machine.inside("sh", "-c", f"rm {PIP_CONF}")
