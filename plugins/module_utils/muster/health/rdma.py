"""InfiniBand and RoCE adapters: whether NCCL can use them, at full speed, and straight from the GPUs' memory."""

from __future__ import annotations

import ipaddress
import re
from collections import Counter
from typing import TYPE_CHECKING, Any

from ..verdict.check import Check, skip_all
from ..verdict.finding import evidence

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
DMABUF_KERNEL = (5, 12)

PORT_DOWN = Check(
    "rdma.port.down",
    reads="state and phys_state of every port in /sys/class/infiniband that NCCL would use",
    fires="fail: NCCL_IB_HCA names a port that is not active, or no port is, though one is not switched off. "
    "warn: one is not active while others of the same board are",
    fix="Look at the cable and the switch's port",
)
PORT_UNMANAGED = Check(
    "rdma.port.unmanaged",
    reads="state and phys_state of every InfiniBand port",
    fires="fail: the link is up and the port stays in INIT or ARMED: no subnet manager has set it up",
    fix="Start a subnet manager, on a switch or as opensm on one machine",
)
PORT_SLOW = Check(
    "rdma.port.slow",
    reads="rate of the active ports",
    fires="warn: slower than the others of the same board on this node",
    fix="Change the cable or the transceiver; look at the switch's port",
)
LAYERS_MIXED = Check(
    "rdma.layers.mixed",
    reads="link_layer of the active ports that NCCL would use",
    fires="warn: InfiniBand and Ethernet ports are used together, as NCCL_IB_HCA does not choose",
    fix="The step gpu_stack writes NCCL_IB_HCA into /etc/nccl.conf (nccl_conf)",
)
GID_MISSING = Check(
    "rdma.gid.missing",
    reads="the GIDs of active Ethernet ports (RoCE)",
    fires="warn: none is RoCE v2 with an IPv4 address, which NCCL looks for",
    fix="Give the adapter's interface an IPv4 address",
)
ERRORS = Check(
    "rdma.errors",
    reads="error counters of the ports, at the beginning and at the end of the look",
    fires="warn: they grow while looked at (NCCL's networking troubleshooting guide)",
    fix="Change the cable or the transceiver; with RoCE look at flow control (PFC, ECN) on the switch",
)
DEVICES_MISSING = Check(
    "rdma.devices.missing",
    reads="/dev/infiniband/uverbs*",
    fires="fail: there is an active port, and none of these files: a rank cannot open the adapter",
    fix="sudo modprobe ib_uverbs; a container needs --device /dev/infiniband",
)
GPUDIRECT_MISSING = Check(
    "rdma.gpudirect.missing",
    reads="kernel modules, the driver's kind, the kernel's version",
    fires="warn: GPUs and active RDMA ports, and neither nvidia_peermem nor DMA-BUF (open driver and kernel 5.12): "
    "every message takes the way through the processor's memory (NCCL's GPU troubleshooting guide)",
    fix="sudo modprobe nvidia-peermem, or the open kernel modules",
)
FIRMWARE_MIXED = Check(
    "rdma.firmware.mixed",
    reads="fw_ver of adapters of the same board",
    fires="warn: they differ on one node",
    fix="Update the older ones",
)
CHECKS = (
    PORT_DOWN,
    PORT_UNMANAGED,
    PORT_SLOW,
    LAYERS_MIXED,
    GID_MISSING,
    ERRORS,
    DEVICES_MISSING,
    GPUDIRECT_MISSING,
    FIRMWARE_MIXED,
)


def facts_of(look: Mapping[str, Any], later: Mapping[str, Mapping[str, int]], hca: str) -> dict[str, Any]:
    """later: counters by "device/port" at the end of the look. hca: NCCL_IB_HCA, where a file sets it."""
    ports = [
        {
            "name": f"{name}:{number}",
            "device": name,
            "board": device["board"] or device["kind"],
            "state": port["state"].partition(":")[2].strip(),
            "physical": port["phys_state"].partition(":")[2].strip(),
            "rate": _rate(port["rate"]),
            "layer": port["link_layer"],
            "gids": port["gids"],
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


def judge(facts: Mapping[str, Any], request: Mapping[str, Any]) -> Iterator[Said]:
    node = request["node"]
    seen = facts["rdma"]
    if not seen["devices"]:
        yield from skip_all(CHECKS, "the node has no RDMA adapter")
        return
    if request["backend"] != "nccl":
        yield from skip_all(CHECKS, "a launch with Gloo uses TCP alone")
        return
    ports = [port for port in seen["ports"] if port["used"]]
    active = [port for port in ports if port["state"] == "ACTIVE"]
    yield from _down(node, ports, active, bool(seen["hca"]) and not seen["hca"].startswith("^"))
    for port in active:
        if port["grown"]:
            grown = ", ".join(f"{key} by {value}" for key, value in port["grown"].items())
            yield ERRORS.warn(
                node,
                f"errors of {port['name']} grew within the second in which it was looked at: {grown}",
                "Change its cable or transceiver, and look at the switch's port",
                f"rdma statistic show link {port['device']}/{port['name'].partition(':')[2]}",
                observed=grown,
                expected="none",
            )
    yield from _speed(node, active)
    yield from _layers(node, active)
    if active and not seen["uverbs"]:
        container = facts["system"]["container"]
        yield DEVICES_MISSING.fail(
            node,
            "there is no /dev/infiniband/uverbs*, so that no rank can open an RDMA adapter",
            "Start the container with --device /dev/infiniband" if container else "Load the module",
            "" if container else "sudo modprobe ib_uverbs",
        )
    yield from _direct(node, facts, request, active)
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
                "Start one, on a switch or on one machine of the fabric; whether there is one is told by",
                "sudo sminfo",
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
                    "Change its cable or transceiver, and look at the switch's port",
                    f"sudo mlxlink -d {port['device']}",
                    observed=f"{port['rate']:g} Gbit/s",
                    expected=f"{best:g} Gbit/s",
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
            "Name those of the training in nccl_conf (NCCL_IB_HCA), then type",
            "ansible-playbook site.yml --tags gpu_stack",
            observed=shown,
            expected="one kind",
        )
    for port in active:
        # Adapters of iWARP have no types, and no need for them.
        typed = [gid for gid in port["gids"].values() if gid["type"]] or not port["gids"]
        if port["layer"] == "Ethernet" and typed and not any(_is_routable(gid) for gid in port["gids"].values()):
            yield GID_MISSING.warn(
                node,
                f"{port['name']} has no GID of RoCE v2 with an IPv4 address, which NCCL looks for",
                "Give its interface an IPv4 address",
                "rdma link show && ip -br addr",
                observed=", ".join(f"{gid['gid']} ({gid['type']})" for gid in port["gids"].values()) or "none",
                expected="RoCE v2, ::ffff:a.b.c.d",
            )


def _is_routable(gid: Mapping[str, str]) -> bool:
    try:
        address = ipaddress.IPv6Address(gid["gid"])
    except ValueError:
        return False
    return gid["type"].replace(" ", "").lower() == "rocev2" and address.ipv4_mapped is not None


def _direct(
    node: str, facts: Mapping[str, Any], request: Mapping[str, Any], active: list[dict[str, Any]]
) -> Iterator[Said]:
    if not request["gpus"] or not active:
        yield GPUDIRECT_MISSING.skip("it takes GPUs and an active RDMA port")
        return
    modules, driver = facts["host"]["modules"], facts["driver"]
    if not driver["loaded"]:
        yield GPUDIRECT_MISSING.skip("the driver of NVIDIA is not loaded")
    elif not {"nvidia_peermem", "nv_peer_mem"} & set(modules) and not (driver["open"] and _has_dmabuf(facts)):
        yield GPUDIRECT_MISSING.warn(
            node,
            "RDMA adapters cannot reach the GPUs' memory: nvidia_peermem is not loaded, and "
            + ("its kernel is older than 5.12" if driver["open"] else "DMA-BUF needs the open kernel modules"),
            "Load it, now and at every start",
            "sudo modprobe nvidia-peermem && echo nvidia-peermem | sudo tee /etc/modules-load.d/nvidia-peermem.conf",
            observed="neither",
            expected="nvidia_peermem or DMA-BUF",
        )


def _has_dmabuf(facts: Mapping[str, Any]) -> bool:
    numbers = re.match(r"(\d+)\.(\d+)", facts["system"]["kernel"])
    return numbers is not None and (int(numbers[1]), int(numbers[2])) >= DMABUF_KERNEL


def _firmware(node: str, devices: Mapping[str, Mapping[str, str]]) -> Iterator[Said]:
    for board, versions in firmware(devices):
        if len(versions) > 1:
            shown = "; ".join(f"{version}: {', '.join(names)}" for version, names in versions.items())
            yield FIRMWARE_MIXED.warn(
                node,
                f"adapters of the kind {board} have different firmware ({shown})",
                "Update the older ones; what there is for them is shown by",
                "sudo mlxfwmanager --query",
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
