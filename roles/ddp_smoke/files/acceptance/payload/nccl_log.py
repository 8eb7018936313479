"""What NCCL says of itself (NCCL_DEBUG=INFO), read. No torch: tests read recorded logs with it.

The forms of the lines are NCCL's own format strings, as they are in libnccl.so.2 of the wheels 2.18.3, 2.21.5, 2.27.3
and 2.32.3: "Channel %02d/%01d : %d[%d] -> %d[%d] via P2P/%s%s%s", "... via SHM/%s/%s" (2.32: "SHM/direct"),
"... [send] via NET/%s/%d%s%s", "NET/IB : Using%s %s; OOB %s:%s", "Using network %s", "NET/%s : GPU Direct RDMA %s for
HCA %d '%s'", "NVLS multicast support is %savailable on dev %d", "Pattern %d, ..., type %s/%s, ...".
"""

from __future__ import annotations

import os
import re
from typing import Any

# What is asked of NCCL; INIT and ENV name the network and the variables, GRAPH the kind of links between GPUs.
ASKED = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,NET,GRAPH,ENV,P2P,SHM"}
OWN = ("NCCL_DEBUG", "NCCL_DEBUG_SUBSYS", "NCCL_DEBUG_FILE")
MOST_BYTES = 16 << 20
MOST_CHANNELS = 64  # pairs of ranks in a report
MOST_REASONS = 8
MOST_TEXT = 160

VERSION = re.compile(r"NCCL version (\d+\.\d+[\w.+-]*)")
# host:pid:tid [device] NCCL INFO text; some launchers put something before it.
LINE = re.compile(r"NCCL (?:INFO|WARN) (.*)$")
CHANNEL = re.compile(
    r"^Channel \d+(?:/\d+)? ?: (\d+)\[[0-9a-f]+\] -> (\d+)\[[0-9a-f]+\] (?:\[(send|receive)\] )?via (.+)$"
)
# A plugin's name may have blanks in it: "NET/AWS Libfabric/0/GDRDMA".
NET = re.compile(r"^NET/(?P<name>[^/]+)/(?P<device>\d+)(?:\(\d+\))?(?P<flags>(?:/.*)?)$")
NETWORK = re.compile(r"^(?:Using network|Assigned NET plugin) (.+?)(?: to comm.*)?$")
ADAPTERS = re.compile(r"^NET/\w+ : Using (\[0\].*?)(?: \[RO\])? ?(?:;|$)")
ADAPTER = re.compile(r"\[\d+\](\S+)")
DIRECT = re.compile(r"^NET/.+? ?: GPU Direct RDMA (\w+) for HCA \d+")
NVLS = re.compile(r"^NVLS multicast support is (not )?available on dev")
GRAPH = re.compile(r"^Pattern \d+, .*\btype (\w+)/(\w+),")
# Why it is not another way, in NCCL's own words.
REASONS = re.compile(
    r"No device found|Failed to open lib(?:ibverbs|mlx5)|No IP interface found"
    r"|Unable to open device|Call to ibv_\w+ failed|NCCL_(?:IB_DISABLE|NET|NET_PLUGIN|P2P_DISABLE|P2P_LEVEL|SHM_DISABLE"
    r"|NET_GDR_LEVEL|IB_HCA|NVLS_ENABLE|DMABUF_ENABLE) set|Could not find: ?libnccl-net|No plugin found"
    r"|Plugin load|P2P is disabled between|Could not enable P2P|Failed to initialize NET plugin"
    r"|^GPU Direct RDMA Disabled for GPU"
)


class Log:
    """Where NCCL of this process writes, in memory alone: nothing is left, however the process ends.

    why_not: why it is not asked for; a person's own settings are left as they are. The size is noted where the first
    communicator is complete: later ones number their ranks anew.
    """

    def __init__(self) -> None:
        self.handle = -1
        self.first = 0
        given = [name for name in OWN if os.environ.get(name)]
        self.why_not = f"{given[0]} is set to {os.environ[given[0]][:40]}, and is left so" if given else ""
        if not self.why_not:
            self.handle = os.memfd_create("nccl-log")
            # NCCL opens it by name, for writing (NCCL_DEBUG_FILE).
            os.environ.update(ASKED, NCCL_DEBUG_FILE=f"/proc/self/fd/{self.handle}")

    def mark(self) -> None:
        """What NCCL says from here on is of other communicators than the first."""
        if self.handle >= 0 and not self.first:
            self.first = os.fstat(self.handle).st_size

    def text(self) -> str:
        size = min(self.first or os.fstat(self.handle).st_size, MOST_BYTES)
        return os.pread(self.handle, size, 0).decode("utf-8", "replace")


def parse(text: str) -> dict[str, Any]:
    """What one rank's NCCL said of its first communicator.

    {nccl, net, adapters, gdr, nvls, graph: [inside a node, to the network], reasons,
    channels: [{from, to, way, kind: p2p|shm|net|collnet, via, gdr, count}]}; "" or None where it is not said.
    """
    found: dict[str, Any] = {"nccl": "", "net": "", "adapters": [], "gdr": None, "nvls": None, "graph": []}
    reasons: dict[str, None] = {}
    channels: dict[tuple[Any, ...], int] = {}
    for raw in text.splitlines():
        if version := VERSION.search(raw):
            found["nccl"] = version.group(1)
        said = LINE.search(raw)
        if not said:
            continue
        words = said.group(1).strip()
        if channel := CHANNEL.match(words):
            key = (int(channel.group(1)), int(channel.group(2)), channel.group(3) or "", *way_of(channel.group(4)))
            channels[key] = channels.get(key, 0) + 1
        elif REASONS.search(words):
            reasons[short(words)] = None
        else:
            of_line(words, found)
    names = ("from", "to", "way", "kind", "via", "gdr")
    listed = [{**dict(zip(names, key, strict=True)), "count": count} for key, count in channels.items()]
    return {**found, "reasons": list(reasons)[:MOST_REASONS], "channels": listed[:MOST_CHANNELS]}


def of_line(words: str, found: dict[str, Any]) -> None:
    """What a line adds that is neither a channel nor a reason."""
    if network := NETWORK.match(words):
        found["net"] = short(network.group(1))
    elif adapters := ADAPTERS.match(words):
        found["adapters"] = [short(name) for name in ADAPTER.findall(adapters.group(1))][:32]
    elif direct := DIRECT.match(words):
        # One adapter with it is enough for it to be there; that NCCL takes it is said by the channels.
        found["gdr"] = bool(found["gdr"]) or direct.group(1) == "Enabled"
    elif nvls := NVLS.match(words):
        found["nvls"] = nvls.group(1) is None
    elif (graph := GRAPH.match(words)) and not found["graph"]:
        found["graph"] = [graph.group(1), graph.group(2)]  # the first is the ring's


def way_of(via: str) -> tuple[str, str, bool]:
    """kind, the words for it, and whether the adapter reads and writes the GPU's memory."""
    via = via.strip()
    if net := NET.match(via):
        return "net", f"NET/{short(net['name'])}", "GDRDMA" in net["flags"]
    if via.startswith("COLLNET/"):
        return "collnet", short("/".join(via.split("/")[:2])), "GDRDMA" in via
    kind = via.partition("/")[0].lower()
    return kind if kind in ("p2p", "shm") else "other", short(via), False


def short(text: str) -> str:
    """Bounded and printable."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)[:MOST_TEXT]
