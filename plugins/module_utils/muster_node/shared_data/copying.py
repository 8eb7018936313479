"""Read a data folder on a node for other nodes, or receive it from them.

Root reads the folder, so a user who can change the path could redirect root to other files. Therefore no part of the
path can be a link, and root or the folder's owner must own all parent folders and contents.

A received folder is owned by root and readable by everyone. Files arrive in a store inside the folder
(distribution/store.py). Once a file is complete and verified, a rename moves it to its path.
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
    """Raise UnsafePathError if data must not be stored at this path. Check the kernel's mount list first: probing a
    folder of an unavailable server would block."""
    below = [each for each in mounted() if f"{path}/".startswith(f"{each.path.rstrip('/')}/")]
    on = max(below, key=lambda each: len(each.path), default=None)
    if on and on.type in NETWORK:
        raise files.UnsafePathError(errno.EINVAL, f"is on {on.source} ({on.type}), which other nodes share", path)
    trust.refuse_foreign(path)
    if os.path.lexists(path) and not Path(path).is_dir():
        raise files.UnsafePathError(errno.ENOTDIR, "is not a folder", path)


class Receiving:
    """A folder that receives data. there: descriptor of the folder."""

    def __init__(self, there: int, memory: Remembered) -> None:
        self.there = there
        self.memory = memory
        self.judged: dict[str, str] = {"": ""}

    # ------------------------------------------------------------ inspecting

    def look(self, wanted: Iterable[ManifestFile], *, again: bool) -> Json:
        """Return {missing, changed: positions in the list, blocked: sentences}. again: read all contents, even if their
        digests are cached."""
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
        """Return the reason why files cannot be put into a folder; "" if they can, or if the folder is missing."""
        for each in [*manifest.above(path), path]:
            if each not in self.judged:
                try:
                    with files.folder(each, within=self.there) as handle:
                        self.judged[each] = _foreign(handle)
                except FileNotFoundError:
                    return ""
                except OSError as problem:
                    self.judged[each] = f"cannot be written: {each} {problem.strerror}"
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
        """Return the files and links that exist in the folder but not in the list: {names, more}."""
        found = walk(self.there)
        paths = {each[0] for each in found.files} | {each[0] for each in found.links}
        names = [*(repr(path[:NAMED])[1:-1] for path in sorted(paths - known)), *found.problems]
        return {"names": names[:MOST_NAMED], "more": len(names[MOST_NAMED:]) + found.more}

    # ------------------------------------------------------------ writing

    def stage(self, shelf: store.Shelf, wanted: Iterable[ManifestFile]) -> None:
        """Link present files into the store, so that they can be sent without making a copy."""
        for file in wanted:
            with suppress(OSError), self._above(file.path) as (above, name):
                seen = os.stat(name, dir_fd=above, follow_symlinks=False)
                ours = stat.S_ISREG(seen.st_mode) and seen.st_uid == os.geteuid() and not seen.st_mode & 0o022
                if ours and seen.st_size == file.size:
                    os.link(name, file.sha256, src_dir_fd=above, dst_dir_fd=shelf.content, follow_symlinks=False)

    def place(self, shelf: store.Shelf, lacking: list[ManifestFile]) -> None:
        """Move each file to its path. Raises UnsafePathError for a file that does not match its digest."""
        left = [file.sha256 for file in lacking]
        for file in lacking:
            left.remove(file.sha256)
            fresh = f"parts/.{os.urandom(12).hex()}{files.NEW}"
            with store.open_content(shelf, file) as content:
                # The last path with this content gets the stored file itself, unless another path already has it.
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
        """Remove these files from the store, and cache the digests of unchanged files."""
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
        """Yield the descriptor of a path's parent folder, which only this user can change, and the last part of the
        path."""
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
        return f"cannot be written: its folder belongs to {files.user_name(seen.st_uid)}"
    return "cannot be written: its folder is writable for other users" if seen.st_mode & 0o022 else ""


@contextmanager
def opened(path: str) -> Iterator[tuple[int, int]]:
    """Yield the descriptor and the owner of the folder."""
    with files.folder("/") as root, files.folder(path[1:], within=root) as folder:
        owner = os.fstat(folder).st_uid
        for above in manifest.above(path[1:]):
            with files.folder(above, within=root) as handle:
                uid = os.fstat(handle).st_uid
            if uid not in {0, owner}:
                raise files.ForeignError(errno.EPERM, f"is in a folder of {files.user_name(uid)}", path)
        yield folder, owner


def stage(path: str, shelf: store.Shelf, wanted: Iterable[ManifestFile]) -> None:
    """Copy these files into the store, except files that do not match the list."""
    with opened(path) as (folder, owner):
        for file in wanted:
            if store.is_there(shelf, file):
                continue
            with suppress(files.UnsafePathError), files.opened(file.path, within=folder, owner=owner) as content:
                store.take(shelf, file, content, 0)
