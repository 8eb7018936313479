"""A folder of data on a node: read there for other nodes, or received from them.

Reading is done by root, and whoever may change the path could have root read something else. So no part of it is a
link, whatever lies above is root's or the folder's owner's, and so is all that lies in it.

A received folder is root's alone, and everybody may read it. What comes lies in a store within it
(distribution/store.py) until all of a file is there and has its digest; a rename then gives it its name.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..distribution import manifest, store
from ..tools import files, trust
from .listing import STORE, digest, walk
from .mounted import NETWORK, mounted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ..distribution.manifest import ManifestFile
    from .remembered import Remembered

Json = dict[str, Any]

MOST_NAMED = 20
NAMED = 200  # characters of a name


def mode_of(file: ManifestFile) -> int:
    return 0o755 if file.executable else 0o644


def refuse(path: str) -> None:
    """Raise UnsafePathError where data cannot be kept under this path. The kernel's list comes first: probing a folder
    whose server is gone would hang."""
    below = [each for each in mounted() if f"{path}/".startswith(f"{each.path.rstrip('/')}/")]
    on = max(below, key=lambda each: len(each.path), default=None)
    if on and on.type in NETWORK:
        raise files.UnsafePathError(
            errno.EINVAL, f"lies on {on.source} ({on.type}), which other nodes have as well", path
        )
    trust.refuse_foreign(path)
    if os.path.lexists(path) and not Path(path).is_dir():
        raise files.UnsafePathError(errno.ENOTDIR, "is no folder", path)


class Receiving:
    """there: the open folder."""

    def __init__(self, there: int, memory: Remembered) -> None:
        self.there = there
        self.memory = memory
        self.judged: dict[str, str] = {"": ""}

    # ------------------------------------------------------------ looking

    def look(self, wanted: Iterable[ManifestFile], *, again: bool) -> Json:
        """Return {missing, changed: places in the list, blocked: sentences}. again: read all of it."""
        said: Json = {"missing": [], "changed": [], "blocked": []}
        for place, file in enumerate(wanted):
            above = file.path.rpartition("/")[0]
            why = self._folder(above) if above else ""
            try:
                state = "" if why else self._state(file, again=again)
            except FileNotFoundError:
                state = "missing"
            except OSError as problem:
                state, why = "", problem.strerror or str(problem)
                if problem.errno == errno.ELOOP:
                    state, why = "changed", ""  # a link in its place is replaced
            if state:
                said[state].append(place)
            elif why and len(said["blocked"]) < MOST_NAMED:
                said["blocked"].append(f"{file.path} {why}")
        return said

    def _state(self, file: ManifestFile, *, again: bool) -> str:
        with files.opened(file.path, within=self.there) as handle:
            seen = os.fstat(handle)
            kept = seen.st_uid == os.geteuid() and stat.S_IMODE(seen.st_mode) == mode_of(file)
            if seen.st_size != file.size or not kept:
                return "changed"
            return "" if digest(handle, file.path, self.memory, again=again)[0] == file.sha256 else "changed"

    def _folder(self, path: str) -> str:
        """Return why nothing can be put into a folder, or nothing; one that is not there is made."""
        for each in [*manifest.above(path), path]:
            if each not in self.judged:
                try:
                    with files.folder(each, within=self.there) as handle:
                        self.judged[each] = _foreign(handle)
                except FileNotFoundError:
                    return ""
                except OSError as problem:
                    self.judged[each] = f"cannot be put there: {each} {problem.strerror}"
            if self.judged[each]:
                return self.judged[each]
        return ""

    def wrong_links(self, links: Iterable[tuple[str, str]]) -> list[int]:
        return [place for place, (path, target) in enumerate(links) if self._link(path) != target]

    def _link(self, path: str) -> str | None:
        try:
            with self._above(path) as (above, name):
                return os.readlink(name, dir_fd=above)
        except OSError:
            return None

    def additional(self, known: set[str]) -> Json:
        """Return what lies there and is not in the list: {names, more}."""
        found = walk(self.there)
        paths = {each[0] for each in found.files} | {each[0] for each in found.links}
        names = [*(repr(path[:NAMED])[1:-1] for path in sorted(paths - known)), *found.problems]
        return {"names": names[:MOST_NAMED], "more": len(names[MOST_NAMED:]) + found.more}

    # ------------------------------------------------------------ writing

    def stage(self, shelf: store.Shelf, wanted: Iterable[ManifestFile]) -> None:
        """Have in the store what lies here, so that it is given on: under a second name, without a copy."""
        for file in wanted:
            with suppress(OSError), self._above(file.path) as (above, name):
                seen = os.stat(name, dir_fd=above, follow_symlinks=False)
                ours = stat.S_ISREG(seen.st_mode) and seen.st_uid == os.geteuid() and not seen.st_mode & 0o022
                if ours and seen.st_size == file.size:
                    os.link(name, file.sha256, src_dir_fd=above, dst_dir_fd=shelf.content, follow_symlinks=False)

    def place(self, shelf: store.Shelf, lacking: list[ManifestFile]) -> None:
        """Give each file its name. Raises UnsafePathError for what is not what it should be."""
        left = [file.sha256 for file in lacking]
        for file in lacking:
            left.remove(file.sha256)
            fresh = f"parts/.{os.urandom(12).hex()}{files.NEW}"
            with store.open_content(shelf, file) as content:
                # The last of several with the same content gets it itself, unless a file has it already.
                if file.sha256 in left or os.fstat(content).st_nlink > 1:
                    with files.replacing(fresh, mode=mode_of(file), within=shelf.folder) as stream:
                        store.compare(file, content, stream.write)
                else:
                    os.fchmod(content, mode_of(file))
                    os.rename(f"objects/{file.sha256}", fresh, src_dir_fd=shelf.folder, dst_dir_fd=shelf.folder)
            with self._above(file.path, make=True) as (above, name):
                os.rename(fresh, name, src_dir_fd=shelf.folder, dst_dir_fd=above)
                seen = os.stat(name, dir_fd=above, follow_symlinks=False)
            self.memory.put(file.path, seen, file.sha256)

    def forget(self, shelf: store.Shelf, wanted: Iterable[ManifestFile]) -> None:
        """Have nothing of this in the store any more; what lay here before is what it was."""
        for file in wanted:
            try:
                stored = os.stat(file.sha256, dir_fd=shelf.content, follow_symlinks=False)
                os.unlink(file.sha256, dir_fd=shelf.content)
                with self._above(file.path) as (above, name):
                    seen = os.stat(name, dir_fd=above, follow_symlinks=False)
            except OSError:
                continue
            if (seen.st_dev, seen.st_ino) == (stored.st_dev, stored.st_ino):
                self.memory.put(file.path, seen, file.sha256)

    def link(self, links: Iterable[tuple[str, str]]) -> None:
        for path, target in links:
            fresh = f"parts/.{os.urandom(12).hex()}{files.NEW}"
            with files.folder(STORE, within=self.there, owner=os.geteuid()) as shelf:
                os.symlink(target, fresh, dir_fd=shelf)
                with self._above(path, make=True) as (above, name):
                    os.rename(fresh, name, src_dir_fd=shelf, dst_dir_fd=above)

    @contextmanager
    def _above(self, path: str, *, make: bool = False) -> Iterator[tuple[int, str]]:
        """Yield the open folder of a path, which is this user's alone, and the path's last part."""
        above, _, name = path.rpartition("/")
        for each in [*manifest.above(path)] if make else ():
            with suppress(FileExistsError):
                files.make_folder(each, mode=0o755, within=self.there)
        if not above:
            yield self.there, name
            return
        with files.folder(above, within=self.there) as handle:
            if why := _foreign(handle):
                raise files.ForeignError(errno.EPERM, why, path)
            yield handle, name


def _foreign(handle: int) -> str:
    seen = os.fstat(handle)
    if seen.st_uid != os.geteuid():
        return f"cannot be put there: its folder belongs to {files.user_name(seen.st_uid)}"
    return "cannot be put there: others may write in its folder" if seen.st_mode & 0o022 else ""


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
