"""Checks that only trusted users have write access to files on the controller that select the code to run on nodes."""

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
    """Return which other users can change the file, with the fix, or None if only trusted users can.

    All parent folders are checked too, because a user with write access to a folder can replace the file. Trusted
    writers are root, this user, the owner of the project, and:
    - a group without other members, such as the group that useradd creates for each user;
    - the group with write access to the project folder, whose members select the code anyway.
    In a folder with the sticky bit, such as /tmp, files of these users are trusted.
    """
    found = foreign_writer(str(path.absolute()), trusted=trusted_writers())
    if not found:
        return None
    return f"{found}; other users could change what runs on the nodes", HOW


def trusted_writers() -> TrustedOwners:
    project = project_root().stat()
    groups = frozenset({project.st_gid} if project.st_mode & stat.S_IWGRP else ())
    return TrustedOwners(frozenset({0, os.geteuid(), project.st_uid}), groups, private_groups=True)
