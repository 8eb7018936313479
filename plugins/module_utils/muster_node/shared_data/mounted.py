"""List the mounts in the kernel's table. No server is contacted, so this cannot block."""

from __future__ import annotations

import re
from typing import NamedTuple

from ..tools import files

MOUNTS = "/proc/self/mountinfo"
# Network file systems.
NETWORK = (
    *("nfs", "nfs4", "cifs", "smb3", "ceph", "lustre", "gpfs", "beegfs", "glusterfs", "fuse.glusterfs", "fuse.sshfs"),
    *("9p", "afs", "orangefs", "wekafs", "fuse.juicefs"),
)
ESCAPED = re.compile(r"\\([0-7]{3})")


class Mounted(NamedTuple):
    """A mount. source, type: as shown by mount(8). options: options of the file system and of this mount."""

    path: str
    source: str
    type: str
    options: str

    @property
    def by_user(self) -> bool:
        """Whether a user mounted it. Every user can mount FUSE, with a source and a path of their choice, and root has
        no access to it."""
        return any(one.startswith("user_id=") and one != "user_id=0" for one in self.options.split(","))


def mounted() -> list[Mounted]:
    """Return the mounts in mount order. If two mounts have the same path, the later mount is on top."""
    return parse(files.text(MOUNTS, links=True) or "")


def parse(text: str) -> list[Mounted]:
    """Parse mountinfo, proc(5): ID, parent, device, root, path, options, optional fields, -, type, source, options."""
    found = []
    for line in text.splitlines():
        head, dash, tail = line.partition(" - ")
        first, last = head.split(" "), tail.split(" ")
        if dash and len(first) > 5 and len(last) > 2:
            found.append(Mounted(_plain(first[4]), _plain(last[1]), last[0], f"{first[5]},{last[2]}"))
    return found


def _plain(text: str) -> str:
    raw = ESCAPED.sub(lambda match: chr(int(match[1], 8)), text)
    return raw.encode("latin-1", "replace").decode("utf-8", "replace") if not raw.isascii() else raw
