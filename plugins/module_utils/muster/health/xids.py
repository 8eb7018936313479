"""The meaning of Xid numbers and the action for each, with the source.

OF_PROGRAMS are errors of applications, which require a restart of the application or no action. They are not faults of
the node. Numbers in neither table are unknown. The catalogue covers Ampere and newer.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

# docs.nvidia.com/deploy/xid-errors, "Analyzing Xid Errors with the Xid Catalog", read on 2026-11-22: CATALOG is the
# column "Immediate Action", TEXT the page's text on the number.
CATALOG = "Xid Catalog, immediate action {}"
TEXT = "Xid Catalog, text: {}"
# The same page's second table: with NVLink 5 the message has the severity; most non-fatal Xids are to be ignored.
NVLINK5 = "Xid Catalog, table of NVLink 5: the log message contains the severity"


# With MIG on, the slice follows: "(PCI:0000:01:00 GPU-I:05 GPU-CI:00)" (NVIDIA/open-gpu-kernel-modules).
XID_LINE = re.compile(r"NVRM: Xid \(PCI:([0-9a-fA-F:.]{1,40})[^)]*\): (\d+),? ?(.*)")
SXID_LINE = re.compile(
    r"nvidia-nvswitch\d*: SXid \(PCI:([0-9a-fA-F:.]+)\): (\d+), (Fatal|Non-fatal),? ?(.*)", re.IGNORECASE
)


class Xid(NamedTuple):
    """The meaning of an Xid number. action: a key of ACTIONS. said: the log message contains the severity, and `action`
    applies only if it is fatal."""

    what: str
    action: str
    source: str
    said: bool = False


DRAIN = "Let running work finish, start no new work, and reset with"
# The fix for an Xid, the mildest first.
ACTIONS = {
    "watch": ("If the Xid recurs, replace the GPU. Check the GPU with", "nvidia-smi -q -i {gpu} -d ECC,ROW_REMAPPER"),
    "unknown": (
        "Look up the Xid in https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html. Check the GPU with",
        "nvidia-smi -q -i {gpu}",
    ),
    "drain": (DRAIN, "sudo nvidia-smi --gpu-reset -i {gpu}"),
    "inside": ("Check the GPU's power cable and seating. Show the power state with", "nvidia-smi -q -i {gpu} -d POWER"),
    "reset": (
        "If a reset fails, restart the node. While no process is using the GPU, reset it with",
        "sudo nvidia-smi --gpu-reset -i {gpu}",
    ),
    "restart": (
        "If the GPU is still missing after a restart, power-cycle the node or have the GPU replaced. Restart with",
        "sudo systemctl reboot",
    ),
}
RESET_GPU = CATALOG.format("RESET_GPU")
IGNORE = CATALOG.format("IGNORE, then {}")
XIDS = {
    46: Xid("the GPU stopped processing", "reset", RESET_GPU),
    48: Xid("double bit ECC error", "reset", TEXT.format("a reset or a reboot is needed to clear the error")),
    54: Xid("auxiliary power is not connected", "inside", CATALOG.format("CHECK_MECHANICALS")),
    62: Xid("internal micro-controller halt", "reset", RESET_GPU),
    63: Xid("a row of memory was remapped", "watch", CATALOG.format("IGNORE")),
    64: Xid("a row of memory could not be remapped", "reset", RESET_GPU),
    74: Xid("NVLink error, before Blackwell", "reset", TEXT.format("a reset or a reboot is needed to clear the error")),
    78: Xid("a vGPU could not be started", "watch", CATALOG.format("UPDATE_SWFW")),
    79: Xid("the GPU has fallen off the bus", "restart", CATALOG.format("RESTART_BM")),
    92: Xid("high rate of corrected ECC errors", "watch", IGNORE.format("CONTACT_SUPPORT")),
    93: Xid("the infoROM was written too often", "watch", IGNORE.format("CONTACT_SUPPORT")),
    94: Xid("contained memory error", "watch", TEXT.format("reset when convenient; other applications continue")),
    95: Xid("uncontained memory error", "reset", RESET_GPU),
    109: Xid("context switch timeout", "reset", RESET_GPU),
    110: Xid("security fault", "reset", RESET_GPU),
    119: Xid("the GPU's system processor (GSP) did not respond", "reset", RESET_GPU),
    120: Xid("error of the GPU's system processor (GSP)", "reset", RESET_GPU),
    136: Xid("an NVLink could not be trained", "reset", RESET_GPU),
    140: Xid("ECC error that was not recovered", "reset", RESET_GPU),
    143: Xid("the GPU could not be initialised", "reset", RESET_GPU),
    144: Xid("NVLink 5, SAW", "reset", NVLINK5, said=True),
    145: Xid("NVLink 5, RLW", "reset", NVLINK5, said=True),
    146: Xid("NVLink 5, TLW", "reset", NVLINK5, said=True),
    147: Xid("NVLink 5, TREX", "reset", NVLINK5, said=True),
    148: Xid("NVLink 5, NVLPW_CTRL", "reset", NVLINK5, said=True),
    149: Xid("NVLink 5, NETIR", "reset", NVLINK5, said=True),
    150: Xid("NVLink 5, MSE", "reset", NVLINK5, said=True),
    151: Xid("key rotation error (confidential computing)", "restart", CATALOG.format("RESTART_VM")),
    155: Xid("NVLink was taken down by software", "reset", RESET_GPU),
    156: Xid("the GPU took a faulty resource out of use", "reset", RESET_GPU),
    157: Xid("the GPU could not take a faulty resource out of use", "watch", IGNORE.format("CONTACT_SUPPORT")),
    158: Xid("fatal timeout", "reset", RESET_GPU),
    160: Xid("a memory channel was retired", "watch", IGNORE.format("INVESTIGATE_SW")),
    161: Xid("a memory channel could not be retired", "watch", IGNORE.format("INVESTIGATE_SW")),
    171: Xid("uncorrectable DRAM error", "reset", "Xid Catalog: additional to Xid 48"),
    172: Xid("uncorrectable SRAM error", "reset", "Xid Catalog: additional to Xid 48"),
}
# Links to the CPU (C2C, CHI: IGNORE or CHECK_UVM), power smoothing, confidential computing, PCIe timeout, SEC2 halt and
# others: the Xid Catalog (read in nverror.h of driver 595 from 173 on) names no action.
WITHOUT_ACTION = {121, 159, *range(164, 171), 173, 175, 176}
# Immediate action RESTART_APP, or IGNORE without a later action on the hardware; engines for video and copies.
OF_PROGRAMS = {
    *(8, 11, 13, 25, 31, 32, *range(37, 42), 43, 44, 45, 60, 66, 67, *range(68, 74), 75, 76, 77, 80, *range(82, 87)),
    *(88, 89, *range(96, 109), *range(126, 136), 137, 139, 141, 142, 152, 153, 162, 163, 174),
}
# It reports the action that another Xid requires: "changed from 0x0 (None) to 0x1 (GPU Reset Required)" (Xid Catalog,
# gpu.c of open-gpu-kernel-modules). None: the GPU has recovered.
RECOVERY = 154
RECOVERY_TO = re.compile(r"changed from \S+ \(.*?\) to \S+ \((.*?)\)")
RECOVERY_ACTIONS = {
    "None": "",
    "GPU Reset Required": "reset",
    "Drain and Reset": "drain",
    "Drain P2P": "watch",
    "Node Reboot Required": "restart",
}
# "149, NETIR_LINK_EVT  Fatal   XC0 i0 Link 09 (0x025525c6 ...)": NVIDIA/NVSentinel's tests, and
# marin-community/marin issue 9086 of a GB200 rack.
SEVERITY = re.compile(r"\b((?:non-?)?fatal)\b", re.IGNORECASE)


class Logged(NamedTuple):
    """The worst Xid of a GPU. over: whether a later message says that the GPU has recovered."""

    action: str
    code: int
    line: Mapping[str, Any]
    over: bool = False


def action_for(code: int, rest: str) -> str:
    """Return the action for an Xid, or "" for an application error. rest: the text of the message after the number."""
    if code == RECOVERY:
        asked = RECOVERY_TO.search(rest)
        return RECOVERY_ACTIONS.get(asked[1], "unknown") if asked else "unknown"
    row = XIDS.get(code)
    if row is None:
        return "" if code in OF_PROGRAMS else "watch" if code in WITHOUT_ACTION else "unknown"
    severity = SEVERITY.search(rest) if row.said else None
    return "watch" if row.said and not (severity and severity[1].lower() == "fatal") else row.action


def rank(action: str) -> int:
    return ["", *ACTIONS].index(action)


def worst(lines: Iterable[Mapping[str, Any]], day: float) -> dict[str, Logged]:
    """Return the worst Xid by GPU slot.

    Xids of the last day take precedence over older ones, and of equal Xids the newest is returned. The driver's own
    request (Xid 154) replaces the action for earlier Xids. lines: {age, text}, with the oldest first. day: seconds that
    count as the last day.
    """
    found: dict[str, Logged] = {}
    for line in lines:
        match = XID_LINE.search(line["text"])
        if match is None:
            continue
        slot, code, action = slot_of(match[1]), int(match[2]), action_for(int(match[2]), match[3])
        before = found.get(slot)
        milder = before is not None and action != "unknown" and rank(action) < rank(before.action)
        if before and code == RECOVERY and milder:
            found[slot] = before._replace(action=action or before.action, over=not action)
        elif action and (before is None or _weight(line, action, day) >= _weight(before.line, before.action, day)):
            found[slot] = Logged(action, code, line)
    return found


def _weight(line: Mapping[str, Any], action: str, day: float) -> tuple[bool, int]:
    return (line["age"] <= day, rank(action))


def slot_of(said: str) -> str:
    """Return the slot in the kernel's notation. The driver omits the function number."""
    return said.lower() if "." in said else f"{said.lower()}.0"


def words(text: str) -> str:
    """Return the message in the log line of an Xid, without the process."""
    said = text.split("): ", 1)[-1].partition(",")[2].strip()
    return " ".join(re.sub(r"^pid=[^,]*,( name=[^,]*,)? ?", "", said).split())[:120].rstrip(".!") or "no message"
