"""A folder of data on a node that has it already, whosever it is: listed by root, and read by root for the others.

Whoever may change the path could have root read something else. So no part of it is a link, whatever lies above is
root's or the folder's owner's, and so is all that lies in it.
"""

from __future__ import annotations

import errno
import os
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from ..distribution import manifest, store
from ..tools import files

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ..distribution.manifest import ManifestFile


@contextmanager
def opened(path: str) -> Iterator[tuple[int, int]]:
    """Yield the open folder, and its owner."""
    with files.folder("/") as root, files.folder(path[1:], within=root) as folder:
        owner = os.fstat(folder).st_uid
        for above in manifest.above(path[1:]):
            with files.folder(above, within=root) as handle:
                uid = os.fstat(handle).st_uid
            if uid not in {0, owner}:
                raise files.ForeignError(errno.EPERM, f"lies in a folder of {files.user_name(uid)}'s", path)
        yield folder, owner


def stage(path: str, shelf: store.Shelf, wanted: Iterable[ManifestFile]) -> None:
    """Have a copy of these files in the store; one that is not what was listed is not there then."""
    with opened(path) as (folder, owner):
        for file in wanted:
            if store.is_there(shelf, file):
                continue
            with suppress(files.UnsafePathError), files.opened(file.path, within=folder, owner=owner) as content:
                store.take(shelf, file, content, 0)
