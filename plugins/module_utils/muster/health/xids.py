"""The meaning of Xid numbers and the action for each, with the source.

Xids that are not in the table are unused numbers or application errors (13, 31, 43, 45 and others), which require a
restart of the application or no action. They are not faults of the node. The catalogue covers Ampere and newer.
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
XID_LINE = re.compile(r"NVRM: Xid \(PCI:([0-9a-fA-F:.]+)[^)]*\): (\d+),? ?(.*)")
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


# The fix for an Xid, the mildest first.
ACTIONS = {
    "watch": ("If the Xid recurs, replace the GPU. Check the GPU with", "nvidia-smi -q -i {gpu} -d ECC,ROW_REMAPPER"),
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
    79: Xid("the GPU has fallen off the bus", "restart", CATALOG.format("RESTART_BM")),
    92: Xid("high rate of corrected ECC errors", "watch", IGNORE.format("CONTACT_SUPPORT")),
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
    155: Xid("NVLink was taken down by software", "reset", RESET_GPU),
    156: Xid("the GPU took a faulty resource out of use", "reset", RESET_GPU),
    157: Xid("the GPU could not take a faulty resource out of use", "watch", IGNORE.format("CONTACT_SUPPORT")),
    158: Xid("fatal timeout", "reset", RESET_GPU),
    160: Xid("a memory channel was retired", "watch", IGNORE.format("INVESTIGATE_SW")),
    161: Xid("a memory channel could not be retired", "watch", IGNORE.format("INVESTIGATE_SW")),
}
# It reports the action that another Xid requires: "changed from 0x0 (None) to 0x1 (GPU Reset Required)" (Xid Catalog).
RECOVERY = 154
RECOVERY_TO = re.compile(r"changed from \S+ \(.*?\) to \S+ \((.*?)\)")
RECOVERY_ACTIONS = {
    "GPU Reset Required": "reset",
    "Drain and Reset": "reset",
    "Drain P2P": "watch",
    "Node Reboot Required": "restart",
}
# "149, NETIR_LINK_EVT  Fatal   XC0 i0 Link 09 (0x025525c6 ...)": NVIDIA/NVSentinel's tests, and
# marin-community/marin issue 9086 of a GB200 rack.
SEVERITY = re.compile(r"\b((?:non-?)?fatal)\b", re.IGNORECASE)


def action_for(code: int, rest: str) -> str:
    """Return the action for an Xid, or "" for an application error. rest: the text of the message after the number."""
    if code == RECOVERY:
        asked = RECOVERY_TO.search(rest)
        return RECOVERY_ACTIONS.get(asked[1], "") if asked else ""
    row = XIDS.get(code)
    if row is None:
        return ""
    if row.said:
        severity = SEVERITY.search(rest)
        return row.action if severity and severity[1].lower() == "fatal" else "watch"
    return row.action


def rank(action: str) -> int:
    return list(ACTIONS).index(action)


def worst(lines: Iterable[Mapping[str, Any]], day: float) -> dict[str, tuple[str, int, Mapping[str, Any]]]:
    """Return (action, Xid, log line) of the worst Xid by GPU slot.

    Xids of the last day take precedence over older ones, and of equal Xids the newest is returned. lines: {age, text},
    with the oldest first. day: seconds that count as the last day.
    """
    found: dict[str, tuple[str, int, Mapping[str, Any]]] = {}
    weights: dict[str, tuple[bool, int]] = {}
    for line in lines:
        match = XID_LINE.search(line["text"])
        action = action_for(int(match[2]), match[3]) if match else ""
        if match is None or not action:
            continue
        slot, weight = slot_of(match[1]), (line["age"] <= day, rank(action))
        if slot not in found or weight >= weights[slot]:
            found[slot], weights[slot] = (action, int(match[2]), line), weight
    return found


def slot_of(said: str) -> str:
    """Return the slot in the kernel's notation. The driver omits the function number."""
    return said.lower() if "." in said else f"{said.lower()}.0"


def words(text: str) -> str:
    """Return the message in the log line of an Xid, without the process."""
    said = text.split("): ", 1)[-1].partition(",")[2].strip()
    return " ".join(re.sub(r"^pid=[^,]*,( name=[^,]*,)? ?", "", said).split())[:120].rstrip(".!") or "no message"
