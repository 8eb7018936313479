"""The printed network plan of DGX Sparks, and the names of the machine that cluster_gpu_model accepts."""

from __future__ import annotations

import pytest
import yaml

from cases import document_of
from muster.gpu_stack import spark_cable
from muster.gpu_stack.table import VersionsTable
from paths import ROOT

VERSIONS = VersionsTable(document_of(ROOT / "roles/gpu_stack/files/versions.yml"))


@pytest.mark.parametrize("model", ["DGX Spark", "NVIDIA DGX Spark", "spark", "GB10", "NVIDIA GB10"])
def test_names_of_the_machine_are_accepted_as_model(model: str) -> None:
    chip = VERSIONS.chip_of_model(model)
    assert chip is not None
    assert (chip.capability, chip.grace) == ("12.1", True)
    assert spark_cable.has_cable((), model)


def test_cable_follows_the_bus_after_an_inspection() -> None:
    assert spark_cable.has_cable(("10de:2e12",), "")
    assert not spark_cable.has_cable(("10de:2330",), "DGX Spark")
    assert not spark_cable.has_cable((), "H100")


def netplans(text: str) -> list[dict[str, dict[str, object]]]:
    """Return the netplan files in the plan, read as YAML."""
    files, lines = [], text.splitlines()
    for at, line in enumerate(lines):
        if line == "    network:":
            files.append(yaml.safe_load("\n".join(lines[at : at + 5]))["network"]["ethernets"])
    return files


def test_both_halves_get_addresses_in_different_networks() -> None:
    text = spark_cable.plan({"spark1": ("enp1s0f1np1", "169.254.10.1"), "spark2": ("enP2p1s0f1np1", "192.168.255.2")})
    assert netplans(text) == [
        {
            "enp1s0f1np1": {"addresses": ["169.254.10.1/24"], "dhcp4": False, "mtu": 9000},
            "enP2p1s0f1np1": {"addresses": ["169.254.11.1/24"], "dhcp4": False, "mtu": 9000},
        },
        {
            "enP2p1s0f1np1": {"addresses": ["192.168.255.2/24"], "dhcp4": False, "mtu": 9000},
            "enp1s0f1np1": {"addresses": ["192.168.254.2/24"], "dhcp4": False, "mtu": 9000},
        },
    ]
    assert "NCCL_IB_HCA=rocep1s0f1,roceP2p1s0f1, NCCL_SOCKET_IFNAME=enP2p1s0f1np1 " in text
    assert "cluster_address" not in text
    assert "not yet seen on hardware" in text


def test_machines_without_an_interface_of_the_cable_get_the_addresses_of_nvidias_example() -> None:
    text = spark_cable.plan({"spark1": ("", "192.168.1.11"), "spark2": ("enp1s0f1np1", "spark2.lab")})
    assert [list(each.values())[1]["addresses"] for each in netplans(text)] == [
        ["192.168.101.10/24"],
        ["192.168.101.11/24"],
    ]
    assert (
        "  spark2: set cluster_address: 192.168.100.11, and cluster_interface: enp1s0f1np1 (or the one that is up)"
        in text
    )
