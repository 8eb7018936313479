"""RoCE (RDMA over Ethernet): flow control to prevent packet loss (PFC, pause frames, ECN), traffic class, speed."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from ..verdict.check import Check, skip_all
from ..verdict.commands import shell
from ..verdict.finding import evidence
from .rdma import active_ports, unused

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ..verdict.check import Said

CLASS_NAME = "NCCL_IB_TC"
# Output lines in Mellanox' description of mlnx_qos (community.mellanox.com, DOC-2792).
TRUST = re.compile(r"^Priority trust state: (\w+)", re.MULTILINE)
DSCP = re.compile(r"^\s*prio:(\d) dscp:([\d,]+)", re.MULTILINE)
ENABLED = re.compile(r"^PFC configuration:.*?^\s*enabled((?:\s+[01]){8})", re.MULTILINE | re.DOTALL)
# iproute2, dcb/dcb_pfc.c: "prio-pfc 0:off 1:on ...".
PRIO_PFC = re.compile(r"prio-pfc((?: \d:(?:on|off))+)")
PAUSE = re.compile(r"^(RX|TX):\s*(on|off)", re.MULTILINE)
# 100000baseCR4/Full: Mbit/s.
MODE = re.compile(r"\b(\d+)base\w+/Full")

PFC_OFF = Check(
    "rdma.pfc.off",
    seen="stand-in",
    reads="for the interfaces of active RoCE ports: priorities with flow control (mlnx_qos, or dcb of iproute2), pause "
    "frames (ethtool -a) and, if the driver shows it, ECN",
    fires="warn: PFC and ECN are off, and pause frames are not on in both directions. Packets are lost under load, and "
    "RDMA retransmits all data after them (NVIDIA's recommendation for RoCE). Direct cables do not need the settings",
    fix="Unless a direct cable connects the nodes, enable PFC for one priority on the switch and on the node with",
    command="sudo mlnx_qos -i {netdev} --pfc 0,0,0,1,0,0,0,0",
)
ECN_OFF = Check(
    "rdma.ecn.off",
    seen="stand-in",
    reads="/sys/class/net/*/ecn/roce_np and roce_rp (drivers of DOCA and OFED), of active RoCE ports",
    fires="warn: PFC is on, but ECN is off for sending or receiving on every priority. PFC alone stops whole links",
    fix="Write 1 to ecn/roce_np/enable/3 and ecn/roce_rp/enable/3 of the interface",
)
CLASS_UNPROTECTED = Check(
    "rdma.class.unprotected",
    seen="stand-in",
    reads="NCCL_IB_TC in nccl.conf or the adapter's traffic class, and the priority of this class in mlnx_qos",
    fires="warn: PFC is on, but not for the priority of NCCL's packets, which can be dropped",
    fix="Set nccl_ib_tc to a traffic class whose priority has PFC",
)
BELOW = Check(
    "rdma.port.below",
    seen="stand-in",
    reads="speed and supported link modes of the interfaces of active RoCE ports (ethtool)",
    fires="warn: the link is slower than the adapter's fastest mode (typical of a slower switch or a bad cable)",
    fix="Check the cable, the transceiver and the speed of the switch port. Show the modes of both ends with",
    command="sudo ethtool {netdev}",
)
ENDS = {"roce_np": "receiving", "roce_rp": "sending"}
CHECKS = (PFC_OFF, ECN_OFF, CLASS_UNPROTECTED, BELOW)
LOOKS = ("roce",)


def facts_of(looks: Mapping[str, Any], _: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _port(seen) for name, seen in looks["roce"].items()}


def _port(seen: Mapping[str, Any]) -> dict[str, Any]:
    trust = TRUST.search(seen["mlnx_qos"])
    pause = dict(PAUSE.findall(seen["pause"]))
    return {
        "netdev": seen["netdev"],
        "mtu": int(seen["mtu"]) if seen["mtu"].isdigit() else None,
        "pfc": _priorities(seen),
        "trust": trust[1] if trust else "",
        "dscp": {int(dscp): int(prio) for prio, all_of in DSCP.findall(seen["mlnx_qos"]) for dscp in _numbers(all_of)},
        "pause": pause == {"RX": "on", "TX": "on"} if pause else None,
        "ecn": {end: "1" in said for end, said in seen["ecn"].items() if said},
        "class": _class(seen["traffic_class"]),
        "speed": int(seen["speed"]) if seen["speed"].isdigit() and int(seen["speed"]) < 2**31 else None,
        "fastest": max(map(int, MODE.findall(_supported(seen["modes"]))), default=None),
        "why": seen["why"],
    }


def _numbers(text: str) -> list[str]:
    return [each for each in text.split(",") if each]


def _priorities(seen: Mapping[str, Any]) -> list[int] | None:
    """Return the priorities that have flow control; None if no tool reports them."""
    enabled, listed = ENABLED.search(seen["mlnx_qos"]), PRIO_PFC.search(seen["dcb"])
    if enabled:
        return [number for number, on in enumerate(enabled[1].split()) if on == "1"]
    if listed:
        return [int(number) for number, on in re.findall(r"(\d):(on|off)", listed[1]) if on == "on"]
    return None


def _class(text: str) -> int | None:
    """Return the traffic class of all packets of the adapter, such as 106 for "Global tclass=106"; None if it is not
    set."""
    found = re.search(r"Global tclass=(\d+)", text)
    return int(found[1]) if found else None


def _supported(text: str) -> str:
    """Return the section "Supported link modes" of ethtool's output."""
    found = re.search(r"^\s*Supported link modes:(.*?)^\s*\w[\w -]*:", text, re.MULTILINE | re.DOTALL)
    return found[1] if found else ""


def judge(facts: Mapping[str, Any], request: Mapping[str, Any]) -> Iterator[Said]:
    ports = {
        port["name"]: facts["roce"][port["name"]]
        for port in active_ports(facts, "Ethernet")
        if port["name"] in facts["roce"]
    }
    if why := unused(facts, request) or ("" if ports else "no active RoCE port"):
        yield from skip_all(CHECKS, why)
        return
    for name, port in ports.items():
        yield from _flow(request["node"], name, port)
        yield from _ecn(request["node"], name, port)
        yield from _traffic(request["node"], name, port, facts["rdma"]["settings"])
        yield from _speed(request["node"], name, port)


def _flow(node: str, name: str, port: Mapping[str, Any]) -> Iterator[Said]:
    if port["pfc"] is None or port["pause"] is None:
        whys = sorted(why for tool, why in port["why"].items() if tool != "modes") or ["no tool reports the settings"]
        yield PFC_OFF.skip(f"flow control of {name} cannot be read: {'; '.join(whys)}")
    elif not port["pfc"] and not port["pause"] and not any(port["ecn"].values()):
        yield PFC_OFF.warn(
            node,
            f"flow control is off, so RoCE packets of {name} ({port['netdev']}) can be dropped (no priority with PFC, "
            "no pause frames)",
            named={"netdev": port["netdev"]},
            observed="PFC off, pause off" + (", ECN off" if port["ecn"] else ", ECN not shown"),
            expected="PFC on at least one priority, or ECN",
        )


def _ecn(node: str, name: str, port: Mapping[str, Any]) -> Iterator[Said]:
    if len(port["ecn"]) < len(ENDS):
        yield ECN_OFF.skip(f"the driver of {name} does not report ECN for both directions (DOCA and OFED drivers do)")
        return
    off = [end for end, on in port["ecn"].items() if not on]
    if off and port["pfc"] is None:
        yield ECN_OFF.skip(f"the priorities with flow control of {name} cannot be read")
    elif off and port["pfc"]:
        yield ECN_OFF.warn(
            node,
            f"ECN of {name} ({port['netdev']}) is off for {' and '.join(ENDS[end] for end in off)}, on every priority",
            f"Enable ECN for priority {port['pfc'][0]}, which has flow control, with",
            " && ".join(
                shell(
                    "echo 1 | sudo tee /sys/class/net/{netdev}/ecn/{end}/enable/{pfc}",
                    netdev=port["netdev"],
                    end=end,
                    pfc=port["pfc"][0],
                )
                for end in off
            ),
            observed="off",
            expected="on",
            evidence=evidence(f"/sys/class/net/{port['netdev']}/ecn", ", ".join(off)),
        )


def _traffic(node: str, name: str, port: Mapping[str, Any], settings: Mapping[str, str]) -> Iterator[Said]:
    if not port["pfc"]:
        yield CLASS_UNPROTECTED.skip(f"{name} has no known priority with flow control")
        return
    if port["trust"] != "dscp" or not port["dscp"]:
        yield CLASS_UNPROTECTED.skip(f"{name} has no DSCP mapping, so the priority of a traffic class is unknown")
        return
    said = settings.get(CLASS_NAME, "0").strip()
    own = int(said) if said.isdigit() else 0
    # The class is the whole byte of the IP header; DSCP is its upper six bits.
    used = own if port["class"] is None else port["class"]
    priority = port["dscp"].get(used >> 2)
    if priority is None or priority in port["pfc"]:
        return
    protected = min(dscp for dscp, prio in port["dscp"].items() if prio in port["pfc"])
    guarded = ", ".join(map(str, port["pfc"]))
    yield CLASS_UNPROTECTED.warn(
        node,
        f"NCCL's packets on {name} have traffic class {used} and priority {priority}, but flow control "
        f"(PFC) is on for priority {guarded} only",
        f"Set nccl_ib_tc to {protected << 2}, or to the value that your switches expect. Show the mapping with",
        shell("sudo mlnx_qos -i {netdev}", netdev=port["netdev"]),
        observed=f"class {used}, priority {priority}",
        expected=f"priority {guarded}",
        evidence=evidence("mlnx_qos", f"DSCP {used >> 2} is priority {priority}; PFC on {guarded}"),
    )


def _speed(node: str, name: str, port: Mapping[str, Any]) -> Iterator[Said]:
    if not port["speed"] or not port["fastest"]:
        yield BELOW.skip(f"the speeds of {name} cannot be read: {port['why'].get('modes') or 'ethtool lists none'}")
    elif port["speed"] < port["fastest"]:
        yield BELOW.warn(
            node,
            f"the link of {name} ({port['netdev']}) runs at {port['speed'] / 1000:g} Gbit/s, but the adapter supports "
            f"{port['fastest'] / 1000:g} Gbit/s",
            named={"netdev": port["netdev"]},
            observed=f"{port['speed'] / 1000:g} Gbit/s",
            expected=f"{port['fastest'] / 1000:g} Gbit/s",
            evidence=evidence("ethtool, Supported link modes", f"{port['fastest']} Mbit/s"),
        )
