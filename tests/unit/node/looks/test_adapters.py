"""Probe of RDMA adapters, with a folder instead of sysfs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from muster.inspect.rdma import rdma_facts
from muster_node.looks import adapters
from muster_node.tools.run import CommandResult

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the names of commands that were run. Each prints nothing."""
    programs: list[str] = []

    def run(*argv: str) -> CommandResult:
        programs.append(argv[0])
        return CommandResult("")

    monkeypatch.setattr(adapters, "run", run)
    monkeypatch.setattr(adapters, "BUS", str(tmp_path / "bus"))
    monkeypatch.setattr(adapters, "DEVICES", str(tmp_path / "infiniband"))
    monkeypatch.setattr(adapters, "OFED_INFO", str(tmp_path / "ofed_info"))
    return programs


def put(folder: Path, **texts: str) -> None:
    folder.mkdir(parents=True)
    for name, text in texts.items():
        (folder / name).write_text(text + "\n")


def test_no_commands_run_if_there_are_only_ordinary_adapters(tmp_path: Path, commands: list[str]) -> None:
    put(tmp_path / "bus/0000:01:00.0", **{"class": "0x030200", "vendor": "0x10de", "device": "0x2330"})
    put(tmp_path / "bus/0000:02:00.0", **{"class": "0x020000", "vendor": "0x8086", "device": "0x1572"})
    facts = rdma_facts(adapters.look())
    assert (facts["adapters"], facts["ports"]) == ([], [])
    assert commands == []


def test_rdma_adapters_are_reported_with_ports(tmp_path: Path, commands: list[str]) -> None:
    slot = tmp_path / "bus/0000:1a:00.0"
    put(slot, **{"class": "0x020700", "vendor": "0x15b3", "device": "0x1021"})
    (slot / "driver").symlink_to("../../drivers/mlx5_core")
    put(tmp_path / "bus/0000:02:00.0", **{"class": "0x020000", "vendor": "0x8086", "device": "0x1572"})
    port = tmp_path / "infiniband/mlx5_0/ports/1"
    put(port, state="4: ACTIVE", link_layer="InfiniBand", rate="400 Gb/sec (4X NDR)")
    (tmp_path / "infiniband/mlx5_0/device").symlink_to("../../bus/0000:1a:00.0")
    facts = rdma_facts(adapters.look())
    assert facts["adapters"] == [
        {"slot": "0000:1a:00.0", "id": "15b3:1021", "driver": "mlx5_core", "infiniband": True},
    ]
    assert facts["ports"] == [
        {"device": "mlx5_0", "port": 1, "layer": "InfiniBand", "active": True, "rate": 400, "interfaces": []},
    ]
    assert commands == ["modinfo", "dpkg-query"]
