"""Properties of the machine that nodes depend on: mounts, cgroups, GPUs, and the locations of PyTorch and the
driver."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

# Not for nodes: kernel file systems, temporary folders, and data of other programs.
OWN_OF_NODE = ("/proc", "/sys", "/dev", "/run", "/tmp", "/old_root", "/mnt/sandboxing", "/var/lib/containers")
# cgroup v1 controllers in which systemd creates no groups, and which need no setup.
LEFT_ALONE = {"cpuset", "perf_event", "hugetlb", "net_cls", "net_prio"}
NOT_OF_THE_TREE = {"rw", "ro", "nosuid", "nodev", "noexec", "relatime", "clone_children"}
TORCHRUN = Path("/opt/torch/.venv/bin/torchrun")
LIBRARY = "libcuda.so.1"


class Mount(NamedTuple):
    """A line of /proc/mounts."""

    place: str
    kind: str
    options: str


class Tree(NamedTuple):
    """A cgroup hierarchy. place: its mount point on this machine; empty if the nodes mount the hierarchy."""

    place: str
    kind: str
    options: str

    @property
    def name(self) -> str:
        """Return the name of the hierarchy's folder in a node."""
        if self.kind == "cgroup2":
            return "unified"
        return "systemd" if "name=systemd" in self.options else Path(self.place).name


def read_mounts(text: str) -> list[Mount]:
    return [Mount(words[1], words[2], words[3]) for words in map(str.split, text.splitlines())]


def trees_of(mounts: list[Mount]) -> list[Tree]:
    """Return the cgroup hierarchies that nodes get: v2 only, or v1 together with v2."""
    found = {
        one.place: Tree(one.place, one.kind, own_options(one))
        for one in mounts
        if one.kind in ("cgroup", "cgroup2") and one.place.startswith("/sys/fs/cgroup")
    }
    v1 = [one for one in found.values() if one.kind == "cgroup" and not LEFT_ALONE & set(one.options.split(","))]
    v2 = [one for one in found.values() if one.kind == "cgroup2"][:1]
    if not v1:
        return v2 or [Tree("", "cgroup2", "")]
    if not any("name=systemd" in one.options for one in v1):
        v1.append(Tree("", "cgroup", "none,name=systemd"))
    return [*v1, *v2]


def own_options(mount: Mount) -> str:
    if mount.kind == "cgroup2":
        return ""
    words = [word for word in mount.options.split(",") if word not in NOT_OF_THE_TREE]
    return ",".join(["none", *words] if any("=" in word for word in words) else words)


def mounts_to_take(mountinfo: str, without: list[str]) -> list[str]:
    """Return the machine's mounts below its root that nodes need, such as the driver's folder.

    An overlay of the root does not include these mounts. without: further folders that nodes do not get.
    """
    places = {line.split()[4] for line in mountinfo.splitlines()} - {"/"}
    hidden = (*OWN_OF_NODE, *without)
    return sorted(one for one in places if not any(one == each or one.startswith(f"{each}/") for each in hidden))


def gpus() -> int:
    return len([one for one in Path("/dev").iterdir() if re.fullmatch(r"nvidia\d+", one.name)])


def torchrun() -> Path:
    """Return the torchrun of this machine's environment."""
    return TORCHRUN if TORCHRUN.exists() else Path(shutil.which("torchrun") or TORCHRUN)


def torch_version() -> str:
    code = 'from importlib.metadata import version; print(version("torch").partition("+")[0])'
    python = torchrun().with_name("python3")
    return subprocess.run([python, "-c", code], check=True, capture_output=True, text=True).stdout.strip()


def driver_libraries() -> Path | None:
    """Return the folder with libcuda. LD_LIBRARY_PATH is searched as well, because units do not inherit the
    variable."""
    printed = subprocess.run(["ldconfig", "-p"], check=False, capture_output=True, text=True).stdout
    known = [Path(line.split()[-1]).parent for line in printed.splitlines() if line.strip().startswith(f"{LIBRARY} ")]
    told = [Path(one) for one in os.environ.get("LD_LIBRARY_PATH", "").split(":") if one]
    usual = [Path("/usr/local/nvidia/lib64"), Path("/usr/local/nvidia/lib")]
    return next((one for one in (*known, *told, *usual) if (one / LIBRARY).exists()), None)


def described() -> str:
    """Return a one-line description of this machine."""
    release = dict(line.partition("=")[::2] for line in Path("/etc/os-release").read_text().splitlines())
    cards = f"{gpus()} GPU" if gpus() else "no GPU: the ranks talk over Gloo"
    first = Path("/proc/1/comm").read_text().strip()
    pretty = release["PRETTY_NAME"].strip('"')
    return f"{pretty}, kernel {os.uname().release}, PID 1 {first}, {os.cpu_count()} cores, {cards}"
