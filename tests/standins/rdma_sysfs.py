"""Write simulated sysfs files of RDMA adapters (/sys/class/infiniband) in any folder.

The layout follows the kernel's Documentation/ABI/stable/sysfs-class-infiniband. The values are those of a ConnectX-7,
but were not compared with a real adapter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

NO_GID = "0000:0000:0000:0000:0000:0000:0000:0000"
INFINIBAND = {
    "link_layer": "InfiniBand",
    "rate": "400 Gb/sec (4X NDR)",
    "lid": "0x5",
    "sm_lid": "0x1",
    "gids/0": "fe80:0000:0000:0000:a088:c203:0012:3456",
    "gid_attrs/types/0": "IB/RoCE v1",
    "pkeys/0": "0xffff",
    "pkeys/1": "0x0000",
}
ROCE = {
    "link_layer": "Ethernet",
    "rate": "200 Gb/sec (4X HDR)",
    "lid": "0x0",
    "sm_lid": "0x0",
    "gids/0": "fe80:0000:0000:0000:a288:c2ff:fe12:3456",
    "gids/1": NO_GID,
    "gids/3": "0000:0000:0000:0000:0000:ffff:0a00:0001",
    "gid_attrs/types/0": "RoCE v2",
    "gid_attrs/types/3": "RoCE v2",
    "gid_attrs/ndevs/0": "ens2np0",
    "gid_attrs/ndevs/3": "ens2np0",
    "pkeys/0": "0xffff",
}


def write(folder: Path, adapters: Mapping[str, Mapping[str, str]], driver: str = "mlx5_core") -> None:
    """Write the files of these adapters. Each adapter has one port. folder: used instead of /sys/class/infiniband."""
    for name, port in adapters.items():
        own = folder / name
        files = {"fw_ver": "28.43.2026", "board_id": "MT_0000000838", "hca_type": "MT4129"}
        files |= {f"ports/1/{key}": value for key, value in {"state": "4: ACTIVE", "phys_state": "5: LinkUp"}.items()}
        files |= {f"ports/1/{key}": value for key, value in port.items()}
        files["ports/1/counters/symbol_error"] = "0"
        for path, value in files.items():
            (own / path).parent.mkdir(parents=True, exist_ok=True)
            (own / path).write_text(f"{value}\n")
        (folder.parent / "drivers" / driver).mkdir(parents=True, exist_ok=True)
        (own / "device").mkdir()
        (own / "device/driver").symlink_to(folder.parent / "drivers" / driver)
