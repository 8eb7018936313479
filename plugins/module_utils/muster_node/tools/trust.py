"""Checks whether a path is safe to use by name, because only trusted users can change what the path refers to."""

from __future__ import annotations

import errno
import grp
import os
import pwd
import stat
from contextlib import suppress
from dataclasses import dataclass

from . import files

MOST_LINKS = 40  # like the kernel


@dataclass(frozen=True)
class TrustedOwners:
    """Trusted users and groups by id. private_groups: whether users' private groups are trusted as well (see
    is_private)."""

    users: frozenset[int]
    groups: frozenset[int] = frozenset()
    private_groups: bool = False

    def has_group(self, gid: int) -> bool:
        return gid in self.groups or (self.private_groups and is_private(gid, self.users))


def foreign_writer(path: str, *, shared: bool = False, trusted: TrustedOwners | None = None) -> str | None:
    """Return a sentence that names another user who can change what an absolute path refers to; None if there is none.

    The path is resolved as in the kernel, so folders on the way to a link's target are checked as well. In a folder
    with the sticky bit, such as /tmp, files of trusted users are safe. shared: accept a folder with the sticky bit as
    the path itself. A missing part is safe; see make_folder. trusted: default: root and this process's user, no group.
    """
    trusted = trusted or TrustedOwners(frozenset({0, os.geteuid()}))
    place, rest = "/", _parts(path)
    links = 0
    while rest:
        sentence = _judged(place, trusted, shared=True)
        if sentence:
            return sentence
        below = os.path.normpath(os.path.join(place, rest.pop(0)))
        try:
            seen = os.lstat(below)
        except (FileNotFoundError, NotADirectoryError):
            return None
        if not stat.S_ISLNK(seen.st_mode):
            place = below
            continue
        links += 1
        if seen.st_uid not in trusted.users:
            return _owned(below, seen)
        if links > MOST_LINKS:
            return f"{below} is part of a loop of links"
        target = os.readlink(below)
        rest = _parts(target) + rest
        place = "/" if target.startswith("/") else place
    return _judged(place, trusted, shared=shared)


def make_folder(path: str, mode: int = 0o755, *, trusted: TrustedOwners | None = None) -> None:
    """Create a folder and its missing parents. If other users can change what the path refers to, raise ForeignError
    and create nothing in their folders."""
    refuse_foreign(path, trusted=trusted)
    place = os.path.realpath(path)
    for end in (at for at, letter in enumerate(f"{place}/") if letter == "/" and at):
        # If another user created the folder in the meantime, for example in /tmp, its owner reveals it.
        with suppress(FileExistsError):
            files.make_folder(place[:end], mode=mode)
        refuse_foreign(place[:end], shared=end < len(place), trusted=trusted)


def refuse_foreign(path: str, *, shared: bool = False, trusted: TrustedOwners | None = None) -> None:
    """Raise ForeignError if another user can change what the path refers to."""
    sentence = foreign_writer(path, shared=shared, trusted=trusted)
    if sentence:
        raise files.ForeignError(errno.EPERM, f"is not safe to use: {sentence}", path)


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in {"", "."}]


def is_private(gid: int, users: frozenset[int]) -> bool:
    """Return whether a group is a user's private group: it has the user's name, is the user's primary group, and has no
    other member. useradd creates such a group on most systems with the umask 0002.

    A group with any other name is not private, because a directory service might hide its members.
    """
    try:
        group = grp.getgrgid(gid)
        owner = pwd.getpwnam(group.gr_name)
    except KeyError:
        return False
    names = {entry.pw_name for entry in pwd.getpwall() if entry.pw_gid == gid}
    return owner.pw_uid in users and owner.pw_gid == gid and {*names, *group.gr_mem} <= {owner.pw_name}


def _judged(place: str, trusted: TrustedOwners, *, shared: bool) -> str | None:
    """Check one part of a path. shared: accept write permission of other users if the sticky bit protects files of
    other users."""
    seen = os.lstat(place)
    if seen.st_uid not in trusted.users:
        return _owned(place, seen)
    if shared and seen.st_mode & stat.S_ISVTX:
        return None
    if seen.st_mode & stat.S_IWOTH:
        return f"{place} is writable by all users"
    if seen.st_mode & stat.S_IWGRP and (_has_list(place) or not trusted.has_group(seen.st_gid)):
        return f"{place} is writable by the group {_group(seen.st_gid)}"
    return None


def _has_list(place: str) -> bool:
    """Return whether an access control list gives access to more accounts. The group permission bits limit such
    access."""
    try:
        return "system.posix_acl_access" in os.listxattr(place)
    except (AttributeError, OSError):  # not on this system, or not on this file system
        return False


def _owned(place: str, seen: os.stat_result) -> str:
    name = files.user_name(seen.st_uid)
    return f"{place} belongs to {'uid ' if name.isdigit() else ''}{name}"


def _group(gid: int) -> str:
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)
