"""Files of the controller that choose what runs on the nodes, as the playbooks do: only their owners may have written
them."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

from muster_node.tools.trust import TrustedOwners, foreign_writer

from .variables import project_root

if TYPE_CHECKING:
    from pathlib import Path

HOW = "Take that right away (chmod go-w, chown), or move the file"


def who_else_writes(path: Path) -> tuple[str, str] | None:
    """Return who else may change what a path leads to, and how to change that; None where nobody may.

    Every folder on the way counts, as whoever writes in one of them may put another file in the place of this one.
    Trusted are root, this user and the owner of the project, and:
    - a group of which nobody else is a member, such as the one that useradd makes for each user;
    - the group that may write in the project's own folder: its members choose what runs anyway;
    - a folder with the sticky bit, such as /tmp, for what belongs to one of those above.
    """
    found = foreign_writer(str(path.absolute()), trusted=trusted_writers())
    if not found:
        return None
    return f"{found}, and so chooses what runs on the nodes", HOW


def trusted_writers() -> TrustedOwners:
    project = project_root().stat()
    groups = frozenset({project.st_gid} if project.st_mode & stat.S_IWGRP else ())
    return TrustedOwners(frozenset({0, os.geteuid(), project.st_uid}), groups, private_groups=True)
