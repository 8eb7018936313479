"""Read GRUB's menu: the kernel of the next boot, and the entry that boots another kernel once. Pure functions.

The menu is the part of grub.cfg that muster_node/looks/next_boot.py keeps. An indented entry belongs to the submenu
above it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import NamedTuple

_ENTRY = re.compile(r"(\s*)(submenu|menuentry)\s+(?:'([^']*)'|\"([^\"]*)\")(.*)")
# Names are printed as a part of commands, so other characters do not match.
_ID = re.compile(r"menuentry_id_option '([\w.+~:-]+)'")
_KERNEL = re.compile(r"\s+linux(?:efi|16)?\s+\S*/vmlinuz-([\w.+~-]{1,100})(?:\s|$)")
_DEFAULT = re.compile(r"\s*set default=[\"']?(.*?)[\"']?\s*$")
_VARIABLE = re.compile(r"\$\{?(\w+)\}?")


class NextKernel(NamedTuple):
    """The kernel of the next boot. why: why it is unknown."""

    release: str = ""
    why: str = ""


@dataclass
class MenuEntry:
    """An entry or a submenu. name: its identifier. kernel: the release that the entry boots; "" if there is none."""

    title: str
    name: str
    kernel: str = ""
    inside: list[MenuEntry] = field(default_factory=list)


def entries(menu: str) -> list[MenuEntry]:
    """Return the entries of the first level."""
    found: list[MenuEntry] = []
    submenu: MenuEntry | None = None
    last: MenuEntry | None = None
    for line in menu.splitlines():
        kernel = _KERNEL.match(line)
        if kernel and last and not last.kernel:
            last.kernel = kernel[1]
        entry = _ENTRY.match(line)
        if not entry:
            continue
        name = _ID.search(entry[5])
        last = MenuEntry(entry[3] or entry[4] or "", name[1] if name else "")
        within = submenu.inside if submenu and entry[1] else found
        within.append(last)
        if entry[2] == "submenu":
            submenu = last
    return found


def next_kernel(menu: str, variables: str) -> NextKernel:
    """Return the kernel that GRUB boots next. variables: the text of grubenv."""
    there = entries(menu)
    if not there:
        return NextKernel(why="the boot menu has no entries")
    known = dict(line.split("=", 1) for line in variables.splitlines() if "=" in line)
    defaults = [found[1] for line in menu.splitlines() if (found := _DEFAULT.match(line))]
    # The menu sets the entry of a single boot first, if there is one, and otherwise the lasting default.
    lasting = next((one for one in defaults if "next_entry" not in one), "0")
    wanted = known.get("next_entry", "") or _VARIABLE.sub(lambda found: known.get(found[1], ""), lasting)
    level, chosen = there, there[0]
    for word in (wanted or "0").split(">"):
        # GRUB takes the first entry if the default does not exist.
        chosen = _choose(level, word) or level[0]
        level = chosen.inside or [chosen]
    chosen = chosen.inside[0] if chosen.inside else chosen
    return NextKernel(chosen.kernel, "" if chosen.kernel else f"the boot menu starts '{chosen.title[:80]}'")


def _choose(level: list[MenuEntry], word: str) -> MenuEntry | None:
    if word.isdecimal() and len(word) < 4:
        return level[int(word)] if int(word) < len(level) else None
    return next((one for one in level if word and word in (one.name, one.title)), None)


def entry(menu: str, release: str) -> str:
    """Return the argument of grub-reboot for a kernel, in the form submenu>entry; "" if the menu does not contain the
    kernel.
    """
    wanted = f"gnulinux-{release}-advanced-"
    for one in entries(menu):
        if one.name.startswith(wanted):
            return one.name
        inside = next((each.name for each in one.inside if each.name.startswith(wanted)), "")
        if inside:
            return f"{one.name}>{inside}" if one.name else inside
    return ""
