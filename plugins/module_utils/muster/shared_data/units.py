"""systemd units that mount a folder on first use: their names and contents.

Muster writes separate files instead of lines in fstab. No existing file is changed, and Muster's files are recognized
by their first line. See systemd.mount(5), systemd.automount(5) and systemd.unit(5).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .request import Mount

FOLDER = "/etc/systemd/system"
MARK = "# Written by Muster (shared_data_mounts). Changes here are lost.\n"
# After this time without a response from the server, systemd fails the mount, and waiting programs get an error.
SECONDS = 30
_PLAIN = re.compile(rb"[A-Za-z0-9:_.]\Z")


def unit_name(path: str, kind: str) -> str:
    """Return the unit name that `systemd-escape --path` prints. kind: mount or automount."""
    raw = path.strip("/").encode()
    said = []
    for place in range(len(raw)):
        char = raw[place : place + 1]
        if char == b"/":
            said.append("-")
        elif _PLAIN.match(char) and not (char == b"." and place == 0):
            said.append(char.decode())
        else:
            said.append(f"\\x{char[0]:02x}")
    return f"{''.join(said)}.{kind}"


def files_of(mount: Mount) -> dict[str, str]:
    """Return the contents of both units, by path."""
    return {
        f"{FOLDER}/{unit_name(mount.path, 'mount')}": _mount(mount),
        f"{FOLDER}/{unit_name(mount.path, 'automount')}": _automount(mount),
    }


def _mount(mount: Mount) -> str:
    lines = [
        "[Unit]",
        f"Description=Shared data on {_own(mount.path)}",
        "Wants=network-online.target",
        "After=network-online.target",
        "",
        "[Mount]",
        f"What={_own(mount.source)}",
        f"Where={_own(mount.path)}",
        f"Type={mount.type}",
        *([f"Options={_own(mount.options)}"] if mount.options else []),
        f"TimeoutSec={SECONDS}",
    ]
    return MARK + "\n".join(lines) + "\n"


def _automount(mount: Mount) -> str:
    lines = [
        "[Unit]",
        f"Description=Shared data on {_own(mount.path)}, when it is used",
        "",
        "[Automount]",
        f"Where={_own(mount.path)}",
        "",
        "[Install]",
        # WantedBy instead of RequiredBy: the boot neither waits for the server nor fails without it.
        "WantedBy=remote-fs.target",
    ]
    return MARK + "\n".join(lines) + "\n"


def _own(text: str) -> str:
    """Escape %, which starts a specifier in unit files."""
    return text.replace("%", "%%")


def is_ours(text: str) -> bool:
    return text.startswith(MARK)


def where_of(text: str) -> str:
    """Return the folder that one of Muster's units mounts."""
    found = re.search(r"^Where=(.+)$", text, re.MULTILINE)
    return found[1].replace("%%", "%") if found else ""
