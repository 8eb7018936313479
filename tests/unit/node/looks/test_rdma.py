"""Probes of RDMA adapters on a simulated sysfs (tests/standins/rdma_sysfs.py)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import rdma_sysfs
from muster_node.looks import rdma, roce, verbs
from muster_node.tools.run import CommandResult

if TYPE_CHECKING:
    from pathlib import Path

LIBRARY = "\tlibibverbs.so.1 (libc6,x86-64) => {}\n"


@pytest.fixture
def sysfs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Simulate /sys/class of a node with one InfiniBand and one RoCE adapter."""
    rdma_sysfs.write(tmp_path / "infiniband", {"mlx5_0": rdma_sysfs.INFINIBAND, "mlx5_1": rdma_sysfs.ROCE})
    (tmp_path / "net/ens2np0/ecn/roce_np/enable").mkdir(parents=True)
    (tmp_path / "net/ens2np0/ecn/roce_np/enable/3").write_text("1\n")
    (tmp_path / "net/ens2np0/mtu").write_text("4200\n")
    for module in (rdma, roce, verbs):
        monkeypatch.setattr(module, "DEVICES", str(tmp_path / "infiniband"))
    monkeypatch.setattr(roce, "NET", str(tmp_path / "net"))
    return tmp_path


def test_port_is_reported_with_gids_partitions_and_subnet_manager(sysfs: Path) -> None:
    seen = rdma.look()["devices"]
    port = seen["mlx5_0"]["ports"]["1"]
    assert (port["pkeys"], port["sm_lid"], port["state"]) == ({"0": "0xffff"}, "0x1", "4: ACTIVE")
    assert list(seen["mlx5_1"]["ports"]["1"]["gids"]) == ["0", "3"], "an index without a GID is omitted"


def test_roce_queries_only_its_own_interface(sysfs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def answers(*words: str) -> CommandResult:
        asked.append(words)
        return CommandResult("", f"{words[0]} is not there", missing=True)

    monkeypatch.setattr(roce, "run", answers)
    seen = roce.look()
    assert list(seen) == ["mlx5_1:1"]
    port = seen["mlx5_1:1"]
    assert (port["netdev"], port["mtu"], port["ecn"]) == ("ens2np0", "4200", {"roce_np": "1", "roce_rp": ""})
    assert port["why"]["dcb"] == "dcb is not there"
    assert all(words[-1] == "ens2np0" for words in asked)


def test_verbs_library_and_providers_are_found(sysfs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lib = sysfs / "lib"
    (lib / "libibverbs").mkdir(parents=True)
    (lib / "libibverbs/libmlx5-rdmav34.so").touch()
    (lib / "libibverbs.so.1.14.50.0").touch()
    (lib / "libibverbs.so.1").symlink_to("libibverbs.so.1.14.50.0")
    monkeypatch.setattr(verbs, "run", lambda *_: CommandResult(LIBRARY.format(lib / "libibverbs.so.1")))
    seen = verbs.look()
    assert (seen["file"], seen["providers"]) == ("libibverbs.so.1.14.50.0", ["libmlx5-rdmav34.so"])
    assert seen["drivers"] == {"mlx5_0": "mlx5_core", "mlx5_1": "mlx5_core"}


def test_no_commands_run_on_a_node_without_rdma_adapters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (roce, verbs):
        monkeypatch.setattr(module, "DEVICES", str(tmp_path / "none"))
        monkeypatch.setattr(module, "run", lambda *_: pytest.fail("no program is run"))
    assert roce.look() == {}
    assert verbs.look()["drivers"] == {}
