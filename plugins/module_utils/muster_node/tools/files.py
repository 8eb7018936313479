"""Read and write files safely on nodes and the controller, in folders to which other users might have write access.

Another user can replace a file with a link, a FIFO or an endless file at any time. Therefore a file is first opened and
then checked through its descriptor. Unsafe files are rejected (UnsafePathError, an OSError).

- The last part of a path is never followed if it is a link, unless the caller passes `links=True` for system files such
  as /etc/os-release. Links in parent folders are followed.
- `within` is a folder opened by `folder()`. A path within it may not contain links or "..". Use `within` for every
  folder to which another user can write. Operations apply to this folder even if it was moved.
- Only regular files are read. A FIFO, socket or device is rejected without waiting for it.
- `owner` is the required uid of a file or folder. This check also rejects hard links to another user's file.
- At most `most` bytes are read.

Standard library only, Python 3.10+. Modules import this file as ansible.module_utils.muster_node.tools.files. Plugins
of the controller and programs (see NodeProgram in plugin_utils) import it as muster_node.tools.files.
"""

from __future__ import annotations

import errno
import os
import pwd
import stat
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MOST = 64_000_000  # bytes of a file that is read completely; the largest is dpkg's status with 5 to 20 MB
MOST_TEXT = 4_000_000  # bytes of a text that may be truncated
MOST_NAMES = 100_000
CHUNK = 1 << 20
NEW = ".new"  # suffix of a temporary file; a leftover one is from a killed run

# Without these flags, a FIFO would wait for its other end, a file for the holder of a lease, and a terminal would
# become this process's controlling terminal.
SAFE = os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
NOT_REGULAR = "is not a regular file"


class UnsafePathError(OSError):
    """Raised if it is unsafe to read or write a path. strerror continues a sentence that begins with the path."""


class ForeignError(UnsafePathError):
    """Raised if a path belongs to another user or another user can change it."""


# ---------------------------------------------------------------- reading


def read(
    path: str, *, most: int = MOST, within: int | None = None, links: bool = False, owner: int | None = None
) -> bytes:
    """Return the complete file. A file larger than `most` bytes is rejected, not truncated."""
    content = part(path, 0, most + 1, within=within, links=links, owner=owner)
    if len(content) > most:
        raise UnsafePathError(errno.EFBIG, f"has more than {most} bytes", path)
    return content


def part(
    path: str, begin: int, most: int, *, within: int | None = None, links: bool = False, owner: int | None = None
) -> bytes:
    """Return `most` bytes from `begin`, or fewer at the end of the file. A negative `begin` counts from the end of the
    file."""
    with opened(path, within=within, links=links, owner=owner) as handle:
        if begin:
            size = os.fstat(handle).st_size
            os.lseek(handle, begin if begin > 0 else max(0, size + begin), os.SEEK_SET)
        chunks: list[bytes] = []
        while most > 0 and (chunk := os.read(handle, min(most, CHUNK))):
            chunks.append(chunk)
            most -= len(chunk)
        return b"".join(chunks)


def text(path: str, *, most: int = MOST_TEXT, within: int | None = None, links: bool = False) -> str | None:
    """Return the text of a file, truncated to `most` bytes; None if the file cannot be read. Invalid UTF-8 is
    replaced."""
    try:
        return part(path, 0, most, within=within, links=links).decode("utf-8", "replace")
    except OSError:
        return None


@contextmanager
def opened(
    path: str, *, within: int | None = None, links: bool = False, owner: int | None = None, written: bool = False
) -> Iterator[int]:
    """Yield the descriptor of a regular file opened for reading. written: open the file for writing as well."""
    with _parent(path, within) as (parent, name):
        handle = _open(name, (os.O_RDWR if written else os.O_RDONLY) | _following(links), path, parent)
    try:
        _judge(handle, path, owner)
        yield handle
    finally:
        os.close(handle)


@contextmanager
def folder(path: str, *, within: int | None = None, links: bool = False, owner: int | None = None) -> Iterator[int]:
    """Yield the descriptor of a folder, for use as `within`."""
    with _parent(path, within) as (parent, name):
        handle = _open(name, os.O_RDONLY | os.O_DIRECTORY | _following(links), path, parent)
    try:
        _judge(handle, path, owner, stat.S_ISDIR)
        yield handle
    finally:
        os.close(handle)


def names(path: str, *, within: int | None = None, links: bool = False, most: int = MOST_NAMES) -> list[str]:
    """Return the sorted names of the entries in a folder. A folder with more than `most` entries is rejected."""
    found: list[str] = []
    with folder(path, within=within, links=links) as handle, os.scandir(handle) as entries:
        for entry in entries:
            found.append(entry.name)
            if len(found) > most:
                raise UnsafePathError(errno.EFBIG, f"contains more than {most} files", path)
    return sorted(found)


def user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


# ---------------------------------------------------------------- writing


def replace(
    path: str,
    content: bytes,
    *,
    mode: int | None = None,
    owner: tuple[int, int] | None = None,
    keep: bool = False,
    parents: bool = False,
    links: bool = False,
    within: int | None = None,
) -> None:
    """Replace a file atomically. For the arguments, see `replacing`."""
    with replacing(path, mode=mode, owner=owner, keep=keep, parents=parents, links=links, within=within) as stream:
        stream.write(content)


@contextmanager
def replacing(
    path: str,
    *,
    mode: int | None = None,
    owner: tuple[int, int] | None = None,
    keep: bool = False,
    parents: bool = False,
    links: bool = False,
    within: int | None = None,
) -> Iterator[BinaryIO]:
    """Yield a stream to a new file. If the block succeeds, the new file replaces the path; otherwise it is removed.

    mode: mode of the new file; default: from the umask. owner: (uid, gid); default: those of this process. keep: use
    the mode of an existing regular file, and also its owner if this process is root. parents: create missing folders.
    An existing link is replaced; with links=True, the target of the link is replaced instead.
    """
    if links and within is None:
        path = os.path.realpath(path)
    if parents and within is None:
        os.makedirs(os.path.dirname(path) or ".", mode=0o755, exist_ok=True)
    with _parent(path, within, held=True) as (parent, name):
        fresh = _fresh_name(name)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        there = _regular(name, parent) if keep else None
        if there:
            mode = there.st_mode & 0o7777
            owner = (there.st_uid, there.st_gid) if os.geteuid() == 0 else None
        handle = _open(fresh, flags, path, parent, 0o666 if mode is None else 0o600)
        try:
            with os.fdopen(handle, "wb") as stream:
                yield stream
                stream.flush()
                _give(handle, mode, owner)
                os.fsync(handle)
            os.rename(fresh, name, src_dir_fd=parent, dst_dir_fd=parent)
        except BaseException:
            with suppress(OSError):
                os.unlink(fresh, dir_fd=parent)
            raise
        _sync(parent)


def link(path: str, target: str) -> None:
    """Atomically replace a path with a link. The target is not checked."""
    with _parent(path, None, held=True) as (parent, name):
        fresh = _fresh_name(name)
        os.symlink(target, fresh, dir_fd=parent)
        try:
            os.rename(fresh, name, src_dir_fd=parent, dst_dir_fd=parent)
        except BaseException:
            with suppress(OSError):
                os.unlink(fresh, dir_fd=parent)
            raise
        _sync(parent)


def overwrite(path: str, content: bytes, *, within: int | None = None) -> None:
    """With a single write, overwrite the beginning of an existing regular file, such as one in /proc."""
    with _parent(path, within) as (parent, name):
        handle = _open(name, os.O_WRONLY | os.O_NOFOLLOW, path, parent)
    try:
        _judge(handle, path, None)
        os.write(handle, content)
    finally:
        os.close(handle)


def make_folder(path: str, *, mode: int, owner: tuple[int, int] | None = None, within: int | None = None) -> None:
    """Create a folder with this mode and owner, regardless of the umask. Raises FileExistsError if the name exists."""
    with _parent(path, within, held=True) as (parent, name):
        os.mkdir(name, 0o700, dir_fd=parent)
        handle = _open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, path, parent)
    try:
        _judge(handle, path, os.geteuid(), stat.S_ISDIR)
        _give(handle, mode, owner)
    finally:
        os.close(handle)


def remove(path: str, *, within: int | None = None) -> bool:
    """Remove a file or a link. Return whether the file or link existed."""
    try:
        with _parent(path, within, held=True) as (parent, name):
            os.unlink(name, dir_fd=parent)
            _sync(parent)
    except FileNotFoundError:
        return False
    return True


# ---------------------------------------------------------------- descriptors


@contextmanager
def _parent(path: str, within: int | None, *, held: bool = False) -> Iterator[tuple[int | None, str]]:
    """Yield the open parent folder of a path, and the last part of the path. held: open the folder, so that several
    steps use the same folder and the folder can be synced. A single step without `within` does not need an open
    folder."""
    flags = os.O_DIRECTORY | os.O_CLOEXEC | (os.O_RDONLY if held else os.O_PATH)
    if within is None:
        if not held:
            yield None, path
            return
        before, _, name = path.rpartition("/")
        handle = os.open(before or ("/" if path.startswith("/") else "."), flags)
    else:
        *above, name = path.split("/")
        if any(each in {"", ".", ".."} for each in (*above, name)):
            raise UnsafePathError(errno.EINVAL, "is not a path within a folder", path)
        handle = os.open(".", flags, dir_fd=within)
        for each in above:
            try:
                below = _open(each, flags | os.O_NOFOLLOW, path, handle)
            finally:
                os.close(handle)
            handle = below
    try:
        yield handle, name
    finally:
        os.close(handle)


def _open(name: str, flags: int, path: str, parent: int | None, mode: int = 0o600) -> int:
    """Open a file. Errors contain the complete path."""
    try:
        return os.open(name, flags | SAFE, mode, dir_fd=parent)
    except OSError as problem:
        number = problem.errno or 0
        if number == errno.ELOOP and flags & os.O_NOFOLLOW:
            raise UnsafePathError(number, "is a link", path) from None
        if number == errno.ENOTDIR and flags & os.O_NOFOLLOW:
            raise UnsafePathError(number, "contains a part that is a link or not a folder", path) from None
        if number in {errno.ENXIO, errno.EISDIR}:
            raise UnsafePathError(number, NOT_REGULAR, path) from None
        raise OSError(number, os.strerror(number), path) from None


def _judge(handle: int, path: str, owner: int | None, is_kind: Callable[[int], bool] = stat.S_ISREG) -> None:
    seen = os.fstat(handle)
    if not is_kind(seen.st_mode):
        raise UnsafePathError(errno.EINVAL, NOT_REGULAR, path)
    if owner is not None and seen.st_uid != owner:
        name = user_name(seen.st_uid)
        raise ForeignError(errno.EPERM, f"belongs to {'uid ' if name.isdigit() else ''}{name}", path)


def _fresh_name(name: str) -> str:
    # A hidden name with a suffix that apt, systemd and sshd ignore.
    return f".{name[:50]}.{os.urandom(6).hex()}{NEW}"


def _regular(name: str, parent: int | None) -> os.stat_result | None:
    try:
        seen = os.stat(name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        return None
    return seen if stat.S_ISREG(seen.st_mode) else None


def _give(handle: int, mode: int | None, owner: tuple[int, int] | None) -> None:
    # Owner first, because a change of owner clears set-user-ID bits.
    if owner is not None:
        os.fchown(handle, *owner)
    if mode is not None:
        os.fchmod(handle, mode)


def _following(links: bool) -> int:
    return 0 if links else os.O_NOFOLLOW


def _sync(handle: int | None) -> None:
    """Sync a folder to disk. Ignore EINVAL, which file systems without support return."""
    try:
        if handle is not None:
            os.fsync(handle)
    except OSError as problem:
        if problem.errno != errno.EINVAL:
            raise
