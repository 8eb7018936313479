"""Settings that prevent packet loss on RoCE interfaces: PFC, pause frames, ECN, traffic classes."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ..tools.run import names, read, run
from .rdma import DEVICES

NET = "/sys/class/net"
PRIORITIES = 8
TOOLS = {
    "mlnx_qos": ("mlnx_qos", "-i"),
    "dcb": ("dcb", "pfc", "show", "dev"),
    "pause": ("ethtool", "-a"),
    "modes": ("ethtool",),
}
AT_ONCE = 8


def look() -> dict[str, Any]:
    """Return the settings of each active Ethernet port, by "device:port"."""
    found = {}
    for device in names(DEVICES):
        for number in names(f"{DEVICES}/{device}/ports"):
            folder = f"{DEVICES}/{device}/ports/{number}"
            layer, state = (read(f"{folder}/{key}").text.strip() for key in ("link_layer", "state"))
            if layer == "Ethernet" and state.endswith("ACTIVE"):
                found[f"{device}:{number}"] = {
                    "traffic_class": read(f"{DEVICES}/{device}/tc/{number}/traffic_class").text.strip(),
                    **interface(netdev(folder)),
                }
    return asked(found)


def netdev(folder: str) -> str:
    """Return the network interface of a port, taken from the port's first GID."""
    for index in sorted(filter(str.isdigit, names(f"{folder}/gid_attrs/ndevs")), key=int):
        name = read(f"{folder}/gid_attrs/ndevs/{index}").text.strip()
        if name:
            return name
    return ""


def interface(name: str) -> dict[str, Any]:
    folder = f"{NET}/{name}"
    return {
        "netdev": name,
        **{key: read(f"{folder}/{key}").text.strip() if name else "" for key in ("mtu", "speed")},
        # Only the drivers of DOCA and OFED have these files.
        "ecn": {
            end: "".join(read(f"{folder}/ecn/{end}/enable/{each}").text.strip() for each in range(PRIORITIES))
            for end in ("roce_np", "roce_rp")
            if name
        },
    }


def asked(ports: dict[str, Any]) -> dict[str, Any]:
    """Run the tools for all ports in parallel and add their output. `why`: reasons for tools without output."""
    wanted = {
        (port, key): [*words, seen["netdev"]]
        for port, seen in ports.items()
        for key, words in TOOLS.items()
        if seen["netdev"]
    }
    with ThreadPoolExecutor(max_workers=AT_ONCE) as pool:
        answers = dict(zip(wanted, pool.map(lambda words: run(*words), wanted.values()), strict=True))
    for port, seen in ports.items():
        own = {key: answers[port, key] for key in TOOLS if (port, key) in answers}
        seen |= {key: own[key].text if key in own else "" for key in TOOLS}
        seen["why"] = {key: answer.why for key, answer in own.items() if answer.why}
    return ports
