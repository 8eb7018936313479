"""Network facts of a node: interfaces with counters, the route to each peer, and name resolution."""

from __future__ import annotations

import json
import os
import re
import socket
import threading
import time
from typing import Any

from ..tools.kernel_files import whole, word
from ..tools.run import names, run
from .parts import UnseenError

Json = dict[str, Any]

NET = "/sys/class/net"
LOOPBACK = 772  # linux/if_arp.h: ARPHRD_LOOPBACK
UP = 1  # linux/if.h: IFF_UP
MOST_INTERFACES = 24
MOST_ADDRESSES = 8  # of one interface, or of one name
COUNTERS = {
    "carrier_changes": "carrier_changes",
    **{name: f"statistics/{name}" for name in ("rx_errors", "tx_errors", "rx_dropped", "tx_dropped")},
}
SECONDS = 1.0
FAILED = re.compile(r"Command failed -:(\d+)")


def ask_ip(peers: dict[str, str]) -> tuple[dict[str, list[str]], dict[str, Json]]:
    """Return the addresses of each interface and the route to each peer, from a single run of ip. Raises
    UnseenError."""
    batch = "".join(["address show\n", *(f"route get {address}\n" for address in peers.values())])
    # With -force, ip continues after a peer without a route, whose answer is missing.
    answer = run("ip", "-json", "-force", "-batch", "-", stdin=batch, seconds=SECONDS)
    said = documents(answer.text)
    if not said:
        raise UnseenError(answer.why or "ip printed nothing")
    addresses = {
        str(link.get("ifname")): [str(entry["local"]) for entry in link.get("addr_info", ()) if "local" in entry]
        for link in said[0]
    }
    return addresses, routes(peers, said[1:], answer.aside)


def documents(text: str) -> list[list[Json]]:
    """Parse concatenated JSON documents."""
    decoder = json.JSONDecoder()
    found = []
    place = 0
    while (place := len(text) - len(text[place:].lstrip())) < len(text):
        try:
            value, place = decoder.raw_decode(text, place)
        except ValueError:
            break
        found.append([each for each in value if isinstance(each, dict)] if isinstance(value, list) else [])
    return found


def routes(peers: dict[str, str], said: list[list[Json]], aside: str) -> dict[str, Json]:
    """Map each peer to the route that ip printed. ip prints routes in batch order and skips lines with an error."""
    errors: dict[int, str] = {}
    before = ""
    for line in aside.splitlines():
        if failed := FAILED.search(line):
            errors[int(failed[1])] = before or line
        before = "" if failed else line.strip()
    found = {}
    answers = iter(said)
    for number, node in enumerate(peers, 2):
        way = next(iter(next(answers, [])), {}) if number not in errors else {}
        found[node] = {
            "interface": str(way.get("dev", "")),
            "source": str(way.get("prefsrc", "")),
            "gateway": str(way.get("gateway", "")),
            "error": "" if way else errors.get(number, "ip printed no route").removeprefix("RTNETLINK answers: ")[:100],
        }
    return found


def interfaces(addresses: dict[str, list[str]]) -> dict[str, Json]:
    """Return the interfaces. Interfaces with an address come first, because a container host can have hundreds of
    interfaces without an address."""
    there = sorted(names(NET), key=lambda name: (not any(map(is_own, addresses.get(name, ()))), name))
    return {name: interface(name, addresses.get(name, [])) for name in there[:MOST_INTERFACES]}


def is_own(address: str) -> bool:
    return not address.startswith("fe80:")


def interface(name: str, addresses: list[str]) -> Json:
    folder = f"{NET}/{name}"
    counted = {ours: number for ours, path in COUNTERS.items() if (number := whole(f"{folder}/{path}")) is not None}
    carrier = word(f"{folder}/carrier")
    return {
        "up": bool(int(word(f"{folder}/flags") or "0", 16) & UP),
        "carrier": carrier == "1" if carrier else None,
        "mtu": whole(f"{folder}/mtu") or 0,
        "kind": kind(folder),
        "addresses": addresses[:MOST_ADDRESSES],
        "counters": counted,
    }


def kind(folder: str) -> str:
    if whole(f"{folder}/type") == LOOPBACK:
        return "loopback"
    if os.path.exists(f"{folder}/bridge"):
        return "bridge"
    return "physical" if os.path.exists(f"{folder}/device") else "virtual"


class Resolving:
    """Resolves several names in parallel, because a name server that does not respond blocks each lookup for many
    seconds."""

    def __init__(self, wanted: list[str]) -> None:
        self.found: dict[str, list[str]] = {}
        self.threads = {
            name: threading.Thread(target=self.ask, args=(name,), daemon=True) for name in dict.fromkeys(wanted)
        }
        for thread in self.threads.values():
            thread.start()

    def ask(self, name: str) -> None:
        try:
            said = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError):
            self.found[name] = []
            return
        self.found[name] = list(dict.fromkeys(str(each[4][0]) for each in said))[:MOST_ADDRESSES]

    def answers(self, until: float) -> tuple[dict[str, list[str]], list[str]]:
        """Return the answers that arrive in time, and the names without an answer. until: deadline on the monotonic
        clock."""
        for thread in self.threads.values():
            thread.join(max(0.0, until - time.monotonic()))
        found = dict(self.found)
        return found, [name for name in self.threads if name not in found]
