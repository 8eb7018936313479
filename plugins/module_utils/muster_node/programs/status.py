"""What a node reports of itself for the status screen of the cluster. Every verb prints one JSON object.

look   user   all that the login user may see; reads only
seats  root   which launches have which GPUs for themselves
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
from ..tools import files, process
from ..tools.disk import disk_facts
from ..tools.program import answer
from ..tools.run import read
from ..tools.torch_version import said_in

Json = dict[str, Any]

FIELDS = "index,uuid,name,memory.used,utilization.gpu"
DRIVER = "/sys/module/nvidia/version"
RESTART = ("/run/reboot-required", "/var/run/reboot-required")
HOLDERS_SECONDS = 1.0  # for all processes outside of launches together
MOST = 100  # launches, and holders of a GPU


def look(request: Json) -> Json:
    """See Seen in muster/status/seen.py. request: {environment, run_root, seconds}; seconds: for nvidia-smi."""
    running = process.in_launches()
    return {
        "who": {**identity({}), "root": os.geteuid() == 0},
        "clock": time.time(),
        "kernel": platform.release(),
        "uptime": read("/proc/uptime").text.split()[:1],
        "restart": any(os.path.exists(path) for path in RESTART),
        "load": os.getloadavg()[0],
        "cpus": len(os.sched_getaffinity(0)),
        "driver": read(DRIVER).text.strip(),
        "torch": torch_facts(request["environment"]),
        "disk": disk_facts(request["run_root"]),
        **gpu_facts(request["seconds"]),
        "launches": [launch_facts(*one) for one in list(running.items())[:MOST]],
        "sees_all": os.path.exists("/proc/1/cgroup"),  # the kernel can be set to show everybody their own alone
        **seats({}),
    }


def seats(_request: Json) -> Json:
    """{held: {seat: [[uid of whose own launch it is or None, id]]}, seats_seen}: whether this user comes to them."""
    there = readable()
    table = locks() if there else {}
    held = {}
    for seat in there:
        pids = table.get(name_of(os.stat(f"{ROOT}/{seat}", follow_symlinks=False)), [])
        held[seat] = [list(found[::-1]) for pid in pids if (found := process.launch_at(pid))]
    # Before the first launch since the boot there are none, and whoever comes to the folder sees that.
    return {"held": held, "seats_seen": os.access(ROOT, os.R_OK | os.X_OK) or not os.path.lexists(ROOT)}


def torch_facts(environment: str) -> Json:
    """{version, cuda, why} of the environment of this path, as its files say."""
    try:
        sites = [site for site in Path(environment, "lib").glob("python3*/site-packages") if (site / "torch").is_dir()]
    except OSError:
        sites = []
    if not sites:
        return {"version": "", "cuda": None, "why": f"there is no PyTorch in {environment}"}
    said = said_in(sites[0]) or {}
    return {"version": str(said.get("__version__") or ""), "cuda": said.get("cuda"), "why": ""}


def gpu_facts(seconds: float) -> Json:
    """{devices, gpus: [{index, name, used (MiB), busy (percent)}], computing: {seat: [process]}, why}."""
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
    """Of a process of a launch no more than that is wanted; of others what they are, as far as there is time."""
    found = process.launch_at(pid)
    if found is None:
        return holder(pid, deadline - time.monotonic())
    return {**NOT_SEEN, "pid": pid, "launch_id": found.id, "manager_of": found.uid}


def launch_facts(key: tuple[int | None, str], pids: list[int]) -> Json:
    """began: whether it has ranks, or its main process alone, which waits for seats or for its peers."""
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
