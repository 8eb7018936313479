"""What a start depends on: looks that change nothing."""

from __future__ import annotations

import os
import pwd
import socket
import sys
from typing import Any

from .addresses import interface_of
from .computing import computing
from .ports import port_facts
from .seats import held

Json = dict[str, Any]


def identity(_request: Json) -> Json:
    """Who the controller logs in as: the one who will look, and must be able to read."""
    return {"uid": os.getuid(), "gid": os.getgid()}


def prepare(request: Json) -> Json:
    """Facts that decide whether this node may start; reads only.

    request: {user, executable, script?, chdir?, run_root, address, interface, port?}; port only on the head node.
    """
    return {
        "hostname": socket.gethostname(),
        "uid": os.getuid(),
        "python": list(sys.version_info[:3]),
        "systemd": os.path.isdir("/run/systemd/system"),
        "cpus": len(os.sched_getaffinity(0)),
        "gpus": len([name for name in os.listdir("/dev") if name.startswith("nvidia") and name[6:].isdigit()]),
        "user": user_facts(request["user"]),
        "executable": file_facts(request["executable"], request["user"], os.X_OK),
        "script": file_facts(request["script"], request["user"], os.R_OK) if request.get("script") else None,
        "chdir": file_facts(request["chdir"], request["user"], os.X_OK) if request.get("chdir") else None,
        "disk": disk_facts(request["run_root"]),
        "interfaces": sorted(name for _, name in socket.if_nameindex()),
        "interface_of_address": interface_of(request["address"]),
        "port": port_facts(request["port"]) if request.get("port") else None,
        "occupied": {"held": held(), **computing(gpus=request["gpus"])},
    }


def user_facts(name: str) -> Json | None:
    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        return None
    return {"uid": entry.pw_uid, "gid": entry.pw_gid, "home": entry.pw_dir}


def file_facts(path: str, user: str, mode: int) -> Json:
    """Whether a path exists, and whether that user may use it: asked as that user, in a child process."""
    exists = os.path.exists(path)
    usable = False
    if exists:
        try:
            entry = pwd.getpwnam(user)
        except KeyError:
            entry = None
        if entry is not None and os.getuid() == 0:
            child = os.fork()
            if child == 0:
                try:
                    os.setgroups(os.getgrouplist(user, entry.pw_gid))
                    os.setgid(entry.pw_gid)
                    os.setuid(entry.pw_uid)
                    os._exit(0 if os.access(path, mode) else 1)
                finally:
                    os._exit(2)
            usable = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        else:
            usable = os.access(path, mode)
    return {"path": path, "exists": exists, "usable": usable}


def disk_facts(path: str) -> Json:
    """Free bytes where the run directory will be: of its nearest existing parent."""
    while not os.path.isdir(path):
        path = os.path.dirname(path) or "/"
    usage = os.statvfs(path)
    return {
        "path": path,
        "free": usage.f_bavail * usage.f_frsize,
        "total": usage.f_blocks * usage.f_frsize,
        "inodes_free": usage.f_favail if usage.f_files else None,
        "read_only": bool(usage.f_flag & os.ST_RDONLY),
    }
