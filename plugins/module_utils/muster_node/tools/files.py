"""Reading and writing files: the one way, on nodes and on the controller, whoever else may write where they lie.

Another user may put a link, a FIFO or an endless file in the place of a file, and may do so between two calls. So a
file is opened first and judged by its descriptor, and whatever is not to be had is refused (RefusedError, an OSError).

- A path's last part is never followed when it is a link, unless the caller says `links=True`: for the system's own
  files, such as /etc/os-release. Its parents are followed, as the caller names them.
- `within` is a folder that `folder()` has opened. A path within it has no link in any of its parts, and no "..": for
  every folder that somebody else may write. What happens in it happens in this very folder, even when it was moved.
- Only regular files are read. A FIFO, a socket or a device is refused without waiting for it.
- `owner` is the uid that a file or folder must belong to. It also refuses a hard link to another user's file.
- Nothing is read beyond `most` bytes.

Standard library only, Python 3.10+. Modules import it as ansible.module_utils.muster_node.tools.files, plugins of the
controller as muster_node.tools.files, programs (see Program in plugin_utils) likewise.
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

MOST = 64_000_000  # bytes of a file that is read whole; dpkg's status, the largest of them, has 5 to 20 MB
MOST_TEXT = 4_000_000  # bytes of a text that is looked at, and may be cut
MOST_NAMES = 100_000
CHUNK = 1 << 20
NEW = ".new"  # how the name ends of a file that is not yet in its place; one that stays was left by a killed run

# A FIFO would wait for its other end, a file for whoever holds a lease on it, and a terminal would become this
# process's own: none of it with these.
SAFE = os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
NOT_REGULAR = "is not a regular file"


class RefusedError(OSError):
    """What the path leads to is not to be read or written. strerror continues a sentence that begins with the path."""


class ForeignError(RefusedError):
    """It belongs to somebody else."""


# ---------------------------------------------------------------- reading


def read(
    path: str, *, most: int = MOST, within: int | None = None, links: bool = False, owner: int | None = None
) -> bytes:
    """Return the whole file; one of more than `most` bytes is refused, never cut."""
    content = part(path, 0, most + 1, within=within, links=links, owner=owner)
    if len(content) > most:
        raise RefusedError(errno.EFBIG, f"has more than {most} bytes", path)
    return content


def part(
    path: str, begin: int, most: int, *, within: int | None = None, links: bool = False, owner: int | None = None
) -> bytes:
    """Return `most` bytes from `begin` on, or fewer at the end. A negative begin counts from the end: a tail."""
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
    """Return what the file says, cut after `most` bytes; None where it cannot be read. Bad UTF-8 is replaced."""
    try:
        return part(path, 0, most, within=within, links=links).decode("utf-8", "replace")
    except OSError:
        return None


@contextmanager
def opened(
    path: str, *, within: int | None = None, links: bool = False, owner: int | None = None, written: bool = False
) -> Iterator[int]:
    """Yield the descriptor of a regular file that is open for reading; written: and for writing."""
    with _parent(path, within) as (parent, name):
        handle = _open(name, (os.O_RDWR if written else os.O_RDONLY) | _following(links), path, parent)
    try:
        _judge(handle, path, owner)
        yield handle
    finally:
        os.close(handle)


@contextmanager
def folder(path: str, *, within: int | None = None, links: bool = False, owner: int | None = None) -> Iterator[int]:
    """Yield the descriptor of a folder, for `within`."""
    with _parent(path, within) as (parent, name):
        handle = _open(name, os.O_RDONLY | os.O_DIRECTORY | _following(links), path, parent)
    try:
        _judge(handle, path, owner, stat.S_ISDIR)
        yield handle
    finally:
        os.close(handle)


def names(path: str, *, within: int | None = None, links: bool = False, most: int = MOST_NAMES) -> list[str]:
    """Return the names in a folder, sorted; a folder with more than `most` is refused."""
    found: list[str] = []
    with folder(path, within=within, links=links) as handle, os.scandir(handle) as entries:
        for entry in entries:
            found.append(entry.name)
            if len(found) > most:
                raise RefusedError(errno.EFBIG, f"holds more than {most} files", path)
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
    """Put a file in its place at once or not at all; see replacing."""
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
    """Yield the stream of a new file, which takes the path's place when the block ends well, and else never was.

    mode: of the new file; without one, what the umask leaves. owner: (uid, gid); without one, this process's. keep: a
    regular file that is there hands its mode on to the new one, and its owner where this is root. parents: missing
    folders are made. A link in the file's place is replaced itself; with links=True, the file that it leads to.
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
    """Put a link in its place at once, whatever was there; what it leads to is not looked at."""
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
    """Write over the beginning of a regular file that is there, by a single write: for /proc, and for what stays."""
    with _parent(path, within) as (parent, name):
        handle = _open(name, os.O_WRONLY | os.O_NOFOLLOW, path, parent)
    try:
        _judge(handle, path, None)
        os.write(handle, content)
    finally:
        os.close(handle)


def make_folder(path: str, *, mode: int, owner: tuple[int, int] | None = None, within: int | None = None) -> None:
    """Make a folder of this mode and owner, whatever the umask; FileExistsError where something has that name."""
    with _parent(path, within, held=True) as (parent, name):
        os.mkdir(name, 0o700, dir_fd=parent)
        handle = _open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, path, parent)
    try:
        _judge(handle, path, os.geteuid(), stat.S_ISDIR)
        _give(handle, mode, owner)
    finally:
        os.close(handle)


def remove(path: str, *, within: int | None = None) -> bool:
    """Remove a file, or a link itself; return whether there was one."""
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
    """Yield the open folder of a path's last part, and that part. held: it is opened, so that several steps
    happen in one and the same, and can be synced; a single step without `within` needs none."""
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
            raise RefusedError(errno.EINVAL, "is not a path within a folder", path)
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
    """Open, and say by the path why not."""
    try:
        return os.open(name, flags | SAFE, mode, dir_fd=parent)
    except OSError as problem:
        number = problem.errno or 0
        if number == errno.ELOOP and flags & os.O_NOFOLLOW:
            raise RefusedError(number, "is a link", path) from None
        if number == errno.ENOTDIR and flags & os.O_NOFOLLOW:
            raise RefusedError(number, "has a part that is a link, or not a folder", path) from None
        if number in {errno.ENXIO, errno.EISDIR}:
            raise RefusedError(number, NOT_REGULAR, path) from None
        raise OSError(number, os.strerror(number), path) from None


def _judge(handle: int, path: str, owner: int | None, is_kind: Callable[[int], bool] = stat.S_ISREG) -> None:
    seen = os.fstat(handle)
    if not is_kind(seen.st_mode):
        raise RefusedError(errno.EINVAL, NOT_REGULAR, path)
    if owner is not None and seen.st_uid != owner:
        name = user_name(seen.st_uid)
        raise ForeignError(errno.EPERM, f"belongs to {'uid ' if name.isdigit() else ''}{name}", path)


def _fresh_name(name: str) -> str:
    # Hidden, and with an ending that neither apt, systemd nor sshd would read.
    return f".{name[:50]}.{os.urandom(6).hex()}{NEW}"


def _regular(name: str, parent: int | None) -> os.stat_result | None:
    try:
        seen = os.stat(name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        return None
    return seen if stat.S_ISREG(seen.st_mode) else None


def _give(handle: int, mode: int | None, owner: tuple[int, int] | None) -> None:
    # The owner first: a change of owner takes set-user-ID bits away.
    if owner is not None:
        os.fchown(handle, *owner)
    if mode is not None:
        os.fchmod(handle, mode)


def _following(links: bool) -> int:
    return 0 if links else os.O_NOFOLLOW


def _sync(handle: int | None) -> None:
    """Have a folder's names on the disk; a file system that cannot do this says EINVAL."""
    try:
        if handle is not None:
            os.fsync(handle)
    except OSError as problem:
        if problem.errno != errno.EINVAL:
            raise
