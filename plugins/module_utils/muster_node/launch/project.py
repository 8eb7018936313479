"""Create a launch's read-only copy of its project from the store, before the launch starts.

In an administrator launch, root owns the copy, in a folder that only the training user can enter. In a user launch, the
user owns the copy. The sha256 of each file is checked during the copy.
"""

from __future__ import annotations

import errno
import grp
import hashlib
import os
import pwd
import struct
from contextlib import nullcontext, suppress
from typing import Any

from ..distribution import manifest, store
from ..distribution.manifest import ManifestFile
from ..tools import files

Json = dict[str, Any]

FOLDER = "project"
# POSIX access control lists in the kernel's format: a version, then (tag, permissions, id) for each entry.
ACL = "system.posix_acl_access"
ACL_VERSION, ACL_ENTRY = struct.Struct("<I"), struct.Struct("<HHI")
OWNER, ONE_USER, GROUP, MASK, OTHERS, NO_ID = 0x01, 0x02, 0x04, 0x10, 0x20, 0xFFFFFFFF
ENTER = 5  # r-x
CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | files.SAFE


def place(spec: Json, user: pwd.struct_passwd) -> None:
    """Create the copy in the launch's folder. Raises OSError with the file name if a file does not match its sha256."""
    path = f"{spec['run_dir']}/{FOLDER}"
    own = os.geteuid() != 0
    files.make_folder(path, mode=0o700)
    with store.opened(spec["project"]["store"]) as there, files.folder(path) as top:
        found = store.read_manifest(there, spec["project"]["digest"])
        folders = sorted({folder for file in found for folder in manifest.above(file.path)})
        for folder in folders:
            files.make_folder(folder, mode=0o755, within=top)
        for file in found:
            _copy(there, file, top, own=own)
        for folder in reversed(folders) if own else ():
            with files.folder(folder, within=top) as handle:
                os.fchmod(handle, 0o500)
        if own:
            os.fchmod(top, 0o500)
        else:
            let_in(top, path, user)


def digest_there(run_dir: str) -> str:
    """Return the digest of the copy's current content. If the copy is unreadable, return a text that matches no
    manifest."""
    try:
        with files.folder(f"{run_dir}/{FOLDER}", owner=os.geteuid()) as top:
            return manifest.digest_of(manifest.render(_listed(top, "")))
    except (OSError, RecursionError) as problem:
        return f"none: {problem}"


def let_in(folder: int, path: str, user: pwd.struct_passwd) -> None:
    """Allow only one user to enter a root-owned folder, with an ACL or with a group that has no other member."""
    entries = [(OWNER, 7, NO_ID), (ONE_USER, ENTER, user.pw_uid), (GROUP, 0, NO_ID), (MASK, ENTER, NO_ID)]
    packed = b"".join(ACL_ENTRY.pack(*each) for each in [*entries, (OTHERS, 0, NO_ID)])
    try:
        os.setxattr(folder, ACL, ACL_VERSION.pack(2) + packed)
    except OSError as problem:
        if problem.errno not in {errno.EOPNOTSUPP, errno.ENOSYS}:
            raise
        if not is_alone(user):
            why = f"cannot be closed to other users: give {user.pw_name} its own group, or use a file system with ACLs"
            raise files.UnsafePathError(errno.EOPNOTSUPP, why, path) from None
        os.fchown(folder, 0, user.pw_gid)
        os.fchmod(folder, 0o750)


def is_alone(user: pwd.struct_passwd) -> bool:
    """Return whether the user's group has no other member. Only users that the node can list are considered."""
    with suppress(KeyError):
        if set(grp.getgrgid(user.pw_gid).gr_mem) - {user.pw_name}:
            return False
    return all(each.pw_gid != user.pw_gid or each.pw_uid == user.pw_uid for each in pwd.getpwall())


def _copy(there: store.Shelf, file: ManifestFile, top: int, *, own: bool) -> None:
    above, _, name = file.path.rpartition("/")
    with files.folder(above, within=top) if above else nullcontext(top) as folder:
        handle = os.open(name, CREATE, 0o600, dir_fd=folder)
    try:
        store.copy(there, file, lambda chunk: store.write_all(handle, chunk))
        read_only = 0o400 if own else 0o444
        os.fchmod(handle, read_only | (read_only >> 2 if file.executable else 0))
    finally:
        os.close(handle)


def _listed(folder: int, above: str) -> list[ManifestFile]:
    found: list[ManifestFile] = []
    for name in os.listdir(folder):
        path = f"{above}{name}"
        if os.path.isdir(f"/proc/self/fd/{folder}/{name}") and not os.path.islink(f"/proc/self/fd/{folder}/{name}"):
            with files.folder(name, within=folder) as below:
                found += _listed(below, f"{path}/")
            continue
        digest = hashlib.sha256()
        with files.opened(name, within=folder, owner=os.geteuid()) as handle:
            seen = os.fstat(handle)
            while chunk := os.read(handle, files.CHUNK):
                digest.update(chunk)
        found.append(ManifestFile(path, bool(seen.st_mode & 0o100), seen.st_size, digest.hexdigest()))
    return found
