"""Read GRUB's menu: the kernel of the next boot, and the entry that boots another kernel once. Pure functions.

The menu is the part of grub.cfg that muster_node/tools/boot.py keeps. An indented entry belongs to the submenu
above it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import NamedTuple

_ENTRY = re.compile(r"(\s*)(submenu|menuentry)\s+['\"](.*?)['\"]\s(.*)")
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
    within = found
    last = MenuEntry("", "")
    for line in menu.splitlines():
        if entry := _ENTRY.match(line):
            indent, kind, title, rest = entry.groups()
            name = _ID.search(rest)
            last = MenuEntry(title, name[1] if name else "")
            (within if indent else found).append(last)
            within = last.inside if kind == "submenu" else within
        elif not last.kernel and (kernel := _KERNEL.match(line)):
            last.kernel = kernel[1]
    return found


def next_kernel(menu: str, variables: str) -> NextKernel:
    """Return the kernel that GRUB boots next. variables: the text of grubenv."""
    level = entries(menu)
    if not level:
        return NextKernel(why="the boot menu has no entries")
    known = dict(line.split("=", 1) for line in variables.splitlines() if "=" in line)
    defaults = [found[1] for line in menu.splitlines() if (found := _DEFAULT.match(line))]
    # The menu sets the entry of a single boot first, if there is one, and otherwise the lasting default.
    lasting = next((one for one in defaults if "next_entry" not in one), "0")
    wanted = known.get("next_entry", "") or _VARIABLE.sub(lambda found: known.get(found[1], ""), lasting)
    for word in wanted.split(">"):
        fitting = [one for place, one in enumerate(level) if word in (str(place), one.name, one.title)]
        # GRUB takes the first entry if the default does not exist, and the first entry of a submenu.
        chosen = (fitting or level)[0]
        level = chosen.inside or [chosen]
    kernel, title = level[0].kernel, level[0].title[:80]
    return NextKernel(kernel, "" if kernel else f"the boot menu starts '{title}'")


def entry(menu: str, release: str) -> str:
    """Return the argument of grub-reboot for a kernel, in the form submenu>entry; "" if the menu does not contain the
    kernel.
    """
    for first in entries(menu):
        for one in (first, *first.inside):
            if one.name.startswith(f"gnulinux-{release}-advanced-"):
                return one.name if one is first or not first.name else f"{first.name}>{one.name}"
    return ""
