"""Changes the MTU of the training interface: the part on one node (plugins/action/training_mtu.py).

Run by NodeProgram (plugin_utils), with a verb as argument and a JSON payload on standard input.
    look   return the interface, and its configuration in each network manager
    apply  write files and run commands; stop at the first error, and return the error
    ping   send unfragmentable packets of two sizes to peers in parallel, and return which packets were answered
"""

from __future__ import annotations

import ipaddress
import json
import os
import select
import socket
import struct
import time
from typing import Any

from ..tools import files
from ..tools.program import answer
from ..tools.run import failure, run

Json = dict[str, Any]

TIMEOUT = 20
WRITTEN = {"ifupdown": "/etc/network/if-up.d/muster-mtu"}
INTERFACES = "/etc/network/interfaces"
# Three packets of each size, because a single packet may be lost, for example due to an empty neighbor table.
TRIES = 3
WAIT = 0.7
SMALL = 64
HEADERS = {4: 20, 6: 40}
ECHO = {4: (8, 0), 6: (128, 129)}
# From linux/in.h and linux/in6.h, missing in Python's socket: never fragment, and use the interface's MTU regardless of
# the cached path MTU.
MTU_DISCOVER = {4: (socket.IPPROTO_IP, 10), 6: (socket.IPPROTO_IPV6, 23)}
PROBE = 3


def main() -> None:
    answer({"look": look, "apply": apply, "ping": ping})


def look(request: Json) -> Json:
    """Return the interface and its configuration. request: {interface, address}. If interface is empty, the interface
    with the address is used."""
    interface = request["interface"] or carrier(request["address"])
    networkctl = run("networkctl", "--no-pager", "status", interface).text if interface else ""
    device = ("nmcli", "--terse", "--get-values")
    nmcli = run(*device, "GENERAL.CON-UUID,GENERAL.TYPE,GENERAL.STATE", "device", "show", interface).text
    uuid = nmcli.partition("\n")[0]
    network_file = next((line.split()[-1] for line in networkctl.splitlines() if "Network File:" in line), "")
    drop_in = f"/etc/systemd/network/{os.path.basename(network_file)}.d/90-muster-mtu.conf"
    return {
        "interface": interface,
        "link": run("ip", "-json", "-details", "link", "show", "dev", interface).text if interface else "",
        "netplan": run("netplan", "get", seconds=TIMEOUT).text,
        "networkctl": networkctl,
        "nmcli": nmcli,
        "nmcli_files": run("nmcli", "--terse", "--fields", "UUID,FILENAME", "connection", "show").text if uuid else "",
        "nmcli_mtu": run("nmcli", "--get-values", "802-3-ethernet.mtu", "connection", "show", uuid).text
        if uuid
        else "",
        "interfaces": read(INTERFACES) + "".join(read(path) for path in below(f"{INTERFACES}.d")),
        "written": {**{name: read(path) for name, path in WRITTEN.items()}, "networkd": read(drop_in)},
        "guarded": os.path.lexists(os.path.join(request["guard"], "state.json")),
    }


def carrier(address: str) -> str:
    wanted = ipaddress.ip_address(address)
    for each in json.loads(run("ip", "-json", "addr").text or "[]"):
        if any(ipaddress.ip_address(one["local"]) == wanted for one in each.get("addr_info", ()) if "local" in one):
            return str(each["ifname"])
    return ""


def read(path: str) -> str:
    try:
        return files.read(path, links=True).decode("utf-8", "replace")
    except OSError:
        return ""


def below(folder: str) -> list[str]:
    try:
        return [os.path.join(folder, name) for name in sorted(os.listdir(folder))]
    except OSError:
        return []


def apply(request: Json) -> Json:
    """Run steps in order; return the first error. request: {steps}; a step has run (a command) or write (a path), text
    and mode."""
    for step in request["steps"]:
        if "write" in step:
            os.makedirs(os.path.dirname(step["write"]), exist_ok=True)
            files.replace(step["write"], step["text"].encode(), mode=step["mode"], owner=(0, 0))
            continue
        failed = failure(step["run"], run(*step["run"], seconds=TIMEOUT))
        if failed:
            return {"failed": failed}
    return {"failed": ""}


def ping(request: Json) -> Json:
    """Ping the peers with packets of two sizes. request: {interface, mtu, peers: {name: address}}."""
    sizes = {"small": SMALL, "full": request["mtu"]}
    came = {name: dict.fromkeys(sizes, False) for name in request["peers"]}
    for turn in range(TRIES):
        for what, size in sizes.items():
            open_ones = {name: address for name, address in request["peers"].items() if not came[name][what]}
            for name in exchange(request["interface"], open_ones, size, turn):
                came[name][what] = True
    return {"came": came}


def exchange(interface: str, peers: dict[str, str], size: int, turn: int) -> set[str]:
    """Send one packet of this size to each peer. Return the peers whose complete reply arrived."""
    sockets: dict[socket.socket, tuple[str, bytes]] = {}
    back = set()
    try:
        for number, (name, address) in enumerate(peers.items()):
            family = ipaddress.ip_address(address).version
            packet = echo(family, size, (os.getpid() + number) & 0xFFFF, turn)
            opened = open_socket(family, interface)
            try:
                opened.connect((address, 0))
                opened.send(packet)
            except OSError:
                opened.close()  # larger than the interface's MTU, or no route
                continue
            sockets[opened] = (name, packet[8:])
        end = time.monotonic() + WAIT
        while sockets and (left := end - time.monotonic()) > 0:
            for ready in select.select(list(sockets), [], [], left)[0]:
                name, body = sockets[ready]
                try:
                    answered = ready.recv(size + 128).endswith(body)
                except OSError:
                    answered = False
                if answered:
                    back.add(name)
                    sockets.pop(ready)
                    ready.close()
    finally:
        for opened in sockets:
            opened.close()
    return back


def open_socket(family: int, interface: str) -> socket.socket:
    kind, protocol = (socket.AF_INET, socket.IPPROTO_ICMP) if family == 4 else (socket.AF_INET6, socket.IPPROTO_ICMPV6)
    opened = socket.socket(kind, socket.SOCK_RAW, protocol)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, interface.encode() + b"\0")
    opened.setsockopt(*MTU_DISCOVER[family], PROBE)
    opened.setblocking(False)
    return opened


def echo(family: int, size: int, identity: int, turn: int) -> bytes:
    """Return an ICMP echo request with unique content that results in an IP packet of this size."""
    room = size - HEADERS[family] - 8
    body = (struct.pack("!HHd", identity, turn, time.time()) * (room // 12 + 1))[:room]
    kind = ECHO[family][0]
    head = struct.pack("!BBHHH", kind, 0, 0, identity, turn)
    # The kernel computes the checksum of ICMPv6.
    total = checksum(head + body) if family == 4 else 0
    return struct.pack("!BBHHH", kind, 0, total, identity, turn) + body


def checksum(data: bytes) -> int:
    padded = data + b"\0" * (len(data) % 2)
    total: int = sum(struct.unpack(f"!{len(padded) // 2}H", padded))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


if __name__ == "__main__":
    main()
