"""Whether a path is safe to use by name: nobody but those who are trusted may change what it leads to."""

from __future__ import annotations

import errno
import grp
import os
import pwd
import stat
from contextlib import suppress
from dataclasses import dataclass

from . import files

MOST_LINKS = 40  # as the kernel


@dataclass(frozen=True)
class TrustedOwners:
    """Who may write on a path, by number. private_groups: also groups that no other account is in (see is_private)."""

    users: frozenset[int]
    groups: frozenset[int] = frozenset()
    private_groups: bool = False

    def has_group(self, gid: int) -> bool:
        return gid in self.groups or (self.private_groups and is_private(gid, self.users))


def foreign_writer(path: str, *, shared: bool = False, trusted: TrustedOwners | None = None) -> str | None:
    """Return who else may change what an absolute path leads to, as a sentence; None where nobody may.

    The path is walked as the kernel does, so folders on the way to a link's target count as well. In a folder with the
    sticky bit, such as /tmp, what others do not own is safe; shared: the path's end may be such a folder. What is
    missing is nobody's: see make_folder. trusted: without it, root and this process's user, and no group.
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
            return f"{below} leads to itself"
        target = os.readlink(below)
        rest = _parts(target) + rest
        place = "/" if target.startswith("/") else place
    return _judged(place, trusted, shared=shared)


def make_folder(path: str, mode: int = 0o755, *, trusted: TrustedOwners | None = None) -> None:
    """Make a folder and what is missing above it. Raises ForeignError where others may change what the path leads to;
    then nothing is made in what is theirs."""
    refuse_foreign(path, trusted=trusted)
    place = os.path.realpath(path)
    for end in (at for at, letter in enumerate(f"{place}/") if letter == "/" and at):
        # Whoever made one meanwhile, in a folder like /tmp, is found out by its owner.
        with suppress(FileExistsError):
            files.make_folder(place[:end], mode=mode)
        refuse_foreign(place[:end], shared=end < len(place), trusted=trusted)


def refuse_foreign(path: str, *, shared: bool = False, trusted: TrustedOwners | None = None) -> None:
    """Raise ForeignError where foreign_writer names somebody."""
    sentence = foreign_writer(path, shared=shared, trusted=trusted)
    if sentence:
        raise files.ForeignError(errno.EPERM, f"is not safe to use: {sentence}", path)


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in {"", "."}]


def is_private(gid: int, users: frozenset[int]) -> bool:
    """Return whether a group is one of these users' own: it has the user's name, is the user's first group, and has no
    other member. So useradd makes it on most systems, where the umask is 0002.

    A group of any other name is not private, because a directory service may hide the members of a group.
    """
    try:
        group = grp.getgrgid(gid)
        owner = pwd.getpwnam(group.gr_name)
    except KeyError:
        return False
    names = {entry.pw_name for entry in pwd.getpwall() if entry.pw_gid == gid}
    return owner.pw_uid in users and owner.pw_gid == gid and {*names, *group.gr_mem} <= {owner.pw_name}


def _judged(place: str, trusted: TrustedOwners, *, shared: bool) -> str | None:
    """shared: others may write here as long as they cannot touch what is not theirs (the sticky bit)."""
    seen = os.lstat(place)
    if seen.st_uid not in trusted.users:
        return _owned(place, seen)
    if shared and seen.st_mode & stat.S_ISVTX:
        return None
    if seen.st_mode & stat.S_IWOTH:
        return f"everybody may write in {place}"
    if seen.st_mode & stat.S_IWGRP and (_has_list(place) or not trusted.has_group(seen.st_gid)):
        return f"the group {_group(seen.st_gid)} may write in {place}"
    return None


def _has_list(place: str) -> bool:
    """Return whether an access control list admits more accounts, to which the bits of the group then apply."""
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
