"""The ports of InfiniBand and RoCE adapters: which ports NCCL would use, and the state of their links.

Other RDMA checks are in rdma_verbs.py (user space), rdma_addresses.py (GIDs and partitions), roce.py (packet loss) and
gpudirect.py.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Any

from ..gpu_stack.nccl_ib import HCA
from ..verdict.check import Check, skip_all
from ..verdict.commands import playbook
from ..verdict.finding import evidence
from . import environment

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ..verdict.check import Said

# Counters of the port and of the transport that do not increase on a good link, even under load (NCCL's networking
# troubleshooting guide; kernel, Documentation/ABI/stable/sysfs-class-infiniband).
WRONG = (
    *("symbol_error", "link_error_recovery", "link_downed", "port_rcv_errors", "local_link_integrity_errors"),
    *("excessive_buffer_overrun_errors", "port_xmit_discards", "out_of_sequence", "packet_seq_err"),
    *("local_ack_timeout_err", "rnr_nak_retry_err", "implied_nak_seq_err", "roce_adp_retrans"),
)
# Physical states of a port that was disabled on purpose.
SWITCHED_OFF = ("Disabled", "Sleep")
# The kernel's text for an InfiniBand link on one lane (drivers/infiniband/core/sysfs.c, rate_show). Splitter cables
# give each end two lanes; on RoCE the text does not describe lanes.
ONE_LANE = re.compile(r"\(1X ")
IB_DISABLE = "NCCL_IB_DISABLE"

PORT_DOWN = Check(
    "rdma.port.down",
    seen="recording",
    reads="state and phys_state of every port in /sys/class/infiniband that NCCL would use",
    fires="fail: a port named in NCCL_IB_HCA is not active, or no port is active although at least one is enabled. "
    "warn: a port is not active, but other ports of the same adapter type are active",
    fix="Check the cable and the switch port",
)
PORT_UNMANAGED = Check(
    "rdma.port.unmanaged",
    seen="stand-in",
    reads="state and phys_state of every InfiniBand port",
    fires="fail: the link is up, but the port stays in INIT or ARMED: no subnet manager has configured the port",
    fix="Start a subnet manager on a switch or host of the fabric. Check for a running one with",
    command="sudo sminfo",
)
PORT_SLOW = Check(
    "rdma.port.slow",
    seen="stand-in",
    reads="rate of the active ports",
    fires="warn: a port is slower than other ports of the same adapter type on this node",
    fix="Replace the cable or transceiver, and check the switch port. Show the link with",
    command="sudo mlxlink -d {device}",
)
PORT_NARROW = Check(
    "rdma.port.narrow",
    seen="stand-in",
    reads="rate of the active InfiniBand ports, with the number of lanes (kernel, drivers/infiniband/core/sysfs.c)",
    fires="warn: the link uses only one lane (1X). Adapters have four lanes, or two with a splitter cable",
    fix="Replace the cable or transceiver, and check the switch port. Show the link with",
    command="sudo mlxlink -d {device}",
)
LAYERS_MIXED = Check(
    "rdma.layers.mixed",
    seen="stand-in",
    reads="link_layer of the active ports that NCCL would use",
    fires="warn: NCCL would use InfiniBand and Ethernet ports together, because NCCL_IB_HCA does not select adapters",
    fix="Set nccl_ib_hca to the adapters of the training network, then run",
    command=playbook("site.yml", tags="gpu_stack"),
)
ERRORS = Check(
    "rdma.errors",
    seen="stand-in",
    reads="error counters of the ports at the start and at the end of the check",
    fires="warn: a counter increases during the check (NCCL's networking troubleshooting guide)",
    fix="Replace the cable or transceiver, and check the switch port. Show the counters with",
    command="rdma statistic show link {device}/{port}",
)
FIRMWARE_MIXED = Check(
    "rdma.firmware.mixed",
    seen="stand-in",
    reads="fw_ver of adapters of the same type",
    fires="warn: adapters of the same type on a node have different firmware versions",
    fix="Update the older adapters. List the available firmware with",
    command="sudo mlxfwmanager --query",
)
CHECKS = (PORT_DOWN, PORT_UNMANAGED, PORT_SLOW, PORT_NARROW, LAYERS_MIXED, ERRORS, FIRMWARE_MIXED)
LOOKS = ("rdma", "host", "unit")


def facts_of(looks: Mapping[str, Any], request: Mapping[str, Any]) -> dict[str, Any]:
    # The counters by "device/port" at the end of the check, and NCCL's RDMA variables in nccl.conf.
    look, later = looks["rdma"], looks["later"]["rdma"]
    set_there = environment.in_force(environment.facts_of(looks, request)["nccl_conf"])
    hca = set_there.get(HCA, "")
    ports = [
        {
            "name": f"{name}:{number}",
            "device": name,
            "board": device["board"] or device["kind"],
            "state": port["state"].partition(":")[2].strip(),
            "physical": port["phys_state"].partition(":")[2].strip(),
            "rate": _rate(port["rate"]),
            "narrow": port["link_layer"] == "InfiniBand" and bool(ONE_LANE.search(port["rate"])),
            "layer": port["link_layer"],
            "gids": port["gids"],
            "pkeys": port["pkeys"],
            "manager": port["sm_lid"],
            "used": chosen(hca, name, number),
            "grown": {
                each: more
                for each in WRONG
                if (more := later.get(f"{name}/{number}", {}).get(each, 0) - port["counters"].get(each, 0)) > 0
                and each in port["counters"]
            },
        }
        for name, device in look["devices"].items()
        for number, port in device["ports"].items()
    ]
    return {
        "devices": {
            name: {key: device[key] for key in ("firmware", "board", "kind", "slot")}
            for name, device in look["devices"].items()
        },
        "ports": ports,
        "active": [port["name"] for port in ports if port["used"] and port["state"] == "ACTIVE"],
        "uverbs": look["uverbs"],
        "hca": hca,
        "settings": {name: value for name, value in set_there.items() if name.startswith("NCCL_IB_")},
    }


def _rate(text: str) -> float | None:
    """Return the number in a rate, such as 400.0 for "400 Gb/sec (4X NDR)"."""
    number = re.match(r"([\d.]+) Gb/sec", text)
    return float(number[1]) if number else None


def chosen(hca: str, device: str, port: str) -> bool:
    """Return whether NCCL_IB_HCA selects a port. A leading "=" marks exact names and "^" excludes; otherwise the
    entries are prefixes of names."""
    exclude = hca.startswith("^")
    exact = hca.lstrip("^").startswith("=")
    entries = [each for each in hca.lstrip("^").lstrip("=").split(",") if each]
    if not entries:
        return True
    hit = False
    for each in entries:
        name, _, number = each.partition(":")
        fits = device == name if exact else device.startswith(name)
        hit = hit or (fits and number in ("", port))
    return hit != exclude


def unused(facts: Mapping[str, Any], request: Mapping[str, Any]) -> str:
    """Return why launches on the node do not use RDMA; "" if they use it."""
    if not facts["rdma"]["devices"]:
        return "the node has no RDMA adapter"
    if request["backend"] != "nccl":
        return "a launch with Gloo uses only TCP"
    if facts["rdma"]["settings"].get(IB_DISABLE, "0").strip() not in ("0", ""):
        return f"nccl.conf sets {IB_DISABLE}, so NCCL does not use RDMA"
    return ""


def active_ports(facts: Mapping[str, Any], layer: str = "") -> list[dict[str, Any]]:
    """Return the active ports that NCCL would use. layer: "InfiniBand", "Ethernet", or "" for both."""
    return [
        port
        for port in facts["rdma"]["ports"]
        if port["used"] and port["state"] == "ACTIVE" and layer in ("", port["layer"])
    ]


def is_named(facts: Mapping[str, Any]) -> bool:
    """Return whether NCCL_IB_HCA lists adapters to use. An empty value or an exclusion does not count."""
    return bool(facts["rdma"]["hca"]) and not facts["rdma"]["hca"].startswith("^")


def judge(facts: Mapping[str, Any], request: Mapping[str, Any]) -> Iterator[Said]:
    node = request["node"]
    seen = facts["rdma"]
    if why := unused(facts, request):
        yield from skip_all(CHECKS, why)
        return
    ports = [port for port in seen["ports"] if port["used"]]
    active = active_ports(facts)
    yield from _down(node, ports, active, is_named(facts))
    for port in active:
        if port["grown"]:
            grown = ", ".join(f"{key} by {value}" for key, value in port["grown"].items())
            yield ERRORS.warn(
                node,
                f"the error counters of {port['name']} increased during the check (1 s): {grown}",
                named={"device": port["device"], "port": port["name"].partition(":")[2]},
                observed=grown,
                expected="none",
            )
    yield from _speed(node, active)
    yield from _narrow(node, active)
    yield from _layers(node, active)
    yield from _firmware(node, seen["devices"])


def _down(node: str, ports: list[dict[str, Any]], active: list[dict[str, Any]], named: bool) -> Iterator[Said]:
    for port in ports:
        if port["state"] == "ACTIVE" or port["physical"] in SWITCHED_OFF:
            continue
        said = f"{port['state']}, {port['physical']}"
        if port["layer"] == "InfiniBand" and port["state"] in ("INIT", "ARMED") and port["physical"] == "LinkUp":
            yield PORT_UNMANAGED.fail(
                node,
                f"{port['name']} has a link but stays in {port['state']}, because no subnet manager has configured it",
                observed=said,
                expected="ACTIVE",
            )
            continue
        same = [one["name"] for one in active if one["board"] == port["board"] and one["device"] != port["device"]]
        if not (named or same or not active):
            continue  # an unused second port, as on most adapters
        report = PORT_DOWN.fail if named or not active else PORT_DOWN.warn
        yield report(
            node,
            f"{port['name']} is not active ({said})"
            + (f"; active ports of the same adapter type: {', '.join(same[:3])}" if same else ""),
            "Check the cable and the switch port. Show the port with",
            "ibstat" if port["layer"] == "InfiniBand" else "rdma link show",
            observed=said,
            expected="ACTIVE, LinkUp",
            evidence=evidence(f"/sys/class/infiniband/{port['device']}", said),
        )


def _speed(node: str, active: list[dict[str, Any]]) -> Iterator[Said]:
    for board in sorted({port["board"] for port in active}):
        alike = [port for port in active if port["board"] == board and port["rate"]]
        best = max((port["rate"] for port in alike), default=0)
        for port in alike:
            if port["rate"] < best:
                yield PORT_SLOW.warn(
                    node,
                    f"{port['name']} runs at {port['rate']:g} Gbit/s, but others of its type at {best:g} Gbit/s",
                    named={"device": port["device"]},
                    observed=f"{port['rate']:g} Gbit/s",
                    expected=f"{best:g} Gbit/s",
                )


def _narrow(node: str, active: list[dict[str, Any]]) -> Iterator[Said]:
    for port in active:
        if port["narrow"]:
            yield PORT_NARROW.warn(
                node,
                f"{port['name']} uses only one lane ({port['rate']:g} Gbit/s)",
                named={"device": port["device"]},
                observed="1X",
                expected="4X, or 2X with a splitter cable",
                evidence=evidence(f"/sys/class/infiniband/{port['device']}", f"{port['rate']:g} Gb/sec (1X)"),
            )


def _layers(node: str, active: list[dict[str, Any]]) -> Iterator[Said]:
    layers = Counter(port["layer"] for port in active)
    if len(layers) > 1:
        shown = "; ".join(
            f"{layer}: {', '.join(port['name'] for port in active if port['layer'] == layer)}" for layer in layers
        )
        yield LAYERS_MIXED.warn(
            node,
            f"NCCL would use InfiniBand and Ethernet adapters together ({shown})",
            observed=shown,
            expected="one type",
        )


def _firmware(node: str, devices: Mapping[str, Mapping[str, str]]) -> Iterator[Said]:
    for board, versions in firmware(devices):
        if len(versions) > 1:
            shown = "; ".join(f"{version}: {', '.join(names)}" for version, names in versions.items())
            yield FIRMWARE_MIXED.warn(
                node,
                f"adapters of type {board} have different firmware versions ({shown})",
                observed=shown,
                expected="one version",
            )


def firmware(devices: Mapping[str, Mapping[str, str]]) -> Iterator[tuple[str, dict[str, list[str]]]]:
    """Yield (board, {firmware version: adapters with this version})."""
    for board in sorted({device["board"] or device["kind"] for device in devices.values()}):
        versions: dict[str, list[str]] = {}
        for name, device in devices.items():
            if (device["board"] or device["kind"]) == board and device["firmware"]:
                versions.setdefault(device["firmware"], []).append(name)
        yield board, versions
