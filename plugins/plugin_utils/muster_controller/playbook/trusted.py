"""Files of the controller that choose what runs on the nodes, as the playbooks do: only their owners may have written
them."""

from __future__ import annotations

import contextlib
import os
import stat
from typing import TYPE_CHECKING

from muster_node.tools import files

from .variables import project_root

if TYPE_CHECKING:
    from pathlib import Path


def who_else_writes(path: Path) -> tuple[str, str] | None:
    """(who else may write to it or to its folder, how to change that); of what is not there, nobody."""
    trusted = {0, os.geteuid(), project_root().stat().st_uid}
    for one in (path.parent, path):
        with contextlib.suppress(FileNotFoundError):
            seen = one.stat()
            if seen.st_mode & stat.S_IWOTH:
                return f"everybody may write to {one}, and so choose what runs on the nodes", "chmod o-w it"
            if seen.st_uid not in trusted:
                owner = files.user_name(seen.st_uid)
                return f"{one} belongs to {owner}, who may so choose what runs on the nodes", "chown it"
    return None
