"""Two simulated GPU nodes (tests/standins) in a separate sandbox, and the output of their own tools."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gpu_node import make_gpu_node
from machines import find_machine, run_playbook
from paths import ROOT, SANDBOX, SANDBOXES
from served import Served

if TYPE_CHECKING:
    from pathlib import Path

    from machines import Machine, Result

SUFFIX = "-gpu"
FOLDER = SANDBOX.with_name(SANDBOX.name + SUFFIX)
NAMES = ("node1", "node2")


@dataclass(frozen=True)
class GpuCluster:
    """The nodes, and the repositories that provide the GPU stack."""

    nodes: list[Machine]
    served: Served
    folder: Path

    def play(self, playbook: str = "playbooks/gpu_stack.yml", **requested: Any) -> Result:
        return play(self.folder, playbook, **requested)


def play(
    folder: Path, playbook: str, variables: tuple[str, ...] = ("own_sandbox", "cluster"), **requested: Any
) -> Result:
    """Run a playbook in the sandbox of the GPU nodes."""
    files = [f"--extra-vars=@{ROOT}/tests/standins/{name}.yml" for name in variables]
    cmdline = " ".join([*files, requested.pop("cmdline", "")])
    run = folder / str(time.monotonic_ns())
    run.mkdir()
    inventory = requested.pop("inventory", SANDBOXES / "hosts.yml")
    return run_playbook(run, playbook, inventory=inventory, cmdline=cmdline, **requested)


def bring_up(folder: Path) -> GpuCluster:
    """Start the sandbox machines and set them up as simulated GPU nodes, unless they already are."""
    result = play(folder, "playbooks/sandbox_up.yml")
    assert result.rc == 0, result.stdout
    cluster = look_up(folder)
    cluster.served.publish()
    for node in cluster.nodes:
        make_gpu_node(node.container, cluster.served.url, cluster.served.repositories.key.public)
    return cluster


def look_up(folder: Path) -> GpuCluster:
    """Find the existing machines."""
    outsider = find_machine("outsider", SUFFIX)
    served = Served(FOLDER / "standins", outsider.container, outsider.address)
    return GpuCluster([find_machine(name, SUFFIX) for name in NAMES], served, folder)


def boot(machine: Machine) -> str:
    """Return the boot id of a machine."""
    return machine.inside("cat", "/proc/sys/kernel/random/boot_id", check=False).stdout.strip()


def loaded(machine: Machine) -> str:
    return machine.inside("cat", "/sys/module/nvidia/version", check=False).stdout.strip()


def versions(machine: Machine) -> dict[str, str]:
    """Return the versions of the driver packages, or the dpkg status of packages that are not fully installed."""
    show = "--showformat=${db:Status-Status} ${Package} ${Version}\\n"
    text = machine.inside("dpkg-query", "--show", show, "*nvidia*", "*libnvsdm*", check=False).stdout
    found = {}
    for status, name, *version in map(str.split, text.splitlines()):
        if status not in {"not-installed", "config-files"}:
            found[name] = version[0] if status == "installed" else status
    return found
