"""What the kernel has logged since the start: errors of GPUs, NVSwitches, the bus, memory, disks and links."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..gpu_info.values import address
from ..verdict.check import Check, collect, skip_all
from ..verdict.commands import shell
from ..verdict.finding import evidence
from ..verdict.words import age
from .host import CONNTRACK_FULL
from .kernel_gaps import not_seen
from .pci import AER
from .xids import ACTIONS, SXID_LINE, words, worst

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ..verdict.check import Said
    from ..verdict.finding import Finding, Skipped

DAY = 86400
MOST_SHOWN = 3

XID = Check(
    "gpu.xid",
    seen="stand-in",
    reads="Xids of NVIDIA's driver in the kernel's log, since it was last loaded",
    fires="fail: within the last day, one for which NVIDIA's catalogue asks to reset the GPU, to restart the "
    "machine or to look inside. warn: the same, but longer ago or with a driver that asks for nothing any "
    "more, or one to be watched (63, 92, 94, 157, 160, 161, and a non-fatal one of NVLink 5, 144 to 150). "
    "Those of applications (13, 31, 43, 45 and others) count for nothing",
    fix="What the catalogue asks for: reset the GPU while idle, or restart the machine; have it replaced when it "
    "comes back",
)
SXID = Check(
    "nvlink.sxid",
    seen="stand-in",
    reads="SXids of NVSwitches in the kernel's log, since the driver was last loaded",
    fires="fail: a fatal one within the last day; warn: a fatal one before that, or 10 that are not within a day",
    fix="Reset all GPUs together with the fabric manager stopped; have the switch replaced when it comes back",
)
OOM = Check(
    "os.oom",
    seen="recording",
    reads="the kernel's log",
    fires="warn: it ended a process for lack of memory within a day",
    fix="Give the job more memory, or use fewer data loaders",
)
DISK_READ_ONLY = Check(
    "os.disk.read_only",
    seen="stand-in",
    reads="the kernel's log",
    fires="fail: a file system was made read-only after errors, or a disk array failed, since the start",
    fix="Repair the file system, and replace the disk if it fails again",
)
DISK_ERRORS = Check(
    "os.disk.errors",
    seen="stand-in",
    reads="the kernel's log",
    fires="warn: a disk had errors within a day",
    fix="Look at the disk's own records",
)
HUNG_TASK = Check(
    "os.hung_task",
    seen="stand-in",
    reads="the kernel's log",
    fires="warn: a process was stuck in the kernel for two minutes, or a processor without end, within a day",
    fix="Look at what it waited for",
)
MACHINE_CHECK = Check(
    "os.machine_check",
    seen="stand-in",
    reads="the kernel's log",
    fires="warn: the processor or its memory reported errors within a day",
    fix="Look at the firmware's event log",
)
NFS = Check(
    "os.nfs",
    seen="stand-in",
    reads="the kernel's log",
    fires="warn: a server of files does not respond, and was not said to be back since",
    fix="Look at the server and the way to it",
)
POWER = Check(
    "pci.power",
    seen="stand-in",
    reads="the kernel's log",
    fires="warn: a network adapter said that its slot gives it too little power, since the start",
    fix="Look at the slot's limit and the power supplies",
)
MODULE_HOT = Check(
    "rdma.module.hot",
    seen="stand-in",
    reads="the kernel's log",
    fires="warn: a transceiver was too hot within a day",
    fix="Look at the cooling",
)
FLAPPING = Check(
    "eth.flapping",
    seen="stand-in",
    reads="the kernel's log",
    fires="warn: the training interface lost its link 5 times or more within a day (Azure's node checks)",
    fix="Change the cable or the transceiver",
)
NCCL_CRASHED = Check(
    "sw.nccl.crashed",
    seen="stand-in",
    reads="the kernel's log",
    fires="warn: a process crashed inside libnccl within a day",
    fix="Compare the versions of torch, NCCL and the driver with the other nodes', and look at the stack limit",
)
OF_GPUS = (XID, SXID)
CHECKS = (
    *(*OF_GPUS, OOM, DISK_READ_ONLY, DISK_ERRORS, HUNG_TASK, MACHINE_CHECK, NFS),
    *(POWER, MODULE_HOT, FLAPPING, NCCL_CRASHED),
)
LOOKS = ("kernel_log",)


@dataclass(frozen=True)
class Sign:
    """A kind of line, and what is found by it. kind: what the look calls it.

    within: how many seconds back it counts. least: from how many on.
    """

    kind: str
    check: Check
    summary: str
    fix: str
    command: str
    within: float = DAY
    least: int = 1
    fails: bool = False


SIGNS = (
    Sign(
        "oom",
        OOM,
        "the kernel ended {what} for lack of memory",
        "Give the job more memory, or fewer data loaders; who used it is shown by",
        "sudo journalctl -k -b --grep='oom|Killed process'",
    ),
    Sign(
        "read_only",
        DISK_READ_ONLY,
        "a file system or an array has failed: {line}",
        "Look at the disk, and repair the file system before the next start",
        "findmnt -O ro && sudo journalctl -k -b --grep='EXT4-fs error|XFS|I/O error|md/raid'",
        within=math.inf,
        fails=True,
    ),
    Sign(
        "disk",
        DISK_ERRORS,
        "the disk {what} has had errors",
        "Look at its own records",
        "sudo smartctl -a /dev/{what}",
    ),
    Sign(
        "hung",
        HUNG_TASK,
        "{what} was stuck in the kernel for minutes",
        "Look at what it waited for: often a network file system or a GPU",
        "sudo journalctl -k -b --grep='blocked for more|soft lockup' -A 20",
    ),
    Sign(
        "machine_check",
        MACHINE_CHECK,
        "the processor or its memory has reported errors",
        "Look at the firmware's event log, and test the memory",
        "sudo journalctl -k -b --grep='Hardware Error|EDAC|Machine check'; sudo ipmitool sel list",
    ),
    Sign(
        "aer_uncorrected",
        AER,
        "a device on the bus has had uncorrectable errors",
        "Reseat it, and look at its slot, riser and power",
        "sudo journalctl -k -b --grep='AER|PCIe Bus Error'",
    ),
    Sign(
        "aer_corrected",
        AER,
        "a device on the bus keeps correcting errors of its link",
        "Reseat it, and look at its slot and riser",
        "sudo journalctl -k -b --grep='AER|PCIe Bus Error'",
        least=10,
    ),
    Sign(
        "power",
        POWER,
        "a slot gives its network adapter too little power",
        "Look at the slot's limit in the firmware, and at the power supplies",
        "sudo journalctl -k -b --grep='insufficient power'",
        within=math.inf,
    ),
    Sign(
        "module_hot",
        MODULE_HOT,
        "a transceiver gets too hot",
        "Look at the cooling, and reseat or change it",
        "sudo journalctl -k -b --grep='Port module event'",
    ),
    Sign(
        "conntrack",
        CONNTRACK_FULL,
        "connections were dropped, because the table of tracked ones was full",
        "Raise the limit",
        "sudo sysctl -w net.netfilter.nf_conntrack_max=1048576",
    ),
    Sign(
        "nccl",
        NCCL_CRASHED,
        "NCCL crashed in a process",
        "Look whether the versions fit, and at the stack limit; the lines are shown by",
        "sudo journalctl -k -b --grep=libnccl",
    ),
)
FLAPS = 5
MANY = 10


def judge(facts: Mapping[str, Any], request: Mapping[str, Any]) -> Iterator[Said]:
    """facts["kernel_log"]: {why, source, lines: [{age, text, kind, which}], reach, cut}, the oldest first."""
    node = request["node"]
    log = facts["kernel_log"]
    if facts["system"]["container"]:
        yield from skip_all(CHECKS, f"the kernel's log is that of the container's ({facts['system']['virtual']}) host")
        return
    if log["why"]:
        yield from skip_all(CHECKS, log["why"])
        return
    said = list(_found(node, log, facts, request))
    yield from said
    found = {one.id for one in collect(said).findings}
    yield from (skip for skip in _not_seen(log) if skip["id"] not in found)


def _not_seen(log: Mapping[str, Any]) -> Iterator[Skipped]:
    again = any(line["kind"] == "loaded" for line in log["lines"])
    windows = dict.fromkeys(((XID, "xid"), (SXID, "sxid")), 0.0 if again else math.inf)
    windows |= {(sign.check, sign.kind): sign.within for sign in SIGNS}
    return not_seen(log, windows | {(FLAPPING, "link"): DAY, (NFS, "nfs"): math.inf})


def _found(node: str, log: Mapping[str, Any], facts: Mapping[str, Any], request: Mapping[str, Any]) -> Iterator[Said]:
    lines = log["lines"]
    # Newer drivers say themselves what a GPU still needs; after a reset, that is nothing.
    over_with = {each["slot"]: each["recovery"] == "" for each in facts["gpu"]["gpus"]}
    if request["gpus"]:
        yield from _gpus(node, log, over_with)
    else:
        yield from skip_all(OF_GPUS, "cluster_gpus is 0, so that no launch uses its GPUs")
    for sign in SIGNS:
        hits = [line for line in lines if line["kind"] == sign.kind and line["age"] <= sign.within]
        if len(hits) >= sign.least:
            yield _of_a_sign(node, sign, hits, log["source"])
    yield from _flapping(node, lines, facts["ethernet"]["name"])
    yield from _nfs(node, lines)


def _gpus(node: str, log: Mapping[str, Any], over_with: Mapping[str, bool]) -> Iterator[Said]:
    lines = log["lines"]
    # The driver was loaded anew: what it logged before is over.
    starts = [number for number, line in enumerate(lines) if line["kind"] == "loaded"]
    since = lines[starts[-1] + 1 :] if starts else lines
    yield from _xids(node, since, log["source"], over_with)
    yield from _sxids(node, since, log["source"])


def _xids(node: str, lines: Sequence[Mapping[str, Any]], source: str, over_with: Mapping[str, bool]) -> Iterator[Said]:
    """One finding for each GPU. over_with: whether the driver asks for nothing any more."""
    for slot, (action, code, line) in worst(lines, DAY).items():
        over = over_with.get(slot, False)
        report = XID.fail if action != "watch" and line["age"] <= DAY and not over else XID.warn
        fix, command = ACTIONS[action]
        said = line["text"][line["text"].find("NVRM") :]
        yield report(
            node,
            f"the GPU {slot} logged Xid {code}, {age(line['age'])} ago: {words(said)}",
            fix,
            command.format(gpu=address(slot)),
            observed=f"Xid {code}",
            expected="none",
            evidence=evidence(source, said),
        )


def _sxids(node: str, lines: Sequence[Mapping[str, Any]], source: str) -> Iterator[Said]:
    found = [(line, match) for line in lines if (match := SXID_LINE.search(line["text"]))]
    fatal = [(line, match) for line, match in found if match[3].lower() == "fatal"]
    recent = [(line, match) for line, match in found if line["age"] <= DAY]
    if not fatal and len(recent) < MANY:
        return
    line, match = (fatal or recent)[-1]
    report = SXID.fail if fatal and line["age"] <= DAY else SXID.warn
    yield report(
        node,
        f"the NVSwitch {match[1]} logged SXid {match[2]}, {match[3].lower()}, {age(line['age'])} ago: {match[4][:100]}",
        "Reset all GPUs together with the fabric manager stopped; if it comes back, have the switch replaced",
        "sudo systemctl stop nvidia-fabricmanager && sudo nvidia-smi -r && sudo systemctl start nvidia-fabricmanager",
        observed=f"{len(fatal)} fatal, {len(found) - len(fatal)} not",
        expected="none",
        evidence=evidence(source, match[0]),
    )


def _of_a_sign(node: str, sign: Sign, hits: Sequence[Mapping[str, Any]], source: str) -> Finding:
    line = hits[-1]
    what = next(filter(None, line["which"]), "something")
    times = f" {len(hits)} times, the last" if len(hits) > 1 else ""
    return (sign.check.fail if sign.fails else sign.check.warn)(
        node,
        f"{sign.summary.format(what=what, line=line['text'][:120])},{times} {age(line['age'])} ago",
        sign.fix,
        sign.command.format(what=what),
        observed=f"{len(hits)} in the log",
        expected="none",
        evidence=[*(entry for each in hits[-MOST_SHOWN:] for entry in evidence(source, each["text"]))],
    )


def _flapping(node: str, lines: Sequence[Mapping[str, Any]], interface: str) -> Iterator[Said]:
    lost = [
        line
        for line in lines
        if line["kind"] == "link" and line["age"] <= DAY and line["which"][1]
        if str(line["which"][0]).rstrip(":") == interface
    ]
    if len(lost) >= FLAPS:
        yield FLAPPING.warn(
            node,
            f"{interface} lost its link {len(lost)} times within a day, the last {age(lost[-1]['age'])} ago",
            "Change its cable or transceiver, and look at the switch's port",
            shell("sudo journalctl -k -b --grep={interface}", interface=interface),
            observed=str(len(lost)),
            expected=f"less than {FLAPS}",
            evidence=evidence("kernel log", lost[-1]["text"]),
        )


def _nfs(node: str, lines: Sequence[Mapping[str, Any]]) -> Iterator[Said]:
    last = {str(line["which"][0]).rstrip(","): (line["which"][1], line) for line in lines if line["kind"] == "nfs"}
    for server, (state, line) in last.items():
        if state != "OK":
            yield NFS.warn(
                node,
                f"the file server {server} does not respond, since {age(line['age'])}",
                "Look at it, and at the way to it",
                f"ping -c 3 {server}",
                evidence=evidence("kernel log", line["text"]),
            )
