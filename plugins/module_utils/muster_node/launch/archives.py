"""Remove the image names from an archive before podman loads it.

podman applies all names in an archive. One such as ubuntu:24.04 would then refer to this image for all users of root's
podman on the node. Muster refers to an image by its id.

The names are overwritten in place, with spaces: nothing is copied, and podman never has the names, even if Muster is
killed.
"""

from __future__ import annotations

import errno
import json
import os
import posixpath
import tarfile
from typing import TYPE_CHECKING, Any, NamedTuple

from ..tools import files

if TYPE_CHECKING:
    from typing import BinaryIO

MOST_JSON = 4_000_000
# The keys that podman needs to find the image. All others are removed, since Go accepts a key in any case ("repotags").
IMAGE = ("Config", "Layers")  # manifest.json, of docker-archive
INDEX = ("schemaVersion", "mediaType", "manifests")  # index.json, of oci-archive
DESCRIPTOR = ("mediaType", "digest", "size")


class Edit(NamedTuple):
    """One place of the file. old and new have the same length."""

    begin: int
    old: bytes
    new: bytes


def plain_manifest(text: bytes) -> bytes:
    """Return manifest.json without names. Raises ValueError, LookupError or TypeError."""
    return _dump([{key: each[key] for key in IMAGE} for each in json.loads(text)])


def plain_index(text: bytes) -> bytes:
    """Return index.json without names. Raises ValueError, LookupError or TypeError."""
    index = json.loads(text)
    images = [{key: each[key] for key in DESCRIPTOR} for each in index["manifests"]]
    return _dump({**{key: index[key] for key in INDEX if key in index}, "manifests": images})


PLAIN = {"manifest.json": plain_manifest, "index.json": plain_index}


def edits(path: str) -> list[Edit]:
    """Return the edits that remove the names. Raises UnsafePathError if podman might read the archive differently."""
    found: dict[str, Edit] = {}
    try:
        with files.opened(path) as handle, os.fdopen(os.dup(handle), "rb") as stream, _tar(stream) as tar:
            for member in tar:
                place = posixpath.normpath("/" + member.name)[1:]
                if posixpath.basename(place) in PLAIN:
                    if place not in PLAIN or place in found or not member.isreg() or member.issparse():
                        raise _refused(path, f"has {place} more than once, or not as a plain file")
                    found[place] = _edit(path, handle, place, member)
            if tar.pax_headers:
                raise _refused(path, "has a global header, which podman ignores")
    except tarfile.TarError as problem:
        raise _refused(path, f"is no archive: {problem}") from None
    if not found:
        raise _refused(path, f"has neither {' nor '.join(PLAIN)}")
    return list(found.values())


def write(path: str, wanted: list[Edit]) -> None:
    """Apply the edits."""
    with files.opened(path, written=True) as handle:
        for edit in wanted:
            os.pwrite(handle, edit.new, edit.begin)


def undo(path: str, done: list[Edit]) -> None:
    """Restore the archive."""
    write(path, [Edit(edit.begin, edit.new, edit.old) for edit in done])


def _tar(stream: BinaryIO) -> tarfile.TarFile:
    return tarfile.open(fileobj=stream, mode="r:")


def _edit(path: str, handle: int, name: str, member: tarfile.TarInfo) -> Edit:
    if member.size > MOST_JSON:
        raise _refused(path, f"has more than {MOST_JSON} bytes of {name}")
    old = os.pread(handle, member.size, member.offset_data)
    try:
        new = PLAIN[name](old)
    except (ValueError, LookupError, TypeError, RecursionError) as problem:
        raise _refused(path, f"has an unusable {name}: {problem!r}"[:200]) from None
    if len(new) > len(old):
        raise _refused(path, f"has a {name} in an unusual notation")
    return Edit(member.offset_data, old, new.ljust(len(old)))


def _dump(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _refused(path: str, why: str) -> files.UnsafePathError:
    return files.UnsafePathError(errno.EBADMSG, why, path)
