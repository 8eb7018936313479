"""Folders for compiled kernels and extensions: by default a separate folder for each node, user and environment.

On a network file system, several nodes write to the same folder. One rank then fails on a half-written file of another
rank, and the other ranks wait for the failed one (triton#11512, pytorch#173679).
"""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING

from ..verdict.check import Check

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..verdict.finding import Finding
    from .messages import CacheFacts
    from .planned import PlannedNode

CACHES = Check(
    "launch.caches",
    seen="stand-in",
    reads="the file systems of the folders for compiled kernels and extensions (TRITON_CACHE_DIR and others)",
    fires="a folder is on a network file system, where a rank can crash on another rank's half-written files (warn)",
    fix="Remove the variable, or set it to a folder on a local disk of the node",
)
# By variable: the folder within that of the environment.
FOLDERS = {"TRITON_CACHE_DIR": "triton", "TORCHINDUCTOR_CACHE_DIR": "inductor", "TORCH_EXTENSIONS_DIR": "extensions"}
DEFAULT = "cluster_run_root"  # the option that decides when no variable is set
NETWORK = re.compile(
    r"(?:nfs|cifs|smb|lustre|gpfs|mmfs|beegfs|ceph|gluster|afs|9p|weka|pvfs|orangefs|ocfs|gfs2|panfs"
    r"|fuse\.(?:sshfs|glusterfs|ceph|s3fs|juicefs|gcsfuse|rclone|mount-s3|goofys|beegfs))"
)
UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
LONGEST = 80  # characters of an environment's path in a name


def folders(root: str, environment: str) -> dict[str, str]:
    """Return the cache folder for each environment variable.

    environment: path of the Python environment with links resolved. Builds behind the same link therefore
    get separate folders: an extension works only with the torch build that it was compiled for.
    """
    name = UNSAFE.sub("_", environment.strip("/").replace("/", "-"))[-LONGEST:].lstrip(".-")
    digest = hashlib.sha256(environment.encode("utf-8", "replace")).hexdigest()[:8]
    return {variable: f"{root}/{name}-{digest}/{folder}" for variable, folder in FOLDERS.items()}


def to_look_at(entry: PlannedNode) -> dict[str, str]:
    """Return the cache folders of a launch on a node. The key is the variable that sets the folder, or DEFAULT."""
    given = {name: entry.env[name] for name in FOLDERS if name in entry.env}
    return given if len(given) == len(FOLDERS) else {**given, DEFAULT: entry.cache_root}


def judge(node: str, seen: Mapping[str, CacheFacts]) -> list[Finding]:
    found = []
    for name, facts in sorted(seen.items()):
        if not NETWORK.match(facts["type"]):
            continue
        what = "the kernel cache is" if name == DEFAULT else f"{name} is"
        text = f"{what} {facts['path']}, which is on a network file system ({facts['type']})"
        why = "A rank can crash on another rank's half-written files, and the other ranks then wait for that rank"
        if name == DEFAULT:
            fix = f"{why}: set {DEFAULT} to a folder on a local disk of the node"
        else:
            fix = f"{why}: remove {name}, or set it to a folder on a local disk of the node"
        found.append(CACHES.warn(node, text, fix=fix))
    return found
