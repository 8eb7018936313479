"""Inspects the environment inside a unit like that of a launch, as the training user.

looks/unit.py runs this program with the verb look. The environment differs from a login shell: limits come from
systemd, and /etc/security, profiles and login variables do not apply. The request is {torchrun, ask, depth, seconds};
ask is the text of torch_facts.py, which is run by the environment's own Python.
"""

from __future__ import annotations

import os
import resource
import tempfile
import time
from pathlib import Path
from typing import Any

from ..tools import files
from ..tools.program import answer, answer_in
from ..tools.run import run

LIMITS = ("MEMLOCK", "NOFILE", "STACK", "NPROC", "CORE", "AS")
# Names of shared memory segments that NCCL, Gloo and torch's data loaders leave behind when killed.
LEFT_BEHIND = ("nccl-", "torch_", "gloo-", "sem.mp-")
VARIABLES = ("NCCL_", "GLOO_", "TORCH", "CUDA_", "UCX_", "OMP_", "MKL_", "KMP_", "LD_", "PET_", "PYTHON")
CGROUP = "/sys/fs/cgroup"


def main() -> None:
    answer({"look": look})


def look(request: dict[str, Any]) -> dict[str, Any]:
    return {
        "uid": os.getuid(),
        "limits": {name.lower(): limit(name) for name in LIMITS},
        "cpus": len(os.sched_getaffinity(0)),
        "cgroup": cgroup(),
        "environment": {name: value for name, value in os.environ.items() if name.startswith(VARIABLES)},
        "nccl_conf": read(f"{home()}/.nccl.conf"),
        "shm": room(shm_path()),
        "left_behind": left_behind(),
        "tmp": temporary(),
        "torch": torch(request),
    }


def shm_path() -> str:
    return str(Path("/dev", "shm"))


def home() -> str:
    return str(Path.home())


def read(path: str) -> str | None:
    return files.text(path, links=True)


def limit(name: str) -> list[int | None]:
    """Return [soft limit, hard limit]; None means unlimited."""
    return [
        None if value == resource.RLIM_INFINITY else value
        for value in resource.getrlimit(getattr(resource, f"RLIMIT_{name}"))
    ]


def cgroup() -> dict[str, Any]:
    """Return the lowest limits of this cgroup and its parents (cgroup v2 only). None means unlimited."""
    line = next((line for line in (read("/proc/self/cgroup") or "").splitlines() if line.startswith("0::")), "")
    path = line[3:].strip("/")
    least: dict[str, Any] = {"pids": None, "memory": None, "cpus": None, "seen": False}
    folder = Path(CGROUP, path)
    while str(folder).startswith(CGROUP):
        pids, memory, cpu = (read(f"{folder}/{name}.max") for name in ("pids", "memory", "cpu"))
        least["seen"] = least["seen"] or pids is not None
        for name, text in (("pids", pids), ("memory", memory)):
            if text and text.strip().isdigit():
                least[name] = min(int(text), least[name] or int(text))
        words = (cpu or "").split()
        if len(words) == 2 and words[0].isdigit() and words[1].isdigit():
            share = int(words[0]) / int(words[1])
            least["cpus"] = min(share, least["cpus"] or share)
        if str(folder) == CGROUP:
            break
        folder = folder.parent
    return least


def room(path: str) -> dict[str, Any]:
    try:
        seen = os.statvfs(path)
    except OSError as error:
        return {"why": f"{path}: {error.strerror}"}
    return {
        "size": seen.f_blocks * seen.f_frsize,
        "free": seen.f_bavail * seen.f_frsize,
        "writable": os.access(path, os.W_OK) and not seen.f_flag & os.ST_RDONLY,
    }


def left_behind() -> list[dict[str, Any]] | None:
    """Return shared memory files that ranks probably left behind: {name, size, age, uid}. Return None if they cannot be
    listed."""
    found = []
    try:
        entries = list(os.scandir(shm_path()))
    except OSError:
        return None
    for entry in entries:
        if not entry.name.startswith(LEFT_BEHIND):
            continue
        try:
            seen = entry.stat(follow_symlinks=False)
        except OSError:
            continue
        found.append(
            {
                "name": entry.name,
                "size": seen.st_blocks * 512,
                "age": round(time.time() - seen.st_mtime),
                "uid": seen.st_uid,
            }
        )
    return sorted(found, key=lambda each: each["name"])


def temporary() -> dict[str, Any]:
    """Return the folder for torchrun's logs and Python's temporary files. tempfile uses the first folder in which it
    can write."""
    try:
        path = tempfile.gettempdir()
    except OSError as error:
        return {"path": "", "why": str(error.strerror)}
    return {"path": path, **room(path)}


def torch(request: dict[str, Any]) -> dict[str, Any]:
    """Return what the environment's own Python reports about torch. Python is started without login variables, like
    torchrun."""
    binaries = Path(request["torchrun"]).parent
    python = next((path for name in ("python", "python3") if os.access(path := f"{binaries}/{name}", os.X_OK)), "")
    there = Path(request["torchrun"]).exists()
    seen: dict[str, Any] = {"there": there, "usable": os.access(request["torchrun"], os.X_OK), "python": python}
    if not python:
        return seen
    environment = {
        "PATH": f"{binaries}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "LANG": "C.UTF-8",
        "HOME": home(),
    }
    begun = time.monotonic()
    done = run(python, "-I", "-", request["depth"], stdin=request["ask"], seconds=request["seconds"], env=environment)
    if done.late:
        return {**seen, "why": f"no response within {request['seconds']:.0f} s", "hangs": True}
    if done.code is None:
        return {**seen, "why": done.why}
    seen["seconds"] = round(time.monotonic() - begun, 3)
    found = answer_in(done.text)
    if found is not None:
        return {**seen, "said": found}
    last = done.aside.strip().splitlines()
    return {**seen, "why": f"{python} ended with exit code {done.code}" + (f": {last[-1][:200]}" if last else "")}


if __name__ == "__main__":
    main()
