"""The GPU stack of a node: packages, modules on disk and loaded, configuration files, and processes that use GPUs.

nvidia-smi would load the kernel module, and data collection must not start anything. Therefore nvidia-smi runs only if
the module is loaded.
"""

from __future__ import annotations

import grp
import hashlib
from pathlib import Path
from typing import Any

from ..tools import files, process
from ..tools.boot import kernels
from ..tools.run import CommandResult, names, read, run
from .gpu import driver_holders

# dpkg is listed for its architecture, which is the machine's.
PATTERNS = (
    *("dpkg", "*nvidia*", "libcuda*", "cuda-*", "libcudnn*", "cudnn*", "libnccl*", "libnvsdm*", "nvlsm", "nvlink5*"),
    *("libnvoptix*", "libnvcuvid*", "datacenter-gpu-manager*", "dkms", "linux-headers-*"),
    *("docker-ce", "docker.io", "podman", "crun", "runc", "slurm*"),
)
SHOW = "--showformat=${binary:Package} ${Version} ${db:Status-Want} ${db:Status-Status} ${Architecture}\\n"
UNITS = ("nvidia-persistenced.service", "nvidia-fabricmanager.service", "nvidia-dcgm.service")
PROPERTIES = (
    "Id,LoadState,ActiveState,UnitFileState,NeedDaemonReload,ExecStart,StopWhenUnneeded,FragmentPath,DropInPaths,"
    "ExecMainStartTimestampMonotonic"
)
LAUNCHES = process.LAUNCH_UNIT.format("*")
# Configuration of apt, modprobe and systemd for the stack, also by others, so that messages can name the file.
FILES = (
    *("/etc/modprobe.d/*.conf", "/etc/systemd/system/nvidia-persistenced.service.d/*.conf"),
    *("/etc/apt/sources.list.d/muster-*", "/etc/apt/keyrings/muster-*", "/etc/apt/preferences.d/*"),
    *("/usr/lib/systemd/system/nvidia-persistenced.service", "/etc/dgx-release"),
)
SOURCES = ("/etc/apt/sources.list", "/etc/apt/sources.list.d/*.list", "/etc/apt/sources.list.d/*.sources")
INSTALLER = tuple(
    f"{folder}/{name}" for folder in ("/usr/bin", "/usr/local/bin") for name in ("nvidia-uninstall", "nvidia-installer")
)
INSTALLER_LOG = "/var/log/nvidia-installer.log"
LIBRARIES = ("/usr/lib/*-linux-gnu/libcuda.so.1", "/usr/lib/libcuda.so.1", "/usr/lib64/libcuda.so.1")
NVIDIA_SMI = ("nvidia-smi", "--query-gpu=index,name,driver_version,persistence_mode", "--format=csv,noheader")
# nvidia-smi hangs with a GPU that has fallen off the bus; eight GPUs without persistence take seconds.
NVIDIA_SMI_SECONDS = 30.0
MOST_OF_A_FILE = 20_000
MOST_LINES = 8


def look() -> dict[str, Any]:
    packages = show_packages()
    boot = kernels()
    # Before nvidia-smi starts, which opens the devices, too.
    holders = driver_holders()
    asked = bool(boot["loaded"] or boot["loaded_text"])
    missed = not asked and ("libnvidia-compute" in packages.text or "libcuda1" in packages.text)
    smi = run(*NVIDIA_SMI, seconds=NVIDIA_SMI_SECONDS) if asked else None
    return {
        # Exits with 1 if a pattern matches nothing, but lists the others.
        "packages": packages.text,
        "packages_why": packages.why if not packages.text else "",
        "interrupted": any(name.isdigit() for name in names("/var/lib/dpkg/updates")),
        **boot,
        "files": {str(path): _file(path) for pattern in FILES for path in _found(pattern) if path.is_file()},
        "sources": {str(path): text for path in _all(SOURCES) if (text := _of_nvidia(path))},
        "reboot_required": Path("/run/reboot-required").exists(),
        "reboot_required_by": read("/run/reboot-required.pkgs").text.split(),
        **_unpacked(),
        **_units(),
        **holders,
        "nvidia_smi": {"text": smi.text, "why": smi.why} if smi else None,
        "evidence": _evidence() if missed else None,
    }


def show_packages() -> CommandResult:
    """List the packages of the GPU stack from dpkg."""
    return run("dpkg-query", "--show", SHOW, *PATTERNS)


def _found(pattern: str) -> list[Path]:
    """Return the matching paths, or [] if a folder cannot be read."""
    try:
        return sorted(Path("/").glob(pattern.lstrip("/")))
    except OSError:
        return []


def _all(patterns: tuple[str, ...]) -> list[Path]:
    return [path for pattern in patterns for path in _found(pattern)]


def _evidence() -> dict[str, str]:
    """Collect evidence on why an installed driver is not loaded."""
    lines = run("journalctl", "-k", "-b", "-o", "cat", "--no-pager", "-n", "5000").text.splitlines()
    said = [line for line in lines if any(word in line.lower() for word in ("nvrm", "nvidia", "nouveau"))]
    return {"kernel_log": "\n".join(said[-MOST_LINES:]), "dkms": run("dkms", "status").text}


def _file(path: Path) -> dict[str, Any]:
    try:
        content = files.read(str(path), links=True)
        there = path.stat()
    except OSError as error:
        return {"why": str(error.strerror)}
    return {
        "text": content[:MOST_OF_A_FILE].decode("utf-8", "replace"),
        "sha256": hashlib.sha256(content).hexdigest(),
        "mode": f"{there.st_mode & 0o7777:04o}",
        "owner": files.user_name(there.st_uid),
        "group": _group(there.st_gid),
        "changed": there.st_mtime,
    }


def _of_nvidia(path: Path) -> str:
    """Return the text of an apt source list if the text mentions NVIDIA or CUDA, or ""."""
    text = read(str(path)).text
    return text if "nvidia" in text.lower() or "/cuda" in text.lower() else ""


def _unpacked() -> dict[str, Any]:
    """Find programs and libraries from NVIDIA's runfile installer, which are unknown to dpkg."""
    there = [path for path in INSTALLER if Path(path).exists()]
    # A package may create the link only when it is configured; the library is always in its file list.
    libraries = dict.fromkeys(str(path.resolve()) for path in _all(LIBRARIES) if path.exists())
    paths = [*there, *libraries]
    owners = run("dpkg-query", "--search", *paths) if paths else None
    return {
        "installer": there,
        "libraries": list(libraries),
        "owners": owners.text if owners else "",
        "owners_why": owners.why if owners and owners.why.endswith(("is not there", " s")) else "",
        "installer_log": Path(INSTALLER_LOG).exists(),
    }


def _units() -> dict[str, Any]:
    states = run("systemctl", "show", f"--property={PROPERTIES}", *UNITS)
    launches = run("systemctl", "list-units", "--plain", "--no-legend", "--state=active,activating", LAUNCHES)
    return {
        "units": states.text,
        "units_why": states.why,
        "launches": launches.text,
        "own_launches": _own_launches(),
    }


def _own_launches() -> list[str]:
    """Return running user launches, which run in systemd instances of users instead of the system instance."""
    found = {launch for pid in process.ids() if (launch := process.launch_at(pid)) and launch.uid is not None}
    return sorted(f"{process.LAUNCH_UNIT.format(one.id)} of {files.user_name(one.uid or 0)}" for one in found)


def _group(gid: int) -> str:
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)
