"""The acceptance test's detection of a node's adapters and links."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gpu_looks import text_of
from payload_parts import part
from recordings import RECORDED

if TYPE_CHECKING:
    from pathlib import Path

hardware = part("hardware")


@pytest.mark.parametrize(
    ("name", "wanted"),
    [("580-h100-healthy", True), ("595-b200-healthy", True), ("470-v100-process", True)],
)
def test_nvlinks_are_detected_in_a_recorded_topology_matrix(name: str, wanted: bool | None) -> None:
    assert hardware.nvlinks(text_of(RECORDED / name, "topology")) is wanted


@pytest.mark.parametrize(
    ("shown", "wanted"),
    [
        ("", None),
        ("\tGPU0\tCPU Affinity\nGPU0\t X \t0-47\n", None),
        ("\tGPU0\tGPU1\tNIC0\nGPU0\t X \tNV4\tPIX\nGPU1\tNV4\t X \tSYS\nNIC0\tPIX\tSYS\t X \n", True),
        ("\tGPU0\tGPU1\nGPU0\t X \tPHB\nGPU1\tPHB\t X \n", False),
        ("\tGPU0\tGPU1\nGPU0\t X \tNV4\n", None),
    ],
)
def test_nvlinks_are_detected_in_a_topology_matrix(shown: str, wanted: bool | None) -> None:
    assert hardware.nvlinks(shown) is wanted


def test_adapters_are_listed_with_their_port_state(tmp_path: Path) -> None:
    for device, state in (("mlx5_1", "1: DOWN"), ("mlx5_0", "4: ACTIVE")):
        port = tmp_path / device / "ports/1"
        port.mkdir(parents=True)
        (port / "state").write_text(f"{state}\n")
        (port / "link_layer").write_text("InfiniBand\n")
    assert hardware.adapters(tmp_path) == [
        {"name": "mlx5_0:1", "layer": "InfiniBand", "rate": "", "active": True},
        {"name": "mlx5_1:1", "layer": "InfiniBand", "rate": "", "active": False},
    ]
    assert hardware.adapters(tmp_path / "nothing") == []
