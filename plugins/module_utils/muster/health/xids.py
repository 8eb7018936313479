"""What NVIDIA's driver means by the number of an Xid, and what is to be done: one row for each, with its source.

An Xid that has no row is one of applications (13, 31, 43, 45 and others: restart it, or nothing), or is not in use: no
fault of the node. The catalogue is written for Ampere and newer.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

# docs.nvidia.com/deploy/xid-errors, "Analyzing Xid Errors with the Xid Catalog", read on 2026-11-22: the first is
# the column "Immediate Action", the second the page's text on the number.
CATALOG = "Xid Catalog, immediate action {}"
TEXT = "Xid Catalog, text: {}"
# The same page's second table: NVLink 5 tells the severity in the message; most of what is non-fatal is to be ignored.
NVLINK5 = "Xid Catalog, table of NVLink 5: the message says whether it is fatal"


# With MIG on, the slice stands beside: "(PCI:0000:01:00 GPU-I:05 GPU-CI:00)" (NVIDIA/open-gpu-kernel-modules).
XID_LINE = re.compile(r"NVRM: Xid \(PCI:([0-9a-fA-F:.]+)[^)]*\): (\d+),? ?(.*)")
SXID_LINE = re.compile(
    r"nvidia-nvswitch\d*: SXid \(PCI:([0-9a-fA-F:.]+)\): (\d+), (Fatal|Non-fatal),? ?(.*)", re.IGNORECASE
)


class Xid(NamedTuple):
    """action: of ACTIONS. said: whether the message itself says how severe it is; `action` is for a fatal one then."""

    what: str
    action: str
    source: str
    said: bool = False


# What to do about an Xid, the mildest first.
ACTIONS = {
    "watch": ("Watch it; if it goes on, have the GPU replaced", "nvidia-smi -q -i {gpu} -d ECC,ROW_REMAPPER"),
    "inside": ("Look at the GPU's power cable and seat", "nvidia-smi -q -i {gpu} -d POWER"),
    "reset": (
        "Reset it while nothing uses it; if that fails, restart the node",
        "sudo nvidia-smi --gpu-reset -i {gpu}",
    ),
    "restart": (
        "Restart the node; if the GPU stays away, cut its power, then have it replaced",
        "sudo systemctl reboot",
    ),
}
RESET_GPU = CATALOG.format("RESET_GPU")
IGNORE = CATALOG.format("IGNORE, then {}")
XIDS = {
    46: Xid("the GPU stopped processing", "reset", RESET_GPU),
    48: Xid("double bit ECC error", "reset", TEXT.format("a reset or a reboot is needed to clear it")),
    54: Xid("auxiliary power is not connected", "inside", CATALOG.format("CHECK_MECHANICALS")),
    62: Xid("internal micro-controller halt", "reset", RESET_GPU),
    63: Xid("a row of memory was remapped", "watch", CATALOG.format("IGNORE")),
    64: Xid("a row of memory could not be remapped", "reset", RESET_GPU),
    74: Xid("NVLink error, before Blackwell", "reset", TEXT.format("a reset or a reboot is needed to clear it")),
    79: Xid("the GPU has fallen off the bus", "restart", CATALOG.format("RESTART_BM")),
    92: Xid("high rate of corrected ECC errors", "watch", IGNORE.format("CONTACT_SUPPORT")),
    94: Xid("contained memory error", "watch", TEXT.format("reset when convenient; other applications go on")),
    95: Xid("uncontained memory error", "reset", RESET_GPU),
    109: Xid("context switch timeout", "reset", RESET_GPU),
    110: Xid("security fault", "reset", RESET_GPU),
    119: Xid("the GPU's own processor did not answer", "reset", RESET_GPU),
    120: Xid("error of the GPU's own processor", "reset", RESET_GPU),
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
    156: Xid("a resource was retired", "reset", RESET_GPU),
    157: Xid("a resource could not be retired", "watch", IGNORE.format("CONTACT_SUPPORT")),
    158: Xid("fatal timeout", "reset", RESET_GPU),
    160: Xid("a channel of memory was retired", "watch", IGNORE.format("INVESTIGATE_SW")),
    161: Xid("a channel of memory could not be retired", "watch", IGNORE.format("INVESTIGATE_SW")),
}
# It sums up what another Xid asks for: "changed from 0x0 (None) to 0x1 (GPU Reset Required)" (Xid Catalog, 154).
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
    """What is to be done with the GPU; nothing for what an application did. rest: the message after the number."""
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
    """How much is asked for, 0 the least."""
    return list(ACTIONS).index(action)


def worst(lines: Iterable[Mapping[str, Any]], day: float) -> dict[str, tuple[str, int, Mapping[str, Any]]]:
    """Return what to do about each GPU by its slot, for which Xid, and its line: of today's the worst, and the newest.

    lines: {age, text}, the oldest first. day: how long ago is today.
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
    """As the bus has it: the driver leaves the function out."""
    return said.lower() if "." in said else f"{said.lower()}.0"


def words(text: str) -> str:
    """The sentence of an Xid's line, without who was running."""
    said = text.split("): ", 1)[-1].partition(",")[2].strip()
    return " ".join(re.sub(r"^pid=[^,]*,( name=[^,]*,)? ?", "", said).split())[:120].rstrip(".!") or "it says no more"
