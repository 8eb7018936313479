"""Addresses, interfaces, and by which way the kernel reaches each peer."""

from __future__ import annotations

from typing import Any

from ..tools.run import names, read, run

NET = "/sys/class/net"
PORTS = "/proc/sys/net/ipv4/ip_local"


def look(peers: list[str]) -> dict[str, Any]:
    addresses = run("ip", "-json", "addr")
    routes = run("ip", "-json", "route")
    # One call for all peers; with -force one without a route does not end it. Its answer is missing from the rest.
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
                # A virtual interface has none, and one that is down does not say.
                "speed": read(f"{NET}/{name}/speed").text.strip(),
                "state": read(f"{NET}/{name}/operstate").text.strip(),
            }
            for name in names(NET)
        },
        "port_range": read(f"{PORTS}_port_range").text.strip(),
        "reserved_ports": read(f"{PORTS}_reserved_ports").text.strip(),
    }
