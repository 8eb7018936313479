"""GPUs and RDMA adapters on the PCIe bus: ACS, IOMMU, link speed and errors."""

from __future__ import annotations

import re
import struct
from typing import TYPE_CHECKING, Any

from ..verdict.check import Check, skip_all
from ..verdict.commands import shell
from ..verdict.finding import evidence
from ..verdict.words import plural

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ..verdict.check import Said

# PCI Express base specification: offset of the extended capabilities, and the id of access control (ACS).
FIRST_CAPABILITY = 0x100
ACS = 0x000D
# Bits of its control register that redirect traffic between devices to the root.
REDIRECTS = {0x04: "ReqRedir", 0x08: "CmpltRedir", 0x10: "UpstreamFwd"}

ACS_REDIRECTS = Check(
    "pci.acs.redirects",
    seen="stand-in",
    reads="the ACS control register of every bridge above a GPU or an RDMA adapter (requires root)",
    fires="warn: ACS redirects traffic between devices to the root of the bus, so peer-to-peer traffic is slow "
    "or hangs (NCCL's GPU troubleshooting guide). Skipped in virtual machines, which need ACS, and in containers",
    fix="Disable ACS or IO virtualisation in the firmware. setpci disables ACS until the next boot",
)
IOMMU_TRANSLATES = Check(
    "pci.iommu.translates",
    seen="stand-in",
    reads="the type of each GPU's IOMMU group, and the kernel command line",
    fires="warn: the type is DMA or DMA-FQ, so the IOMMU translates peer traffic (NCCL's GPU troubleshooting guide)",
    fix="Add iommu=pt (on Arm: iommu.passthrough=1) to the kernel command line, or disable IO virtualisation in the"
    " firmware",
)
LINK_SLOW = Check(
    "pci.link.slow",
    seen="stand-in",
    reads="current and maximum link speed and width of RDMA adapters and of the bridges above them",
    fires="warn: the link is slower or narrower than both ends support",
    fix="Reseat the adapter, and check the slot and the riser",
)
AER = Check(
    "pci.aer",
    seen="recording",
    reads="counters of uncorrectable errors (AER) of RDMA adapters and of the bridges above adapters and GPUs, and the "
    "kernel log",
    fires="warn: a counter is not 0, or the log has AER errors from the last day",
    fix="Reseat the device, and check its slot, riser and power",
)
CHECKS = (ACS_REDIRECTS, IOMMU_TRANSLATES, LINK_SLOW, AER)
LOOKS = ("pci",)


def facts_of(looks: Mapping[str, Any], _: Mapping[str, Any]) -> dict[str, Any]:
    look = looks["pci"]
    return {
        "gpus": look["gpus"],
        "adapters": look["adapters"],
        "above": look["above"],
        "devices": {slot: _device(seen) for slot, seen in look["devices"].items()},
        "groups": look["groups"],
        "iommus": look["iommus"],
        "iommu_words": re.findall(r"\S*iommu\S*|pci=noacs", look["command_line"]),
    }


def _device(seen: Mapping[str, Any]) -> dict[str, Any]:
    totals = {
        kind: int(total[1])
        for kind, text in seen["errors"].items()
        if (total := re.search(r"^TOTAL_ERR\w* (\d+)", text, re.MULTILINE))
    }
    return {
        "speed": _speed(seen["current_link_speed"]),
        "width": _number(seen["current_link_width"]),
        "max_speed": _speed(seen["max_link_speed"]),
        "max_width": _number(seen["max_link_width"]),
        "numa": _number(seen["numa_node"]),
        "errors": totals,
        "acs": acs(bytes.fromhex(seen["configuration"])),
    }


def _speed(text: str) -> float | None:
    """Return the number in a link speed, such as 16.0 for "16.0 GT/s PCIe"."""
    number = re.match(r"([\d.]+) GT/s", text)
    return float(number[1]) if number else None


def _number(text: str) -> int | None:
    return int(text) if text.lstrip("-").isdigit() else None


def acs(configuration: bytes) -> int | None:
    """Return the control register of a device's ACS capability: -1 if the device has no such capability, None if it is
    unreadable."""
    if len(configuration) <= FIRST_CAPABILITY:
        return None
    place, seen = FIRST_CAPABILITY, set()
    while place >= FIRST_CAPABILITY and place not in seen and place + 8 <= len(configuration):
        seen.add(place)
        header = struct.unpack_from("<I", configuration, place)[0]
        if header & 0xFFFF == ACS:
            return int(struct.unpack_from("<H", configuration, place + 6)[0])
        place = header >> 20
    return -1


def judge(facts: Mapping[str, Any], request: Mapping[str, Any]) -> Iterator[Said]:
    node = request["node"]
    seen = facts["pci"]
    if not seen["above"]:
        yield from skip_all(CHECKS, "no NVIDIA GPU or RDMA adapter on the bus")
        return
    if not request["gpus"]:
        yield from skip_all(CHECKS, "cluster_gpus is 0, so launches use no GPU")
        return
    virtual = facts["system"]["virtual"]
    if virtual:
        of_the_machine = (ACS_REDIRECTS, IOMMU_TRANSLATES, LINK_SLOW)
        yield from skip_all(of_the_machine, f"in a virtual machine ({virtual}), the bus is emulated")
    elif len(seen["above"]) < 2:
        yield from skip_all((ACS_REDIRECTS, IOMMU_TRANSLATES), "a single device has no peer-to-peer traffic")
    else:
        yield from _acs(node, seen, facts)
        yield from _iommu(node, seen, facts)
    if not virtual:
        yield from _links(node, seen)
    yield from _errors(node, seen)


def _acs(node: str, seen: Mapping[str, Any], facts: Mapping[str, Any]) -> Iterator[Said]:
    between = list(_bridges(seen))
    if not facts["looked_as"]["root"]:
        yield ACS_REDIRECTS.skip("only root can read a bridge's configuration")
        return
    redirecting = {slot: _redirects(seen["devices"][slot]["acs"]) for slot in between}
    wrong = {slot: words for slot, words in redirecting.items() if words}
    if wrong:
        first = next(iter(wrong))
        yield ACS_REDIRECTS.warn(
            node,
            f"{len(wrong)} of {len(between)} bridges above GPUs redirect peer traffic to the root of the bus (ACS)",
            "Disable ACS in the firmware. Until the next boot, disable ACS on each bridge with",
            shell("sudo setpci -s {first} ECAP_ACS+0x6.w=0000", first=first),
            observed=", ".join(f"{slot} {'+'.join(words)}" for slot, words in list(wrong.items())[:4]),
            expected="none",
            evidence=evidence("ACS control", ", ".join(wrong)),
        )


def _redirects(control: int | None) -> list[str]:
    return [] if control is None or control < 0 else [word for bit, word in REDIRECTS.items() if control & bit]


def _bridges(seen: Mapping[str, Any]) -> Iterator[str]:
    yield from dict.fromkeys(slot for above in seen["above"].values() for slot in above)


def _iommu(node: str, seen: Mapping[str, Any], facts: Mapping[str, Any]) -> Iterator[Said]:
    if any(gpu["memory"]["total"] is None for gpu in facts["gpu"]["gpus"] if not gpu["lost"]):
        yield IOMMU_TRANSLATES.skip("the GPU is on the processor's chip and shares its memory")
        return
    # iommu=pt exists on x86 only (the kernel's list of parameters).
    passes = "iommu.passthrough=1" if facts["system"]["machine"] == "aarch64" else "iommu=pt"
    translated = [slot for slot, kind in seen["groups"].items() if kind.startswith("DMA")]
    if translated:
        words = " ".join(seen["iommu_words"])
        yield IOMMU_TRANSLATES.warn(
            node,
            f"the IOMMU translates every access of {plural(len(translated), 'GPU')}, which slows peer-to-peer traffic",
            f"Disable IO virtualisation in the firmware, or add {passes} to the kernel command line with",
            shell(
                "sudo sed -i {script} /etc/default/grub && sudo update-grub",
                script=f's/^GRUB_CMDLINE_LINUX="/&{passes} /',
            ),
            observed=words or "translation",
            expected=f"{passes}, or none",
            evidence=evidence("/sys/kernel/iommu_groups/*/type", ", ".join(translated)),
        )


def _links(node: str, seen: Mapping[str, Any]) -> Iterator[Said]:
    for name, slot in seen["adapters"].items():
        if slot not in seen["above"]:
            continue
        device = seen["devices"][slot]
        upper = seen["devices"][seen["above"][slot][-1]] if seen["above"][slot] else {}
        speed, width = (_least(device[key], upper.get(key)) for key in ("max_speed", "max_width"))
        if not (device["speed"] and device["width"] and speed and width):
            continue
        if device["speed"] < speed or device["width"] < width:
            yield LINK_SLOW.warn(
                node,
                f"{name} ({slot}) has a link of {device['speed']:g} GT/s x{device['width']}, but both ends support "
                f"{speed:g} GT/s x{width:g}",
                "Reseat the adapter, and check its slot and riser. Show the link with",
                shell("sudo lspci -s {slot} -vv | grep -E 'LnkCap|LnkSta'", slot=slot),
                observed=f"{device['speed']:g} GT/s x{device['width']}",
                expected=f"{speed:g} GT/s x{width:g}",
            )


def _least(one: float | None, other: float | None) -> float | None:
    known = [value for value in (one, other) if value]
    return min(known) if known else None


def _errors(node: str, seen: Mapping[str, Any]) -> Iterator[Said]:
    for slot, device in seen["devices"].items():
        if slot in seen["gpus"]:
            continue  # gpu.pcie.errors
        wrong = {kind: count for kind, count in device["errors"].items() if kind != "correctable" and count}
        if wrong:
            shown = ", ".join(f"{count} {kind}" for kind, count in wrong.items())
            yield AER.warn(
                node,
                f"the PCIe device {slot} has had uncorrectable errors since boot: {shown}",
                "Reseat the device, and check its slot, riser and power. Show the errors with",
                shell("sudo lspci -s {slot} -vv && sudo dmesg | grep -i aer", slot=slot),
                observed=shown,
                expected="none",
            )
