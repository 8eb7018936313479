"""How a node is started once with an older kernel: what GRUB's menu calls it."""

from __future__ import annotations

import re

# What is printed as a part of a command is nothing but a name.
_ENTRY = re.compile(r"^(\s*)(submenu|menuentry) .*\$?menuentry_id_option '([\w.+~:-]+)'")


def entry(menu: str, release: str) -> str:
    """What grub-reboot takes for this kernel, as submenu>entry; nothing where the menu has none.

    menu: the lines of grub.cfg that name an entry.
    """
    submenu = ""
    for line in menu.splitlines():
        found = _ENTRY.match(line)
        if not found:
            continue
        indent, kind, name = found.groups()
        if kind == "submenu":
            submenu = name
        elif name.startswith(f"gnulinux-{release}-advanced-"):
            return f"{submenu}>{name}" if submenu and indent else name
    return ""
