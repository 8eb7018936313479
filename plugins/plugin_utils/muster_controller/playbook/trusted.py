"""Checks files on the controller that select the code to run on nodes: only trusted users may have write access."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

from muster_node.tools.trust import TrustedOwners, foreign_writer

from .variables import project_root

if TYPE_CHECKING:
    from pathlib import Path

HOW = "Remove the write permission (chmod go-w, chown), or move the file"


def who_else_writes(path: Path) -> tuple[str, str] | None:
    """Return who else can change the file, and how to fix it, or None.

    Every parent folder counts, because a user with write access to a folder can replace the file. Trusted are root,
    this user and the owner of the project, and: - a group without other members, such as the group that useradd creates
    for each user;
    - a group of which nobody else is a member, such as the one that useradd makes for each user;
    - the group with write access to the project folder, whose members select the code anyway;
    - a folder with the sticky bit, such as /tmp, for files of the users above.
    """
    found = foreign_writer(str(path.absolute()), trusted=trusted_writers())
    if not found:
        return None
    return f"{found}; other users can thereby change what runs on the nodes", HOW


def trusted_writers() -> TrustedOwners:
    project = project_root().stat()
    groups = frozenset({project.st_gid} if project.st_mode & stat.S_IWGRP else ())
    return TrustedOwners(frozenset({0, os.geteuid(), project.st_uid}), groups, private_groups=True)
