"""The ports of InfiniBand and RoCE adapters: which of them NCCL would use, and whether their links are up and whole.

What a launch needs besides is judged in rdma_verbs.py (user space), rdma_addresses.py (GIDs and partitions), roce.py
(losses) and gpudirect.py.
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

# Counters of the port and of the transport that stand still on a good link, also under load (NCCL's networking
# troubleshooting guide; kernel, Documentation/ABI/stable/sysfs-class-infiniband).
WRONG = (
    *("symbol_error", "link_error_recovery", "link_downed", "port_rcv_errors", "local_link_integrity_errors"),
    *("excessive_buffer_overrun_errors", "port_xmit_discards", "out_of_sequence", "packet_seq_err"),
    *("local_ack_timeout_err", "rnr_nak_retry_err", "implied_nak_seq_err", "roce_adp_retrans"),
)
# What somebody has switched off on purpose.
SWITCHED_OFF = ("Disabled", "Sleep")
# What the kernel says of a link of InfiniBand that runs on one of its lanes (drivers/infiniband/core/sysfs.c,
# rate_show). Cables that divide a port give each end two, and of RoCE that word says nothing of lanes.
ONE_LANE = re.compile(r"\(1X ")
IB_DISABLE = "NCCL_IB_DISABLE"

PORT_DOWN = Check(
    "rdma.port.down",
    seen="recording",
    reads="state and phys_state of every port in /sys/class/infiniband that NCCL would use",
    fires="fail: NCCL_IB_HCA names a port that is not active, or no port is, though one is not switched off. "
    "warn: one is not active while others of the same board are",
    fix="Look at the cable and the switch's port",
)
PORT_UNMANAGED = Check(
    "rdma.port.unmanaged",
    seen="stand-in",
    reads="state and phys_state of every InfiniBand port",
    fires="fail: the link is up and the port stays in INIT or ARMED: no subnet manager has set it up",
    fix="Start one, on a switch or on one machine of the fabric; whether there is one is shown by",
    command="sudo sminfo",
)
PORT_SLOW = Check(
    "rdma.port.slow",
    seen="stand-in",
    reads="rate of the active ports",
    fires="warn: slower than the others of the same board on this node",
    fix="Change its cable or transceiver, and look at the switch's port",
    command="sudo mlxlink -d {device}",
)
PORT_NARROW = Check(
    "rdma.port.narrow",
    seen="stand-in",
    reads="rate of the active InfiniBand ports, with the number of lanes (kernel, drivers/infiniband/core/sysfs.c)",
    fires="warn: the link came up on one lane (1X); adapters have four, of which a divided cable takes two",
    fix="Change its cable or transceiver, and look at the switch's port",
    command="sudo mlxlink -d {device}",
)
LAYERS_MIXED = Check(
    "rdma.layers.mixed",
    seen="stand-in",
    reads="link_layer of the active ports that NCCL would use",
    fires="warn: InfiniBand and Ethernet ports are used together, as NCCL_IB_HCA does not choose",
    fix="Name those of the training in nccl_ib_hca, then type",
    command=playbook("site.yml", tags="gpu_stack"),
)
ERRORS = Check(
    "rdma.errors",
    seen="stand-in",
    reads="error counters of the ports, at the beginning and at the end of the look",
    fires="warn: they grow while looked at (NCCL's networking troubleshooting guide)",
    fix="Change its cable or transceiver, and look at the switch's port",
    command="rdma statistic show link {device}/{port}",
)
FIRMWARE_MIXED = Check(
    "rdma.firmware.mixed",
    seen="stand-in",
    reads="fw_ver of adapters of the same board",
    fires="warn: they differ on one node",
    fix="Update the older ones; what there is for them is shown by",
    command="sudo mlxfwmanager --query",
)
CHECKS = (PORT_DOWN, PORT_UNMANAGED, PORT_SLOW, PORT_NARROW, LAYERS_MIXED, ERRORS, FIRMWARE_MIXED)
LOOKS = ("rdma", "host", "unit")


def facts_of(looks: Mapping[str, Any], request: Mapping[str, Any]) -> dict[str, Any]:
    # The counters by "device/port" at the end of the look, and what a file sets of NCCL's variables for RDMA.
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
    """400 Gb/sec (4X NDR)."""
    number = re.match(r"([\d.]+) Gb/sec", text)
    return float(number[1]) if number else None


def chosen(hca: str, device: str, port: str) -> bool:
    """Whether NCCL_IB_HCA lets NCCL use a port: =exact names, ^not these, else beginnings of names."""
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
    """Say why no launch here uses RDMA at all; nothing where one does."""
    if not facts["rdma"]["devices"]:
        return "the node has no RDMA adapter"
    if request["backend"] != "nccl":
        return "a launch with Gloo uses TCP alone"
    if facts["rdma"]["settings"].get(IB_DISABLE, "0").strip() not in ("0", ""):
        return f"nccl.conf sets {IB_DISABLE}, so that NCCL uses no adapter"
    return ""


def active_ports(facts: Mapping[str, Any], layer: str = "") -> list[dict[str, Any]]:
    """Return the active ports that NCCL would use. layer: InfiniBand or Ethernet, where only those are meant."""
    return [
        port
        for port in facts["rdma"]["ports"]
        if port["used"] and port["state"] == "ACTIVE" and layer in ("", port["layer"])
    ]


def is_named(facts: Mapping[str, Any]) -> bool:
    """Whether NCCL_IB_HCA names the adapters, instead of leaving some out or saying nothing."""
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
                f"errors of {port['name']} grew within the second in which it was looked at: {grown}",
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
                f"{port['name']} has a link and stays in {port['state']}: no subnet manager sets it up",
                observed=said,
                expected="ACTIVE",
            )
            continue
        same = [one["name"] for one in active if one["board"] == port["board"] and one["device"] != port["device"]]
        if not (named or same or not active):
            continue  # a second port without a cable, as most adapters have
        report = PORT_DOWN.fail if named or not active else PORT_DOWN.warn
        yield report(
            node,
            f"{port['name']} is not active ({said})" + (f", and {', '.join(same[:3])} of its kind are" if same else ""),
            "Look at its cable and the switch's port",
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
                    f"{port['name']} runs at {port['rate']:g} Gbit/s, and others of its kind here at {best:g}",
                    named={"device": port["device"]},
                    observed=f"{port['rate']:g} Gbit/s",
                    expected=f"{best:g} Gbit/s",
                )


def _narrow(node: str, active: list[dict[str, Any]]) -> Iterator[Said]:
    for port in active:
        if port["narrow"]:
            yield PORT_NARROW.warn(
                node,
                f"{port['name']} runs on one lane of its cable, at {port['rate']:g} Gbit/s",
                named={"device": port["device"]},
                observed="1X",
                expected="4X, or 2X of a divided cable",
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
            expected="one kind",
        )


def _firmware(node: str, devices: Mapping[str, Mapping[str, str]]) -> Iterator[Said]:
    for board, versions in firmware(devices):
        if len(versions) > 1:
            shown = "; ".join(f"{version}: {', '.join(names)}" for version, names in versions.items())
            yield FIRMWARE_MIXED.warn(
                node,
                f"adapters of the kind {board} have different firmware ({shown})",
                observed=shown,
                expected="one version",
            )


def firmware(devices: Mapping[str, Mapping[str, str]]) -> Iterator[tuple[str, dict[str, list[str]]]]:
    """By board: the versions of firmware, and the adapters with each."""
    for board in sorted({device["board"] or device["kind"] for device in devices.values()}):
        versions: dict[str, list[str]] = {}
        for name, device in devices.items():
            if (device["board"] or device["kind"]) == board and device["firmware"]:
                versions.setdefault(device["firmware"], []).append(name)
        yield board, versions
