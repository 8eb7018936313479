"""Relevant installed packages, files that Muster wrote, cloud-init's state and package locks."""

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
# Files and folders of Muster have its name in the path.
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
        # Exits with 1 if a pattern matches nothing, but lists the others.
        "stack": stack.text,
        "stack_why": stack.why if stack.why.endswith(("is not there", " s")) else "",
        "kernels": run(*query, KERNELS).text,
        "ours": {path: _sight(path) for path in ours},
        "owners": owners.text if owners else "",
        "cloud_init": {name: read(f"{CLOUD}/{name}.json").text for name in ("status", "result")},
        "cloud_init_there": Path("/var/lib/cloud").is_dir() or Path(CLOUD).is_dir(),
        # The kernel's list of locks: acquiring a lock, even briefly, could disturb another process.
        "locks": read("/proc/locks").text,
        "lock_inodes": {path: inode for path in LOCKS if (inode := _inode(path)) is not None},
    }


def _found(pattern: str) -> list[str]:
    """Return the matching paths, or [] if a folder cannot be read."""
    try:
        return [str(path) for path in Path("/").glob(pattern.lstrip("/"))]
    except OSError:
        return []


def _sight(path: str) -> dict[str, Any]:
    """Return the target of a link, and whether the text of a file mentions Muster (None for a folder)."""
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
