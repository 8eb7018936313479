"""Content storage of a node. A store keeps each file under its sha256, and only this user can access the store:

    STORE/manifests/DIGEST   a received manifest, for programs that later need one of its files
    STORE/objects/SHA256     a file's content
    STORE/parts              files that are still incomplete

A plain folder has files under their own names, for example wheels for pip. Everyone can read the folder, but only this
user can write to it.

Stored content is not trusted: each use verifies the content against the sha256 in its name.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, NamedTuple

from ..tools import files, trust
from . import manifest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from .manifest import ManifestFile

FOLDERS = ("objects", "manifests", "parts")
LEFT_FREE = 200_000_000  # bytes of the disk that stay free
KEPT = 10  # manifests; files that only older ones list are removed
UNUSED = 86400.0  # seconds for which files of a possibly running transfer are kept
TIDY_SECONDS = 2.0


class Shelf(NamedTuple):
    """An open store or plain folder. Descriptors: folder: its root; content: complete files; parts: incomplete
    files."""

    folder: int
    content: int
    parts: int
    plain: bool

    def name(self, file: ManifestFile) -> str:
        return file.path if self.plain else file.sha256


@contextmanager
def opened(path: str) -> Iterator[Shelf]:
    """Yield the store after creating it if missing. Raises ForeignError if other users can change the store."""
    trust.make_folder(path.rpartition("/")[0])
    with suppress(FileExistsError):
        files.make_folder(path, mode=0o700)
    with files.folder(path, owner=os.geteuid()) as store:
        if stat.S_IMODE(os.fstat(store).st_mode) & 0o077:
            os.fchmod(store, 0o700)
        for name in FOLDERS:
            with suppress(FileExistsError):
                files.make_folder(name, mode=0o700, within=store)
        with files.folder("objects", within=store) as content, files.folder("parts", within=store) as parts:
            yield Shelf(store, content, parts, plain=False)


@contextmanager
def opened_plain(path: str) -> Iterator[Shelf]:
    """Yield a plain folder after creating it if missing. Raises ForeignError if other users can change the folder."""
    trust.make_folder(path)
    with files.folder(path, owner=os.geteuid()) as folder:
        old = time.time() - UNUSED
        for name in _listed(folder):
            if name.startswith(".") and name.endswith(files.NEW) and _changed(folder, name) < old:
                files.remove(name, within=folder)
        yield Shelf(folder, folder, folder, plain=True)


def keep_manifest(there: Shelf, text: bytes) -> list[ManifestFile]:
    """Store a manifest under its digest and mark it as the newest. Raises ValueError for an invalid manifest."""
    found = manifest.parse(text)
    files.replace(f"manifests/{manifest.digest_of(text)}", text, mode=0o600, within=there.folder)
    return found


def read_manifest(there: Shelf, digest: str) -> list[ManifestFile]:
    """Return the files of a stored manifest. Raises OSError."""
    path = f"manifests/{_name(digest)}"
    text = files.read(path, most=manifest.MOST_TEXT, within=there.folder, owner=os.geteuid())
    if manifest.digest_of(text) != digest:
        raise files.UnsafePathError(errno.EBADMSG, "does not match its digest", path)
    try:
        return manifest.parse(text)
    except ValueError as problem:
        raise files.UnsafePathError(errno.EBADMSG, str(problem), path) from None


def missing(there: Shelf, wanted: Iterable[ManifestFile]) -> list[ManifestFile]:
    """Return the files whose content is missing or different. Files with equal content are returned once."""
    once = {each.sha256: each for each in wanted}
    return [each for each in once.values() if not is_there(there, each)]


def is_there(there: Shelf, file: ManifestFile) -> bool:
    try:
        copy(there, file, lambda _chunk: None)
    except OSError:
        return False
    return True


def copy(there: Shelf, file: ManifestFile, write: Callable[[bytes], object]) -> None:
    """Pass the content to `write` in chunks. Raises UnsafePathError at the end if the content does not match its
    sha256."""
    with open_content(there, file) as handle:
        compare(file, handle, write)


@contextmanager
def open_content(there: Shelf, file: ManifestFile) -> Iterator[int]:
    with files.opened(there.name(file), within=there.content, owner=os.geteuid()) as handle:
        yield handle


def compare(file: ManifestFile, handle: int, write: Callable[[bytes], object]) -> None:
    digest, left = hashlib.sha256(), file.size
    while left > 0 and (chunk := os.read(handle, min(left, files.CHUNK))):
        digest.update(chunk)
        write(chunk)
        left -= len(chunk)
    longer = os.read(handle, 1)
    if left or longer or digest.hexdigest() != file.sha256:
        raise files.UnsafePathError(errno.EBADMSG, "was changed on this node (sha256 mismatch)", file.path)


def take(there: Shelf, file: ManifestFile, source: int, begin: int) -> bool:
    """Store the content of an open file from `begin` on; return whether its sha256 matches."""
    name = f".{file.sha256}.{os.urandom(6).hex()}{files.NEW}"
    digest, at, end = hashlib.sha256(), begin, begin + file.size
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | files.SAFE
    handle = os.open(name, flags, 0o600, dir_fd=there.content)
    try:
        while at < end and (chunk := os.pread(source, min(files.CHUNK, end - at), at)):
            digest.update(chunk)
            write_all(handle, chunk)
            at += len(chunk)
        right = at == end and digest.hexdigest() == file.sha256
        if right:
            os.fchmod(handle, 0o644 if there.plain else 0o600)
            os.rename(name, there.name(file), src_dir_fd=there.content, dst_dir_fd=there.content)
    except BaseException:
        os.unlink(name, dir_fd=there.content)
        raise
    finally:
        os.close(handle)
    if not right:
        os.unlink(name, dir_fd=there.content)
    return right


def add_part(there: Shelf, name: str, file: ManifestFile, begin: int, data: bytes) -> str:
    """Append a part of a file; store the file when it is complete. Return the error, or ""."""
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | files.SAFE
    handle = os.open(f"{_name(name)}-{file.sha256}", flags, 0o600, dir_fd=there.parts)
    try:
        if os.fstat(handle).st_size != begin or begin + len(data) > file.size:
            return f"the received parts of {file.path} are inconsistent"
        write_all(handle, data)
        if begin + len(data) < file.size:
            return ""
        right = take(there, file, handle, 0)
    finally:
        os.close(handle)
    os.unlink(f"{name}-{file.sha256}", dir_fd=there.parts)
    return "" if right else f"{file.path} was changed while it was read"


@contextmanager
def scratch(there: Shelf) -> Iterator[int]:
    """Yield an unnamed file, which disappears when closed."""
    name = f".{os.urandom(16).hex()}{files.NEW}"
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | files.SAFE
    handle = os.open(name, flags, 0o600, dir_fd=there.parts)
    os.unlink(name, dir_fd=there.parts)
    try:
        yield handle
    finally:
        os.close(handle)


def room(there: Shelf) -> int:
    """Return the free space of the store in bytes."""
    return _room(os.fstatvfs(there.folder))


def room_at(path: str) -> int:
    """Return the free space in bytes for a folder that might not exist yet."""
    while True:
        try:
            return _room(os.statvfs(path or "/"))
        except (FileNotFoundError, NotADirectoryError):
            path = path.rpartition("/")[0]


def tidy(there: Shelf) -> None:
    """Remove content that none of the newest manifests lists, unless the content was used within the last day."""
    store = there.folder
    deadline, old = time.monotonic() + TIDY_SECONDS, time.time() - UNUSED
    ages = {name: _changed(store, f"manifests/{name}") for name in files.names("manifests", within=store)}
    newest = sorted(ages, key=lambda name: ages[name], reverse=True)
    kept = [name for place, name in enumerate(newest) if place < KEPT or ages[name] > old]
    used: set[str] = set()
    for name in kept:
        with suppress(OSError):
            used |= {each.sha256 for each in read_manifest(there, name)}
    gone = [f"manifests/{name}" for name in newest if name not in kept]
    for folder in ("objects", "parts"):
        for name in files.names(folder, within=store):
            if time.monotonic() > deadline:
                break
            path = f"{folder}/{name}"
            if name not in used and _changed(store, path) < old:
                gone.append(path)
    for path in gone:
        with suppress(OSError):
            files.remove(path, within=store)


def write_all(handle: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(handle, rest) :]


def _listed(folder: int) -> list[str]:
    with os.scandir(folder) as entries:
        return [entry.name for entry in entries]


def _room(disk: os.statvfs_result) -> int:
    return max(0, disk.f_bavail * disk.f_frsize - LEFT_FREE)


def _changed(store: int, path: str) -> float:
    try:
        return os.stat(path, dir_fd=store, follow_symlinks=False).st_mtime
    except OSError:
        return 0.0


def _name(text: str) -> str:
    """Return the text if it is a valid sha256."""
    if not manifest.DIGEST.match(text):
        raise files.UnsafePathError(errno.EINVAL, "is not a sha256", text[:100])
    return text
