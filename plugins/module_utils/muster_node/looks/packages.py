"""What the node is busy with, and what is installed that a cluster has to do with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..tools.run import read, run

STACK = (
    *("nvidia-driver-*", "nvidia-kernel-*", "nvidia-dkms-*", "libnvidia-compute*", "libcuda1", "libnccl*"),
    *("cuda-toolkit*", "datacenter-gpu-manager*"),
)
KERNELS = "linux-image-*"
LOCKS = ("/var/lib/dpkg/lock-frontend", "/var/lib/dpkg/lock", "/var/lib/apt/lists/lock", "/var/cache/apt/archives/lock")
CLOUD = "/run/cloud-init"
# What Muster puts on a node carries its name.
OURS = (
    *("/etc/*/*muster*", "/etc/*/*/*muster*", "/opt/muster", "/var/lib/muster", "/opt/muster/pytorch/current"),
    *("/usr/local/bin/*muster*", "/usr/local/sbin/*muster*", "/usr/local/lib/*muster*"),
)


def look() -> dict[str, Any]:
    query = ("dpkg-query", "--show", "--showformat=${Package} ${Version} ${db:Status-Status}\\n")
    stack = run(*query, *STACK)
    ours = sorted({path for pattern in OURS for path in _found(pattern)})
    owners = run("dpkg-query", "--search", *ours) if ours else None
    return {
        # It ends with 1 when nothing fits one of the patterns, and lists the rest.
        "stack": stack.text,
        "stack_why": stack.why if stack.why.endswith(("is not there", " s")) else "",
        "kernels": run(*query, KERNELS).text,
        "ours": {path: _sight(path) for path in ours},
        "owners": owners.text if owners else "",
        "cloud_init": {name: read(f"{CLOUD}/{name}.json").text for name in ("status", "result")},
        "cloud_init_there": Path("/var/lib/cloud").is_dir() or Path(CLOUD).is_dir(),
        # The kernel's own list of locks: asking for a lock, even to give it back, could disturb whoever wants it.
        "locks": read("/proc/locks").text,
        "lock_inodes": {path: inode for path in LOCKS if (inode := _inode(path)) is not None},
    }


def _found(pattern: str) -> list[str]:
    """Return the paths that fit; where a folder may not be read, those of the others."""
    try:
        return [str(path) for path in Path("/").glob(pattern.lstrip("/"))]
    except OSError:
        return []


def _sight(path: str) -> dict[str, Any]:
    """Look where a link leads, and whether a file says that Muster wrote it; a folder says nothing."""
    place = Path(path)
    return {
        "to": str(place.resolve()) if place.is_symlink() else "",
        "says_so": "muster" in read(path).text.lower() if place.is_file() else None,
    }


def _inode(path: str) -> int | None:
    try:
        return Path(path).stat().st_ino
    except OSError:
        return None
