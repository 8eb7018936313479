"""What a start depends on: looks that change nothing."""

from __future__ import annotations

import os
import pwd
import socket
import sys
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from ..members import quarantine
from ..tools import trust
from ..tools.as_user import SilentError, as_user
from . import mounts
from .addresses import interface_of
from .computing import computing
from .data import data_facts
from .own import is_launch_user, own_facts
from .ports import port_facts
from .seats import held

if TYPE_CHECKING:
    from collections.abc import Callable

Json = dict[str, Any]

FILE_SECONDS = 5.0
MOST_PLACES = 20  # of PATH


def identity(_request: Json) -> Json:
    """Who the controller logs in as: the one who will look, and must be able to read."""
    user = pwd.getpwuid(os.getuid())
    return {
        "uid": user.pw_uid,
        "gid": os.getgid(),
        "name": user.pw_name,
        "launch_user": is_launch_user(user),
    }


def prepare(request: Json) -> Json:
    """Facts that decide whether this node may start; reads only.

    request: see PrepareRequest in muster/launch/messages.py.
    """
    return {
        "hostname": socket.gethostname(),
        "uid": os.getuid(),
        "python": list(sys.version_info[:3]),
        "systemd": os.path.isdir("/run/systemd/system"),
        "cpus": len(os.sched_getaffinity(0)),
        "gpus": len([name for name in os.listdir("/dev") if name.startswith("nvidia") and name[6:].isdigit()]),
        "user": user_facts(request["user"]),
        "executable": program_facts(request["executable"], request["user"], request.get("path", os.defpath)),
        "script": file_facts(request["script"], request["user"], os.R_OK) if request.get("script") else None,
        "chdir": file_facts(request["chdir"], request["user"], os.X_OK) if request.get("chdir") else None,
        "disk": disk_facts(request["run_root"]),
        "foreign": foreign_folders(request),
        "interfaces": sorted(name for _, name in socket.if_nameindex()),
        "interface_of_address": interface_of(request["address"]),
        "port": port_facts(request["port"]) if request.get("port") else None,
        "occupied": {"held": held(), **computing(gpus=request["gpus"])},
        "beat_port": port_facts(request["beat_port"]) if request.get("beat_port") else None,
        "own": own_facts(),
        "environment": mounts.real_path(request.get("environment", "")),
        "caches": {name: mounts.cache_facts(path) for name, path in request.get("caches", {}).items()},
        "data": data_facts(request.get("data", []), user_entry(request["user"])),
        "quarantine": quarantine.kept(),
    }


def foreign_folders(request: Json) -> list[str]:
    """Sentences about folders of launches that others than root may change: root would write where they choose."""
    roots = [path for path in (request["run_root"], request.get("work_root")) if path]
    return [f"{path}: {why}" for path in roots if (why := trust.foreign_writer(path))]


def user_entry(name: str) -> pwd.struct_passwd | None:
    try:
        return pwd.getpwnam(name)
    except KeyError:
        return None


def user_facts(name: str) -> Json | None:
    entry = user_entry(name)
    if entry is None:
        return None
    return {"uid": entry.pw_uid, "gid": entry.pw_gid, "home": entry.pw_dir}


def file_facts(path: str, user: str, mode: int) -> Json:
    """Whether a path exists, and whether that user may use it: asked as that user. Neither waits for ever."""
    usable = False
    with suppress(KeyError):
        usable = asked(pwd.getpwnam(user), lambda: os.access(path, mode))
    return {"path": path, "exists": usable or asked(None, lambda: os.path.exists(path)), "usable": usable}


def program_facts(name: str, user: str, path: str) -> Json:
    """As file_facts, of a program by its path, or by its name in the folders of PATH: the first that the user may use,
    as the launch will find it."""
    if "/" in name:
        return file_facts(name, user, os.X_OK)
    places = [f"{folder}/{name}" for folder in path.split(":")[:MOST_PLACES] if folder.startswith("/")]
    there = next((place for place in places if asked(None, partial(os.path.isfile, place))), "")
    usable = ""
    with suppress(KeyError):
        entry = pwd.getpwnam(user)
        usable = next((place for place in places if asked(entry, partial(runs, place))), "")
    return {"path": usable or there or name, "exists": bool(usable or there), "usable": bool(usable)}


def runs(path: str) -> bool:
    return os.path.isfile(path) and os.access(path, os.X_OK)


def asked(user: pwd.struct_passwd | None, question: Callable[[], bool]) -> bool:
    try:
        return bool(as_user(user, question, seconds=FILE_SECONDS))
    except SilentError:
        return False


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
