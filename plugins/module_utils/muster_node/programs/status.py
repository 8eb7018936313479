"""Reports a node's state for the status screen of the cluster. Every verb prints one JSON object.

look   user   everything that the login user can see; changes nothing
seats  root   the launches that hold GPU slots
"""

from __future__ import annotations

import os
import platform
import time
from pathlib import Path
from typing import Any

from ..launch.computing import GPU, ask
from ..launch.own import identity
from ..launch.seats import NOT_SEEN, ROOT, holder, locks, name_of, readable
from ..tools import boot, check_results, files, process
from ..tools.disk import disk_facts
from ..tools.program import answer
from ..tools.run import read
from ..tools.torch_version import said_in

Json = dict[str, Any]

FIELDS = "index,uuid,name,memory.used,utilization.gpu"
DRIVER = "/sys/module/nvidia/version"
RESTART = ("/run/reboot-required", "/var/run/reboot-required")
HOLDERS_SECONDS = 1.0  # time limit for all processes outside of launches together
MOST = 100  # listed launches, and listed users of a GPU


def look(request: Json) -> Json:
    """Return the node's state; see Seen in muster/status/seen.py. request: {environment, run_root, seconds: time limit
    of nvidia-smi}."""
    running = process.in_launches()
    driver = read(DRIVER).text.strip()
    return {
        "who": {**identity({}), "root": os.geteuid() == 0},
        "clock": time.time(),
        "kernel": platform.release(),
        "uptime": read("/proc/uptime").text.split()[:1],
        "restart": any(os.path.exists(path) for path in RESTART),
        "checked": check_results.summary(),
        "load": os.getloadavg()[0],
        "cpus": len(os.sched_getaffinity(0)),
        "driver": driver,
        "next_boot": boot.look() if driver else None,
        "torch": torch_facts(request["environment"]),
        "disk": disk_facts(request["run_root"]),
        **gpu_facts(request["seconds"]),
        "launches": [launch_facts(*one) for one in list(running.items())[:MOST]],
        "sees_all": os.path.exists("/proc/1/cgroup"),  # the kernel may hide other users' processes (hidepid)
        **seats({}),
    }


def seats(_request: Json) -> Json:
    """Return {held: {slot: [[uid of a user launch or None, id]]}, seats_seen}. seats_seen: whether the slots are
    readable."""
    there = readable()
    table = locks() if there else {}
    held = {}
    for seat in there:
        pids = table.get(name_of(os.stat(f"{ROOT}/{seat}", follow_symlinks=False)), [])
        held[seat] = [list(found[::-1]) for pid in pids if (found := process.launch_at(pid))]
    # Before the first launch after a boot there are no slots.
    return {"held": held, "seats_seen": os.access(ROOT, os.R_OK | os.X_OK) or not os.path.lexists(ROOT)}


def torch_facts(environment: str) -> Json:
    """Return {version, cuda, why} of torch in the environment at this path, read from files."""
    try:
        sites = [site for site in Path(environment, "lib").glob("python3*/site-packages") if (site / "torch").is_dir()]
    except OSError:
        sites = []
    if not sites:
        return {"version": "", "cuda": None, "why": f"PyTorch is not installed in {environment}"}
    said = said_in(sites[0]) or {}
    return {"version": str(said.get("__version__") or ""), "cuda": said.get("cuda"), "why": ""}


def gpu_facts(seconds: float) -> Json:
    """Return {devices, gpus: [{index, name, used (MiB), busy (percent)}], computing: {slot: [process]}, why}."""
    devices = [name for name in os.listdir("/dev") if name.startswith("nvidia") and name[6:].isdecimal()]
    if not (devices or os.path.exists(DRIVER)):
        return {"devices": 0, "gpus": [], "computing": {}, "why": ""}
    asked = ask(FIELDS, seconds)
    listed = [dict(zip(FIELDS.split(","), one, strict=False)) for one in asked.gpus]
    deadline = time.monotonic() + HOLDERS_SECONDS
    by_uuid = {one["uuid"]: one["index"] for one in listed if one["index"].isdecimal()}
    computing: dict[str, list[Json]] = {}
    for uuid, pid in asked.apps:
        there = computing.setdefault(GPU.format(by_uuid[uuid]), []) if uuid in by_uuid else []
        if len(there) < MOST:
            there.append(who(int(pid), deadline) if pid.isdecimal() else NOT_SEEN)
    return {
        "devices": len(devices),
        "gpus": [
            {"index": one["index"], "name": one["name"], "used": one["memory.used"], "busy": one["utilization.gpu"]}
            for one in listed
            if len(one) == len(FIELDS.split(","))
        ],
        "computing": computing,
        "why": asked.why,
    }


def who(pid: int, deadline: float) -> Json:
    """Return the launch of a process. If the process belongs to no launch, describe it as far as the deadline
    allows."""
    found = process.launch_at(pid)
    if found is None:
        return holder(pid, deadline - time.monotonic())
    return {**NOT_SEEN, "pid": pid, "launch_id": found.id, "manager_of": found.uid}


def launch_facts(key: tuple[int | None, str], pids: list[int]) -> Json:
    """Describe a launch. began: whether the launch has ranks; without ranks, its main process is still waiting for
    slots or other nodes."""
    uid, launch_id = key
    return {
        "launch_id": launch_id,
        "manager_of": uid,
        "user": files.user_name(uid) if uid is not None else process.owner(pids[-1]),
        "seconds": process.age(pids[0]),
        "began": len(pids) > 1,
    }


def main() -> None:
    answer({"look": look, "seats": seats})


if __name__ == "__main__":
    main()
