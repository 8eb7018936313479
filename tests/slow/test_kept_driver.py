"""A simulated GPU node has a driver that Muster did not install. The order of the tests matters."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from gpu_cluster import boot, bring_up, loaded, versions
from paths import SANDBOXES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpu_cluster import GpuCluster
    from machines import Result

pytestmark = pytest.mark.slow

THEIRS = {"gpu_stack_source": "ubuntu", "gpu_stack_build": "dkms"}
REPLACE = {"nvidia_driver_replace": True}
HELD = "held-by-a-test.service"
THEIRS_VERSION, OURS_VERSION = "580.126.20", "580.178.04"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GpuCluster]:
    """Yield two nodes. node1 has Ubuntu's driver, as installed by `ubuntu-drivers install`; node2 has no driver."""
    made = bring_up(tmp_path_factory.mktemp("kept_driver"))
    result = made.play(extravars=THEIRS, limit="node1")
    assert result.rc == 0, result.stdout
    assert loaded(made.nodes[0]) == THEIRS_VERSION
    yield made
    made.play("playbooks/sandbox_down.yml")


def driver_report(result: Result) -> str:
    """Return the report about drivers at the start of the run."""
    return str(result.results("Resolve the GPU stack")["node1"]["msg"])


def output_of(result: Result) -> str:
    """Return the output with line breaks removed."""
    return " ".join(result.stdout.replace("''", "'").split())


def test_existing_driver_is_kept_while_another_node_gets_musters_driver(cluster: GpuCluster) -> None:
    first, second = cluster.nodes
    before = versions(first), boot(first)
    checked = cluster.play(check=True)
    assert checked.rc == 0, checked.stdout
    said = "580.126.20 works and is kept; if nvidia_driver_replace is true, it is replaced by 580 from nvidia"
    assert said in driver_report(checked)
    fresh = "no driver is installed; 580 from nvidia will be installed, which requires a reboot"
    assert fresh in driver_report(checked)

    result = cluster.play()
    assert result.rc == 0, result.stdout
    assert (versions(first), boot(first)) == before
    assert loaded(first) == THEIRS_VERSION
    assert loaded(second) == OURS_VERSION
    assert cluster.play().changed == []


def test_existing_driver_is_replaced_on_request(cluster: GpuCluster) -> None:
    first = cluster.nodes[0]
    before = boot(first)
    result = cluster.play(extravars=REPLACE)
    assert result.rc == 0, result.stdout
    said = "580.126.20 works, but will be replaced by 580 from nvidia, which requires a reboot, because"
    assert said in driver_report(result)
    assert loaded(first) == OURS_VERSION
    assert boot(first) != before
    assert not [name for name in versions(first) if "-server" in name]
    # A second run does not replace the driver again.
    assert cluster.play(extravars=REPLACE).changed == []


def test_driver_is_removed_from_a_retired_node(cluster: GpuCluster) -> None:
    second = cluster.nodes[1]
    inventory = cluster.folder / "leaving"  # the inventory of the sandbox stays unchanged
    shutil.copytree(SANDBOXES, inventory)
    # Only the GPU stack was installed, so the other node has nothing to forget.
    off = dict.fromkeys(("cluster_hosts_mode", "ssh_mesh_mode", "firewall_mode"), "off")
    wiped = {"node": "node2", "wipe": True, "wipe_driver": True, **off}
    before = versions(second)
    second.inside("systemd-run", f"--unit={HELD}", "sh", "-c", "exec sleep infinity </dev/nvidia0")
    try:
        refused = cluster.play("playbooks/retire.yml", inventory=inventory / "hosts.yml", extravars=wiped)
    finally:
        second.inside("systemctl", "stop", HELD)
    assert refused.rc != 0
    assert "has /dev/nvidia0 open: the node is in use, so nothing is removed" in output_of(refused)
    assert versions(second) == before
    result = cluster.play("playbooks/retire.yml", inventory=inventory / "hosts.yml", extravars=wiped)
    assert result.rc == 0, result.stdout
    said = result.results("Remove the driver")["node2"]["msg"]
    assert "the driver module stays loaded until the next boot: sudo systemctl reboot" in said
    assert not [name for name in versions(second) if not name.startswith(("nvidia-container", "libnvidia-container"))]
    assert second.inside("ls", "/etc/modprobe.d/muster-nvidia.conf", check=False).returncode
