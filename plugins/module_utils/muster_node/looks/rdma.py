"""RDMA adapters in sysfs: ports, GIDs, partitions, firmware and counters."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..tools.run import names, read

if TYPE_CHECKING:
    from collections.abc import Mapping

DEVICES = "/sys/class/infiniband"
# Enough for the GIDs of several addresses; a port can have 256.
MOST_GIDS = 16
EMPTY = "0000:0000:0000:0000:0000:0000:0000:0000"
# A port's partition table has 128 entries on most adapters; unused entries are 0x0000.
MOST_PKEYS = 128
NO_PKEY = "0x0000"
PORT = ("state", "phys_state", "rate", "link_layer", "lid", "sm_lid")


def look() -> dict[str, Any]:
    return {
        "devices": {name: device(name) for name in names(DEVICES)},
        # Ranks need these device files.
        "uverbs": [name for name in names("/dev/infiniband") if name.startswith("uverbs")],
    }


def device(name: str) -> dict[str, Any]:
    folder = f"{DEVICES}/{name}"
    try:
        slot = Path(f"{folder}/device").readlink().name
    except OSError:
        slot = ""
    return {
        "firmware": read(f"{folder}/fw_ver").text.strip(),
        "board": read(f"{folder}/board_id").text.strip(),
        "kind": read(f"{folder}/hca_type").text.strip(),
        "slot": slot,
        "ports": {number: port(f"{folder}/ports/{number}") for number in names(f"{folder}/ports")},
    }


def port(folder: str) -> dict[str, Any]:
    gids = {}
    for index in sorted(filter(str.isdigit, names(f"{folder}/gids")), key=int)[:MOST_GIDS]:
        gid = read(f"{folder}/gids/{index}").text.strip()
        if gid and gid != EMPTY:
            kind = read(f"{folder}/gid_attrs/types/{index}").text.strip()
            gids[index] = {
                "gid": gid,
                "type": kind,
                "netdev": read(f"{folder}/gid_attrs/ndevs/{index}").text.strip(),
            }
    return {
        **{key: read(f"{folder}/{key}").text.strip() for key in PORT},
        "gids": gids,
        "pkeys": pkeys(folder),
        "counters": counters(folder),
    }


def pkeys(folder: str) -> dict[str, str]:
    """Return the port's partition keys by index. A RoCE port has one partition key, which has no meaning."""
    listed = sorted(filter(str.isdigit, names(f"{folder}/pkeys")), key=int)[:MOST_PKEYS]
    found = {index: read(f"{folder}/pkeys/{index}").text.strip() for index in listed}
    return {index: pkey for index, pkey in found.items() if pkey and pkey != NO_PKEY}


def counters(folder: str) -> dict[str, int]:
    found = {}
    for part in ("counters", "hw_counters"):
        for name in names(f"{folder}/{part}"):
            value = read(f"{folder}/{part}/{name}").text.strip()
            if value.isdigit():
                found[name] = int(value)
    return found


def again(seen: Mapping[str, Any]) -> dict[str, dict[str, int]]:
    """Read the counters a second time. Return them by "device/port"."""
    return {
        f"{name}/{number}": counters(f"{DEVICES}/{name}/ports/{number}")
        for name, device in seen["devices"].items()
        for number in device["ports"]
    }
