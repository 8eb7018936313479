"""Network interfaces with addresses and routes, and RDMA adapters with kernel modules and user-space libraries.

Data comes from sysfs and dpkg. rdma.py reads the state and the counters of RDMA ports.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..tools.run import names, read, run

BUS = "/sys/bus/pci/devices"
DEVICES = "/sys/class/infiniband"
# Network controllers of PCI's class list: Ethernet, and InfiniBand.
NETWORK = ("0x0200", "0x0207")
INFINIBAND = "0x020700"
MELLANOX = "0x15b3"
MODULES = (
    *("ib_core", "ib_uverbs", "ib_umad", "rdma_cm", "rdma_ucm", "mlx4_ib", "mlx5_ib", "mlx5_core", "bnxt_re", "irdma"),
    *("efa", "nvidia_peermem"),
)
PACKAGES = (
    *("rdma-core", "ibverbs-*", "libibverbs*", "librdmacm*", "infiniband-diags", "perftest", "doca-*", "mlnx-*"),
    *("ofed-*", "linux-modules-extra-*"),
)
SHOW = "--showformat=${Package} ${Version} ${db:Status-Status}\\n"
OFED_INFO = "/usr/bin/ofed_info"
NET = "/sys/class/net"
PORTS = "/proc/sys/net/ipv4/ip_local"


def look() -> dict[str, Any]:
    devices = names(DEVICES)
    slots = {slot: seen for slot in names(BUS) if (seen := _controller(f"{BUS}/{slot}"))}
    if not devices and not any(seen["class"] == INFINIBAND or seen["vendor"] == MELLANOX for seen in slots.values()):
        # Most machines: no further data is needed.
        return {"slots": {}, "devices": {}, "loaded": {}, "modinfo": "", "packages": "", "ofed_info": "", "kernel": ""}
    running = read("/proc/sys/kernel/osrelease").text.strip()
    return {
        "slots": slots,
        "devices": {name: _device(f"{DEVICES}/{name}") for name in devices},
        # Built-in modules have a folder, too, but only out-of-tree modules have a version.
        "loaded": {
            name: read(f"/sys/module/{name}/version").text.strip() for name in MODULES if _is_there("/sys/module", name)
        },
        # Exits with 1 if a module does not exist, but prints the others.
        "modinfo": run("modinfo", "-k", running, *MODULES).text,
        "packages": run("dpkg-query", "--show", SHOW, *PACKAGES).text,
        "ofed_info": run(OFED_INFO, "-s").text if Path(OFED_INFO).exists() else "",
        "kernel": running,
    }


def _is_there(folder: str, name: str) -> bool:
    return Path(folder, name).is_dir()


def _controller(folder: str) -> dict[str, str] | None:
    kind = read(f"{folder}/class").text.strip()
    if not kind.startswith(NETWORK):
        return None
    return {
        "class": kind,
        "vendor": read(f"{folder}/vendor").text.strip(),
        "device": read(f"{folder}/device").text.strip(),
        "driver": _link(f"{folder}/driver"),
    }


def _device(folder: str) -> dict[str, Any]:
    return {
        "slot": _link(f"{folder}/device"),
        "interfaces": names(f"{folder}/device/net"),
        "firmware": read(f"{folder}/fw_ver").text.strip(),
        "ports": {number: _port(f"{folder}/ports/{number}") for number in names(f"{folder}/ports") if number.isdigit()},
    }


def _port(folder: str) -> dict[str, str]:
    return {key: read(f"{folder}/{key}").text.strip() for key in ("state", "link_layer", "rate")}


def _link(path: str) -> str:
    try:
        return Path(path).readlink().name
    except OSError:
        return ""


def interfaces(peers: list[str]) -> dict[str, Any]:
    addresses = run("ip", "-json", "addr")
    routes = run("ip", "-json", "route")
    # One call for all peers; with -force, a peer without a route does not end the call, and only its output is missing.
    batch = "".join(f"route get {peer}\n" for peer in peers)
    ways = run("ip", "-json", "-force", "-batch", "-", stdin=batch) if peers else None
    return {
        "addresses": addresses.text,
        "why": addresses.why,
        "routes": routes.text,
        "ways": ways.text if ways else "",
        "interfaces": {
            name: {
                "mtu": read(f"{NET}/{name}/mtu").text.strip(),
                # Missing for virtual interfaces and for interfaces that are down.
                "speed": read(f"{NET}/{name}/speed").text.strip(),
                "state": read(f"{NET}/{name}/operstate").text.strip(),
            }
            for name in names(NET)
        },
        "port_range": read(f"{PORTS}_port_range").text.strip(),
        "reserved_ports": read(f"{PORTS}_reserved_ports").text.strip(),
    }
