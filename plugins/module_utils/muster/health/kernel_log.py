"""The kernel log since boot: errors of GPUs, NVSwitches, the PCIe bus, memory, disks and links."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..gpu_info.values import address
from ..verdict.check import Check, collect, skip_all
from ..verdict.commands import shell
from ..verdict.finding import evidence
from ..verdict.words import age, few
from .fabric_manager import RESTART
from .gpu_node import GpuNode
from .host import CONNTRACK_FULL
from .kernel_gaps import not_seen
from .pci import AER
from .xids import ACTIONS, RECOVERY, SXID_LINE, words, worst

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ..verdict.check import Said
    from ..verdict.finding import Finding, Skipped

DAY = 86400
MOST_SHOWN = 3

XID = Check(
    "gpu.xid",
    seen="stand-in",
    reads="Xid messages of NVIDIA's driver in the kernel log since the driver was last loaded",
    fires="fail: within the last day, the driver logged an Xid for which NVIDIA's catalogue requires a GPU reset, a "
    "restart of the machine or a mechanical check. warn: such an Xid is older or the driver no longer requests an "
    "action, or requests a reset only when running work has finished, or an Xid requires attention (63, 92, 94, 157, "
    "160, 161 and others, and non-fatal Xids of NVLink 5, 144 to 150). unknown: the number is in no table. Application "
    "errors (Xid 13, 31, 43, 45 and others) are ignored",
    fix="Reset the idle GPU or restart the machine, as the catalogue says. If the Xid recurs, have the GPU replaced",
)
SXID = Check(
    "nvlink.sxid",
    seen="stand-in",
    reads="SXid messages of NVSwitches in the kernel log since the driver was last loaded",
    fires="fail: a fatal SXid within the last day. warn: an older fatal SXid, or 10 or more non-fatal SXids in a day",
    fix="Stop the fabric manager and reset all GPUs together. If the SXid recurs, have the NVSwitch replaced",
)
OOM = Check(
    "os.oom",
    seen="recording",
    reads="the kernel log",
    fires="warn: the OOM killer killed a process within the last day",
    fix="Give the job more memory, or use fewer data loaders",
)
DISK_READ_ONLY = Check(
    "os.disk.read_only",
    seen="stand-in",
    reads="the kernel log",
    fires="fail: a file system was remounted read-only after errors, or a disk array failed, since boot",
    fix="Repair the file system, and replace the disk if it fails again",
)
DISK_ERRORS = Check(
    "os.disk.errors",
    seen="stand-in",
    reads="the kernel log",
    fires="warn: a disk had errors within the last day",
    fix="Check the disk's SMART data",
)
HUNG_TASK = Check(
    "os.hung_task",
    seen="stand-in",
    reads="the kernel log",
    fires="warn: a process was blocked in the kernel for two minutes, or a CPU had a soft lockup, within the last day",
    fix="Find out which resource the process was waiting for",
)
MACHINE_CHECK = Check(
    "os.machine_check",
    seen="stand-in",
    reads="the kernel log",
    fires="warn: the processor or its memory reported errors within the last day",
    fix="Check the firmware's event log",
)
NFS = Check(
    "os.nfs",
    seen="stand-in",
    reads="the kernel log",
    fires="warn: an NFS server did not respond, and no later log line reports that the server responds again",
    fix="Check the NFS server and the network path to it",
)
POWER = Check(
    "pci.power",
    seen="stand-in",
    reads="the kernel log",
    fires="warn: since boot, a network adapter has reported insufficient power from its slot",
    fix="Check the slot's power limit and the power supplies",
)
MODULE_HOT = Check(
    "rdma.module.hot",
    seen="stand-in",
    reads="the kernel log",
    fires="warn: a transceiver overheated within the last day",
    fix="Check the cooling",
)
FLAPPING = Check(
    "eth.flapping",
    seen="stand-in",
    reads="the kernel log",
    fires="warn: the training interface lost its link at least 5 times within the last day (Azure's node checks)",
    fix="Replace the cable or the transceiver",
)
NCCL_CRASHED = Check(
    "sw.nccl.crashed",
    seen="stand-in",
    reads="the kernel log",
    fires="warn: a process crashed inside libnccl within the last day",
    fix="Compare the versions of torch, NCCL and the driver with those of other nodes, and check the stack limit",
)
OF_GPUS = (XID, SXID)
CHECKS = (
    *(*OF_GPUS, OOM, DISK_READ_ONLY, DISK_ERRORS, HUNG_TASK, MACHINE_CHECK, NFS),
    *(POWER, MODULE_HOT, FLAPPING, NCCL_CRASHED),
)
LOOKS = ("kernel_log",)


@dataclass(frozen=True)
class Sign:
    """A kind of log line and the finding that it produces. kind: the name of these lines in the collected data.

    within: maximum age of a line in seconds. least: minimum number of lines that produce the finding.
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
        "the OOM killer killed {what}",
        "Give the job more memory, or use fewer data loaders. Show the messages of the OOM killer with",
        "sudo journalctl -k -b --grep='oom|Killed process'",
    ),
    Sign(
        "read_only",
        DISK_READ_ONLY,
        "a file system or a disk array has failed: {line}",
        "Check the disk, and repair the file system before the next boot. Show the errors with",
        "findmnt -O ro && sudo journalctl -k -b --grep='EXT4-fs error|XFS|I/O error|md/raid'",
        within=math.inf,
        fails=True,
    ),
    Sign(
        "disk",
        DISK_ERRORS,
        "the disk {what} has had errors",
        "Check the disk's SMART data with",
        "sudo smartctl -a /dev/{what}",
    ),
    Sign(
        "hung",
        HUNG_TASK,
        "{what} was blocked in the kernel for minutes",
        "Find out what it was waiting for (often a network file system or a GPU) with",
        "sudo journalctl -k -b --grep='blocked for more|soft lockup' -A 20",
    ),
    Sign(
        "machine_check",
        MACHINE_CHECK,
        "the processor or the memory has reported errors",
        "Test the memory, and check the firmware's event log with",
        "sudo journalctl -k -b --grep='Hardware Error|EDAC|Machine check'; sudo ipmitool sel list",
    ),
    Sign(
        "aer_uncorrected",
        AER,
        "a PCIe device has had uncorrectable errors",
        "Reseat the device, and check its slot, riser and power. Show the errors with",
        "sudo journalctl -k -b --grep='AER|PCIe Bus Error'",
    ),
    Sign(
        "aer_corrected",
        AER,
        "a PCIe device repeatedly corrected errors on its link",
        "Reseat the device, and check its slot and riser. Show the errors with",
        "sudo journalctl -k -b --grep='AER|PCIe Bus Error'",
        least=10,
    ),
    Sign(
        "power",
        POWER,
        "a slot provides too little power for its network adapter",
        "Check the power supplies and the slot's limit in the firmware. Show the log lines with",
        "sudo journalctl -k -b --grep='insufficient power'",
        within=math.inf,
    ),
    Sign(
        "module_hot",
        MODULE_HOT,
        "a transceiver has overheated",
        "Check the cooling, and reseat or replace the transceiver. Show the log lines with",
        "sudo journalctl -k -b --grep='Port module event'",
    ),
    Sign(
        "conntrack",
        CONNTRACK_FULL,
        "connections were dropped because the connection tracking table was full",
        "Raise the limit with",
        "sudo sysctl -w net.netfilter.nf_conntrack_max=1048576",
    ),
    Sign(
        "nccl",
        NCCL_CRASHED,
        "a process crashed in NCCL",
        "Compare the versions with the other nodes, and check the stack limit. Show the log lines with",
        "sudo journalctl -k -b --grep=libnccl",
    ),
)
FLAPS = 5
MANY = 10


def judge(facts: Mapping[str, Any], request: Mapping[str, Any]) -> Iterator[Said]:
    """Yield the findings of the kernel log. facts["kernel_log"]: {why, source, lines: [{age, text, kind, which}],
    reach, cut}, with the oldest line first."""
    node = request["node"]
    log = facts["kernel_log"]
    if facts["system"]["container"]:
        yield from skip_all(CHECKS, f"a container ({facts['system']['virtual']}) shows the kernel log of its host")
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
    if request["gpus"]:
        yield from _gpus(GpuNode(facts["gpu"], request), log)
    else:
        yield from skip_all(OF_GPUS, "cluster_gpus is 0, so launches use no GPU")
    for sign in SIGNS:
        hits = [line for line in lines if line["kind"] == sign.kind and line["age"] <= sign.within]
        if len(hits) >= sign.least:
            yield _of_a_sign(node, sign, hits, log["source"])
    yield from _flapping(node, lines, facts["ethernet"]["name"])
    yield from _nfs(node, lines)


def _gpus(node: GpuNode, log: Mapping[str, Any]) -> Iterator[Said]:
    lines = log["lines"]
    # The driver was reloaded: earlier messages no longer apply.
    starts = [number for number, line in enumerate(lines) if line["kind"] == "loaded"]
    since = lines[starts[-1] + 1 :] if starts else lines
    yield from _xids(node, since, log["source"])
    yield from _sxids(node.name, since, log["source"])


def _xids(node: GpuNode, lines: Sequence[Mapping[str, Any]], source: str) -> Iterator[Said]:
    """Yield one finding for all GPUs with the same Xid and action."""
    gpus = {gpu["slot"]: gpu for gpu in node.facts["gpus"]}
    groups: dict[tuple[str, int, str], list[tuple[str, Mapping[str, Any]]]] = defaultdict(list)
    for slot, (wanted, code, line, over) in worst(lines, DAY).items():
        # Newer drivers report the pending recovery action of a GPU; after a reset, none is pending.
        pending = gpus[slot]["recovery"] if slot in gpus else None
        if pending and code == RECOVERY:
            continue  # reported with the pending action
        action = "drain" if pending == "drain and reset" and wanted == "reset" else wanted
        mild = action in ("watch", "drain") or line["age"] > DAY or over or pending == ""
        status = "unknown" if action == "unknown" else "warn" if mild else "fail"
        groups[action, code, status].append((slot, line))
    for (action, code, status), found in groups.items():
        line, slots = found[-1][1], [slot for slot, _ in found]
        said = line["text"][line["text"].find("NVRM") :]
        fix, command = ACTIONS[action]
        if "reset" in command:
            others = node.together([gpus[slot] for slot in slots if slot in gpus])
            slots += [gpu["slot"] for gpu in others if gpu["slot"] not in slots]
        who = f"GPU {found[0][0]}" if len(found) == 1 else f"GPUs {few([slot for slot, _ in found])}"
        summary = f"{who} logged Xid {code} {age(line['age'])} ago: {words(said)}"
        command = command.format(gpu=",".join(map(address, slots)))
        report = {"unknown": XID.unknown, "warn": XID.warn, "fail": XID.fail}[status]
        seen = {"observed": f"Xid {code}", "expected": "none", "evidence": evidence(source, said)}
        yield report(node.name, summary, fix, command, **seen)


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
        f"NVSwitch {match[1]} logged SXid {match[2]} ({match[3].lower()}) {age(line['age'])} ago: {match[4][:100]}",
        "If the SXid recurs, have the NVSwitch replaced. Stop the fabric manager and reset all GPUs together with",
        RESTART,
        observed=f"{len(fatal)} fatal, {len(found) - len(fatal)} non-fatal",
        expected="none",
        evidence=evidence(source, match[0]),
    )


def _of_a_sign(node: str, sign: Sign, hits: Sequence[Mapping[str, Any]], source: str) -> Finding:
    line = hits[-1]
    what = next(filter(None, line["which"]), "an unknown process or device")
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
            f"{interface} lost its link {len(lost)} times in the last day, most recently {age(lost[-1]['age'])} ago",
            "Replace the cable or transceiver, and check the switch port. Show the log lines with",
            shell("sudo journalctl -k -b --grep={interface}", interface=interface),
            observed=str(len(lost)),
            expected=f"fewer than {FLAPS}",
            evidence=evidence("kernel log", lost[-1]["text"]),
        )


def _nfs(node: str, lines: Sequence[Mapping[str, Any]]) -> Iterator[Said]:
    last = {str(line["which"][0]).rstrip(","): (line["which"][1], line) for line in lines if line["kind"] == "nfs"}
    for server, (state, line) in last.items():
        if state != "OK":
            yield NFS.warn(
                node,
                f"the NFS server {server} has not responded for {age(line['age'])}",
                "Check the server and the network path to it with",
                f"ping -c 3 {server}",
                evidence=evidence("kernel log", line["text"]),
            )
