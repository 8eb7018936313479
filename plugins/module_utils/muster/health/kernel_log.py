"""What the kernel has logged since the start: errors of GPUs, NVSwitches, the bus, memory, disks and links."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..verdict.entry import Entry
from ..verdict.finding import evidence
from .judged import Judged, age

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .judged import Outcome

DAY = 86400
MOST_SHOWN = 3

# NVIDIA's catalogue of Xids (docs.nvidia.com, "Analyzing Xid Errors with the Xid Catalog", for Ampere and newer), by
# the action that it asks for at once. Those of applications (restart it, or nothing) are no fault of the node.
RESET = frozenset({46, 48, 62, 64, 74, 95, 109, 110, 119, 120, 136, 140, 143, 155, 156, 158, *range(144, 151)})
RESTART = frozenset({79})
LOOK_INSIDE = frozenset({54})
# High rate of corrected errors, an error that was contained, a row that was remapped: to be watched.
WATCH = frozenset({63, 92, 94, 157, 160, 161})
RECOVERY = 154
XID = re.compile(r"NVRM: Xid \(PCI:([0-9a-fA-F:.]+)\): (\d+),? ?(.*)")
SXID = re.compile(r"nvidia-nvswitch\d*: SXid \(PCI:([0-9a-fA-F:.]+)\): (\d+), (Fatal|Non-fatal),? ?(.*)", re.IGNORECASE)
RECOVERY_TO = re.compile(r"changed from \S+ \(.*?\) to \S+ \((.*?)\)")
# The driver is loaded anew: what it logged before is over.
LOADED = re.compile(r"NVRM: loading NVIDIA UNIX")


@dataclass(frozen=True)
class Sign:
    """A kind of line. within: how many seconds back it counts. least: from how many on."""

    pattern: re.Pattern[str]
    id: str
    status: str
    summary: str
    text: str
    command: str
    within: float = DAY
    least: int = 1


SIGNS = (
    Sign(
        re.compile(r"[Oo]ut of memory: Killed process \d+ \((?P<what>.+?)\)"),
        "os.oom",
        "warn",
        "the kernel ended {what} for lack of memory",
        "Give the job more memory, or fewer data loaders; who used it is told by",
        "sudo journalctl -k -b --grep='oom|Killed process'",
    ),
    Sign(
        re.compile(r"Remounting filesystem read-only|md/raid.*: Disk failure on (?P<what>\S+) .*failing array"),
        "os.disk.read_only",
        "fail",
        "a file system or an array has failed: {line}",
        "Look at the disk, and repair the file system before the next start",
        "findmnt -O ro && sudo journalctl -k -b --grep='EXT4-fs error|XFS|I/O error|md/raid'",
        within=float("inf"),
    ),
    Sign(
        re.compile(
            r"I/O error,? (on )?dev(ice)? (?P<what>(?!loop|sr\d|fd\d)\w+)"
            r"|nvme (?P<other>nvme\d+): .*(timeout, reset|Disabling)"
        ),
        "os.disk.errors",
        "warn",
        "the disk {what} has had errors",
        "Look at its own records",
        "sudo smartctl -a /dev/{what}",
    ),
    Sign(
        re.compile(
            r"task (?P<what>\S+?):\d+ blocked for more than \d+ seconds"
            r"|soft lockup - CPU#\d+ stuck for \d+s! \[(?P<other>.+?):\d+\]"
        ),
        "os.hung_task",
        "warn",
        "{what} was stuck in the kernel for minutes",
        "Look at what it waited for: often a network file system or a GPU",
        "sudo journalctl -k -b --grep='blocked for more|soft lockup' -A 20",
    ),
    Sign(
        re.compile(r"\[Hardware Error\]|Machine check events logged|EDAC .*\bUE\b"),
        "os.machine_check",
        "warn",
        "the processor or its memory has reported errors",
        "Look at the firmware's event log, and test the memory",
        "sudo journalctl -k -b --grep='Hardware Error|EDAC|Machine check'; sudo ipmitool sel list",
    ),
    Sign(
        re.compile(r"AER: .*Uncorrect(ed|able).*|PCIe Bus Error: severity=Uncorrect(ed|able).*"),
        "pci.aer",
        "warn",
        "a device on the bus has had uncorrectable errors",
        "Seat it anew, and look at its slot, riser and power",
        "sudo journalctl -k -b --grep='AER|PCIe Bus Error'",
    ),
    Sign(
        re.compile(r"AER: .*Corrected|PCIe Bus Error: severity=Corrected"),
        "pci.aer",
        "warn",
        "a device on the bus keeps correcting errors of its link",
        "Seat it anew, and look at its slot and riser",
        "sudo journalctl -k -b --grep='AER|PCIe Bus Error'",
        least=10,
    ),
    Sign(
        re.compile(r"Detected insufficient power on the PCIe slot"),
        "pci.power",
        "warn",
        "a slot gives its network adapter too little power",
        "Look at the slot's limit in the firmware, and at the power supplies",
        "sudo journalctl -k -b --grep='insufficient power'",
        within=float("inf"),
    ),
    Sign(
        re.compile(r"Port module event.*High Temperature"),
        "rdma.module.hot",
        "warn",
        "a transceiver gets too hot",
        "Look at the cooling, and reseat or change it",
        "sudo journalctl -k -b --grep='Port module event'",
    ),
    Sign(
        re.compile(r"nf_conntrack: (nf_conntrack: )?table full"),
        "os.conntrack.full",
        "warn",
        "connections were dropped, because the table of tracked ones was full",
        "Raise the limit",
        "sudo sysctl -w net.netfilter.nf_conntrack_max=1048576",
    ),
    Sign(
        re.compile(r"segfault at .* in libnccl"),
        "sw.nccl.crashed",
        "warn",
        "NCCL crashed in a process",
        "Look whether the versions fit, and at the stack limit; the lines are shown by",
        "sudo journalctl -k -b --grep=libnccl",
    ),
)

FINDINGS = {
    "gpu.xid": Entry(
        reads="Xids of NVIDIA's driver in the kernel's log, since it was last loaded",
        fires="fail: within the last day, one for which NVIDIA's catalogue asks to reset the GPU, to restart the "
        "machine or to look inside. warn: the same, but longer ago or with a driver that asks for nothing any "
        "more, or one to be watched (63, 92, 94, 157, 160, 161). "
        "Those of applications (13, 31, 43, 45 and others) count for nothing",
        fix="What the catalogue asks for: reset the GPU while idle, or restart the machine; have it changed when it "
        "comes back",
    ),
    "nvlink.sxid": Entry(
        reads="SXids of NVSwitches in the kernel's log, since the driver was last loaded",
        fires="fail: a fatal one within the last day; warn: a fatal one before that, or 10 that are not within a day",
        fix="Reset all GPUs together with the fabric manager stopped; have the switch changed when it comes back",
    ),
    "os.oom": Entry(
        reads="the kernel's log",
        fires="warn: it ended a process for lack of memory within a day",
        fix="More memory, or fewer data loaders",
    ),
    "os.disk.read_only": Entry(
        reads="the kernel's log",
        fires="fail: a file system was made read-only after errors, or a disk array failed, since the start",
        fix="Repair the file system, change the disk",
    ),
    "os.disk.errors": Entry(
        reads="the kernel's log", fires="warn: a disk had errors within a day", fix="Look at the disk's own records"
    ),
    "os.hung_task": Entry(
        reads="the kernel's log",
        fires="warn: a process was stuck in the kernel for two minutes, or a processor without end, within a day",
        fix="Look at what it waited for",
    ),
    "os.machine_check": Entry(
        reads="the kernel's log",
        fires="warn: the processor or its memory reported errors within a day",
        fix="Look at the firmware's event log",
    ),
    "os.nfs": Entry(
        reads="the kernel's log",
        fires="warn: a server of files does not respond, and was not said to be back since",
        fix="Look at the server and the way to it",
    ),
    "pci.power": Entry(
        reads="the kernel's log",
        fires="warn: a network adapter said that its slot gives it too little power, since the start",
        fix="Look at the slot's limit and the power supplies",
    ),
    "rdma.module.hot": Entry(
        reads="the kernel's log", fires="warn: a transceiver was too hot within a day", fix="Look at the cooling"
    ),
    "eth.flapping": Entry(
        reads="the kernel's log",
        fires="warn: the training interface lost its link 5 times or more within a day (Azure's node checks)",
        fix="Change the cable or the transceiver",
    ),
    "sw.nccl.crashed": Entry(
        reads="the kernel's log",
        fires="warn: a process crashed inside libnccl within a day",
        fix="Look at the versions",
    ),
}
FLAPS = 5
LINK_LOST = re.compile(r"(?:^| )(\S+?): .*(?:Link is Down|link down|lost carrier|Lost Link)", re.IGNORECASE)
NFS = re.compile(r"nfs: server (\S+) (not responding|OK)")
MANY = 10
LOOKS = ("kernel_log",)


def judge(facts: Mapping[str, Any], request: Mapping[str, Any]) -> Outcome:
    """facts["kernel_log"]: {why, source, lines: [{age, text}]}, the oldest first."""
    out = Judged(request["node"])
    log = facts["kernel_log"]
    if facts["system"]["container"]:
        return out.skip_all(
            FINDINGS, f"the kernel's log is that of the container's ({facts['system']['virtual']}) host"
        )
    if log["why"]:
        return out.skip_all(FINDINGS, log["why"])
    lines = log["lines"]
    # Newer drivers say themselves what a GPU still needs; after a reset, that is nothing.
    over_with = {each["slot"]: each["recovery"] == "" for each in facts["gpu"]["gpus"]}
    _gpus(out, lines, log["source"], request, over_with)
    for sign in SIGNS:
        hits = [
            (line, match)
            for line in lines
            if (match := sign.pattern.search(line["text"])) and line["age"] <= sign.within
        ]
        if len(hits) >= sign.least:
            _tell(out, sign, hits, log["source"])
    _flapping(out, lines, facts["ethernet"]["name"])
    _nfs(out, lines)
    return out.outcome


def _gpus(
    out: Judged,
    lines: Sequence[Mapping[str, Any]],
    source: str,
    request: Mapping[str, Any],
    over_with: Mapping[str, bool],
) -> None:
    if not request["gpus"]:
        out.skip("cluster_gpus is 0, so that no launch uses its GPUs", "gpu.xid", "nvlink.sxid")
        return
    starts = [number for number, line in enumerate(lines) if LOADED.search(line["text"])]
    since = lines[starts[-1] + 1 :] if starts else lines
    _xids(out, since, source, over_with)
    _sxids(out, since, source)


def _xids(out: Judged, lines: Sequence[Mapping[str, Any]], source: str, over_with: Mapping[str, bool]) -> None:
    """One finding for each GPU: its worst, and newest. over_with: whether the driver asks for nothing any more."""
    worst: dict[str, tuple[str, int, Mapping[str, Any]]] = {}
    for line in lines:
        match = XID.search(line["text"])
        if match is None:
            continue
        slot, code, rest = _slot(match[1]), int(match[2]), match[3]
        action = action_for(code, rest)
        if action and (slot not in worst or _rank(action) >= _rank(worst[slot][0])):
            worst[slot] = (action, code, line)
    for slot, (action, code, line) in worst.items():
        over = over_with.get(slot, False)
        report = out.fail if action != "watch" and line["age"] <= DAY and not over else out.warn
        text, command = {
            "reset": (
                "Reset it while nothing uses it; if that fails, restart the node",
                f"sudo nvidia-smi -r -i {slot}",
            ),
            "restart": (
                "Restart the node; if the GPU stays away, cut its power, then have it changed",
                "sudo systemctl reboot",
            ),
            "inside": ("Look at the GPU's power cable and seat", f"nvidia-smi -q -i {slot} -d POWER"),
            "watch": ("Watch it; if it goes on, have the GPU changed", f"nvidia-smi -q -i {slot} -d ECC,ROW_REMAPPER"),
        }[action]
        said = line["text"][line["text"].find("NVRM") :]
        report(
            "gpu.xid",
            f"the GPU {slot} logged Xid {code}, {age(line['age'])} ago: {_words(said)}",
            text,
            command,
            observed=f"Xid {code}",
            expected="none",
            evidence=evidence(source, said),
        )


def _slot(said: str) -> str:
    """As the bus has it: the driver leaves the function out."""
    return said.lower() if "." in said else f"{said.lower()}.0"


def _rank(action: str) -> int:
    return ("watch", "inside", "reset", "restart").index(action)


def action_for(code: int, rest: str) -> str:
    """What is to be done with the GPU; nothing for what an application did."""
    if code == RECOVERY:
        asked = RECOVERY_TO.search(rest)
        wanted = asked[1] if asked else ""
        return "restart" if "Reboot" in wanted else "reset" if wanted and wanted != "None" else ""
    for codes, action in ((RESTART, "restart"), (RESET, "reset"), (LOOK_INSIDE, "inside"), (WATCH, "watch")):
        if code in codes:
            return action
    return ""


def _words(text: str) -> str:
    """The sentence of an Xid's line, without who was running."""
    said = text.split("): ", 1)[-1].partition(",")[2].strip()
    return re.sub(r"^pid=[^,]*,( name=[^,]*,)? ?", "", said)[:120].rstrip(".!") or "it says no more"


def _sxids(out: Judged, lines: Sequence[Mapping[str, Any]], source: str) -> None:
    found = [(line, match) for line in lines if (match := SXID.search(line["text"]))]
    fatal = [(line, match) for line, match in found if match[3].lower() == "fatal"]
    recent = [(line, match) for line, match in found if line["age"] <= DAY]
    if not fatal and len(recent) < MANY:
        return
    line, match = (fatal or recent)[-1]
    report = out.fail if fatal and line["age"] <= DAY else out.warn
    report(
        "nvlink.sxid",
        f"the NVSwitch {match[1]} logged SXid {match[2]}, {match[3].lower()}, {age(line['age'])} ago: {match[4][:100]}",
        "Reset all GPUs together with the fabric manager stopped; if it comes back, have the switch changed",
        "sudo systemctl stop nvidia-fabricmanager && sudo nvidia-smi -r && sudo systemctl start nvidia-fabricmanager",
        observed=f"{len(fatal)} fatal, {len(found) - len(fatal)} not",
        expected="none",
        evidence=evidence(source, match[0]),
    )


def _tell(out: Judged, sign: Sign, hits: Sequence[tuple[Mapping[str, Any], re.Match[str]]], source: str) -> None:
    line, match = hits[-1]
    named = {key: value for key, value in match.groupdict().items() if value}
    what = named.get("what") or named.get("other") or "something"
    times = f" {len(hits)} times, the last" if len(hits) > 1 else ""
    report = {"fail": out.fail, "warn": out.warn}[sign.status]
    report(
        sign.id,
        f"{sign.summary.format(what=what, line=line['text'][:120])},{times} {age(line['age'])} ago",
        sign.text,
        sign.command.format(what=what),
        observed=f"{len(hits)} in the log",
        expected="none",
        evidence=[*(entry for each, _ in hits[-MOST_SHOWN:] for entry in evidence(source, each["text"]))],
    )


def _flapping(out: Judged, lines: Sequence[Mapping[str, Any]], interface: str) -> None:
    lost = [
        line
        for line in lines
        if line["age"] <= DAY and (match := LINK_LOST.search(line["text"])) and match[1].rstrip(":") == interface
    ]
    if len(lost) >= FLAPS:
        out.warn(
            "eth.flapping",
            f"{interface} lost its link {len(lost)} times within a day, the last {age(lost[-1]['age'])} ago",
            "Change its cable or transceiver, and look at the switch's port",
            f"sudo journalctl -k -b --grep={interface}",
            observed=str(len(lost)),
            expected=f"less than {FLAPS}",
            evidence=evidence("kernel log", lost[-1]["text"]),
        )


def _nfs(out: Judged, lines: Sequence[Mapping[str, Any]]) -> None:
    last = {match[1].rstrip(","): (match[2], line) for line in lines if (match := NFS.search(line["text"]))}
    for server, (state, line) in last.items():
        if state != "OK":
            out.warn(
                "os.nfs",
                f"the file server {server} does not respond, since {age(line['age'])}",
                "Look at it, and at the way to it",
                f"ping -c 3 {server}",
                evidence=evidence("kernel log", line["text"]),
            )
