"""Whether a path is safe to write by name: nobody but root and this process's user may change what it leads to."""

from __future__ import annotations

import errno
import grp
import os
import stat
from contextlib import suppress

from . import files

MOST_LINKS = 40  # as the kernel


def foreign_writer(path: str, *, shared: bool = False) -> str | None:
    """Return who else may change what an absolute path leads to, as a sentence; None where nobody may.

    The path is walked as the kernel does, so folders on the way to a link's target count as well. In a folder with the
    sticky bit, such as /tmp, what others do not own is safe; shared: the path's end may be such a folder. What is
    missing is nobody's: see make_folder.
    """
    place, rest = "/", _parts(path)
    links = 0
    while rest:
        sentence = _judged(place, shared=True)
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
        if not _ours(seen):
            return _owned(below, seen)
        if links > MOST_LINKS:
            return f"{below} leads to itself"
        target = os.readlink(below)
        rest = _parts(target) + rest
        place = "/" if target.startswith("/") else place
    return _judged(place, shared=shared)


def make_folder(path: str, mode: int = 0o755) -> None:
    """Make a folder and what is missing above it. Raises ForeignError where others may change what the path leads to;
    then nothing is made in what is theirs."""
    refuse_foreign(path)
    place = os.path.realpath(path)
    for end in (at for at, letter in enumerate(f"{place}/") if letter == "/" and at):
        # Whoever made one meanwhile, in a folder like /tmp, is found out by its owner.
        with suppress(FileExistsError):
            files.make_folder(place[:end], mode=mode)
        refuse_foreign(place[:end], shared=end < len(place))


def refuse_foreign(path: str, *, shared: bool = False) -> None:
    """Raise ForeignError where foreign_writer names somebody."""
    sentence = foreign_writer(path, shared=shared)
    if sentence:
        raise files.ForeignError(errno.EPERM, f"is not safe to use: {sentence}", path)


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in {"", "."}]


def _ours(seen: os.stat_result) -> bool:
    return seen.st_uid in {0, os.geteuid()}


def _judged(place: str, *, shared: bool) -> str | None:
    """shared: others may write here as long as they cannot touch what is not theirs (the sticky bit)."""
    seen = os.lstat(place)
    if not _ours(seen):
        return _owned(place, seen)
    if shared and seen.st_mode & stat.S_ISVTX:
        return None
    if seen.st_mode & stat.S_IWOTH:
        return f"everybody may write in {place}"
    if seen.st_mode & stat.S_IWGRP:
        return f"the group {_group(seen.st_gid)} may write in {place}"
    return None


def _owned(place: str, seen: os.stat_result) -> str:
    name = files.user_name(seen.st_uid)
    return f"{place} belongs to {'uid ' if name.isdigit() else ''}{name}"


def _group(gid: int) -> str:
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)
