"""Schedule pairs of adapters in rounds that use each adapter at most once, and build both nodes' commands (no I/O)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..health.rdma import active_ports, unused
from ..health.rdma_addresses import GID_INDEX_NAME, is_routable
from ..net_probe.schedule import rounds, sample

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# The maximum number of peers that each node is tested with; a round takes some seconds.
MOST_ROUNDS = 8
# The steps in order; a failed step ends the test of that rail.
STEPS = ("ibv_rc_pingpong", "ib_write_bw", "ib_write_lat")
# 2 GiB: 0.05 s at 400 Gbit/s, 2 s at 10 Gbit/s.
MESSAGE = 1 << 20
MESSAGES = 2000
EXCHANGES = 1000


@dataclass(frozen=True)
class Hca:
    """A port of an adapter. rate: rate of the port's link in Gbit/s. gid: the GID index that NCCL uses; None on
    InfiniBand."""

    device: str
    port: str
    rate: float
    gid: str | None = None
    extra: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return f"{self.device}:{self.port}"


@dataclass(frozen=True)
class RailMeeting:
    """Two nodes and the pairs of adapters to test between them."""

    caller: str
    called: str
    pairs: tuple[tuple[Hca, Hca], ...]


def why_not(facts: Mapping[str, Any], request: Mapping[str, Any]) -> str:
    """Return why a node's adapters are not tested; "" if they are tested. facts: the facts of nccl_health."""
    if why := unused(facts, request):
        return why
    if not active_ports(facts):
        return "no RDMA port that NCCL would use is active"
    if not facts["rdma"]["uverbs"] or not facts["rdma_verbs"]["library"]:
        return "ranks cannot open the RDMA adapters (rdma.devices.missing, rdma.verbs.missing)"
    if facts["jobs"]["processes"]:
        return "a job is running on the node"
    if not hcas(facts):
        return "no RoCE port has the kind of GID that NCCL requires (rdma.gid.missing)"
    return ""


def hcas(facts: Mapping[str, Any]) -> list[Hca]:
    """Return the ports that NCCL would use, sorted by name. Each port has its GID index."""
    settings = facts["rdma"]["settings"]
    found = []
    for port in sorted(active_ports(facts), key=lambda each: _natural(each["name"])):
        device, _, number = port["name"].partition(":")
        gid = None
        if port["layer"] == "Ethernet":
            asked = settings.get(GID_INDEX_NAME, "-1").strip()
            own = [asked] if asked.isdigit() else [index for index, each in port["gids"].items() if is_routable(each)]
            if not own:
                continue  # rdma.gid.missing reports it
            gid = own[0]
        found.append(Hca(device, number, port["rate"] or 0.0, gid, _extra(settings)))
    return found


def _extra(settings: Mapping[str, str]) -> tuple[str, ...]:
    """Return additional perftest options for NCCL's partition and traffic class."""
    options = {"NCCL_IB_PKEY": "--pkey_index", "NCCL_IB_TC": "--tclass"}
    given = {option: settings.get(name, "0").strip() for name, option in options.items()}
    return tuple(f"{option}={value}" for option, value in given.items() if value.isdigit() and value != "0")


def _natural(name: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdigit() else (0, part) for part in re.split(r"(\d+)", name)]


def pairs(one: Sequence[Hca], other: Sequence[Hca]) -> tuple[tuple[Hca, Hca], ...]:
    """Pair the adapters of two nodes by name if the nodes have common names, otherwise by position."""
    named = {each.name: each for each in other}
    if {each.name for each in one} & named.keys():
        return tuple((each, named[each.name]) for each in one if each.name in named)
    return tuple(zip(one, other, strict=False))


def meetings(nodes: Mapping[str, Sequence[Hca]]) -> list[list[RailMeeting]]:
    """Return the rounds. In each round, a node has at most one peer, so that no adapter is used twice."""
    chosen = sample(rounds(list(nodes)), MOST_ROUNDS)
    return [[RailMeeting(one, other, pairs(nodes[one], nodes[other])) for one, other in each] for each in chosen]


def commands(hca: Hca) -> list[list[str]]:
    """Return the commands of STEPS for one node, without the TCP port and the peer's address."""
    pingpong, bandwidth, latency = STEPS
    place = ["-d", hca.device, "-i", hca.port]
    # -c makes the receiver verify the data; without a GID, InfiniBand uses the LID.
    first = [pingpong, *place, "-c", "-n", str(EXCHANGES), *(["-g", hca.gid] if hca.gid is not None else [])]
    perftest = [*place, *(["-x", hca.gid] if hca.gid is not None else []), "-F", *hca.extra]
    return [
        first,
        [bandwidth, *perftest, "-s", str(MESSAGE), "-n", str(MESSAGES), "--report_gbits"],
        [latency, *perftest, "-s", "8", "-n", str(EXCHANGES)],
    ]
