"""Collect the data that the preflight checks of a launch need, without changing the node."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import pwd
import re
import socket
import stat
import struct
import sys
import time
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from ..members import quarantine
from ..tools import files, process, trust
from ..tools.as_user import SilentError, as_user
from ..tools.disk import disk_facts
from ..tools.run import run as command
from ..tools.sockets import LISTENING, can_listen, sockets
from . import mounts
from .computing import computing
from .own import own_facts
from .seats import HOLDERS_SECONDS, NOT_SEEN, held, holders

if TYPE_CHECKING:
    from collections.abc import Callable

Json = dict[str, Any]
SECONDS = 12.0  # for all paths together
SPARE = 4.0
MOST_ENTRIES = 200_000  # of one path
MOST_LISTED = 400  # entries that are returned by name
MOST_READ = 64_000_000  # maximum bytes of a file to read; a list of digests of ten million files is larger
NOTHING: Json = {"kind": "", "count": 0, "bytes": 0, "digest": "", "names": [], "cut": False, "error": ""}


# ---------------------------------------------------------------- data

# The data of launch_data on this node: whether it exists, and its digest for the comparison with other nodes.
#
# A folder is compared by the names and sizes of its whole content, a small file by its content, a large file by its
# size. All is read as the launch's user, who needs access to it, and within a time limit.


def data_facts(paths: list[str], user: pwd.struct_passwd | None) -> list[Json]:
    """Return {path, kind, count, bytes, digest, names, cut, error} of each path. kind: folder, file, or "" with an
    error.

    cut: the count is incomplete, or the time limit was reached. names: [[name, size], ...] of a small folder.
    """
    if user is None:
        return []
    until = time.monotonic() + SECONDS
    return [{"path": path, **_seen(path, user, max(0.5, until - time.monotonic()))} for path in paths]


def _seen(path: str, user: pwd.struct_passwd, seconds: float) -> Json:
    try:
        seen: Json = as_user(user, lambda: _look(path, time.monotonic() + seconds), seconds=seconds + SPARE)
    except SilentError as silent:
        return {**NOTHING, "cut": True, "error": f"could not be checked: {silent.strerror}"}
    return seen


def _look(path: str, until: float) -> Json:
    try:
        seen = os.stat(path)
        if stat.S_ISDIR(seen.st_mode):
            return _folder(path, until)
        if not stat.S_ISREG(seen.st_mode):
            return {**NOTHING, "error": "is neither a folder nor a file"}
        return _file(path, until)
    except OSError as problem:
        return {**NOTHING, "error": _said(problem, path)}


def _file(path: str, until: float) -> Json:
    digest = hashlib.sha256()
    with files.opened(path, links=True) as handle:
        size = os.fstat(handle).st_size
        if size <= MOST_READ:
            while chunk := os.read(handle, files.CHUNK):
                digest.update(chunk)
                if time.monotonic() > until:
                    return {**NOTHING, "kind": "file", "count": 1, "bytes": size, "cut": True}
    return {
        **NOTHING,
        "kind": "file",
        "count": 1,
        "bytes": size,
        "digest": digest.hexdigest() if size <= MOST_READ else f"{size} bytes",
    }


def _folder(top: str, until: float) -> Json:
    """Return the data of a folder. Entries are visited in the same order on all nodes, so that incomplete counts are
    comparable."""
    digest, names = hashlib.sha256(), list[list[Any]]()
    count = total = 0
    todo = [""]
    while todo:
        inner = todo.pop()
        with os.scandir(f"{top}/{inner}") as entries:
            listed = sorted(entries, key=lambda entry: entry.name)
        if not os.access(f"{top}/{inner}", os.X_OK):
            raise PermissionError(13, "no search permission", f"{top}/{inner}")
        folders = []
        for entry in listed:
            if count >= MOST_ENTRIES or time.monotonic() > until:
                late = time.monotonic() > until
                return {
                    **NOTHING,
                    "kind": "folder",
                    "count": count,
                    "bytes": total,
                    "digest": "" if late else digest.hexdigest(),
                    "cut": True,
                }
            path = f"{inner}/{entry.name}" if inner else entry.name
            if entry.is_dir(follow_symlinks=False):
                folders.append(path)
                continue
            size = entry.stat().st_size if entry.is_file() else 0
            if not count % 100 and entry.is_file() and not os.access(f"{top}/{path}", os.R_OK):
                raise PermissionError(13, "not readable", f"{top}/{path}")
            digest.update(os.fsencode(path) + b"\0%d\n" % size)
            count, total = count + 1, total + size
            if count <= MOST_LISTED:
                names.append([os.fsencode(path).decode("utf-8", "replace")[:300], size])
        todo += reversed(folders)
    return {
        **NOTHING,
        "kind": "folder",
        "count": count,
        "bytes": total,
        "digest": digest.hexdigest(),
        "names": names if count <= MOST_LISTED else [],
    }


def _said(problem: OSError, path: str) -> str:
    if isinstance(problem, FileNotFoundError) and problem.filename in {path, f"{path}/"}:
        return "does not exist"
    where = "" if problem.filename in {path, f"{path}/"} else f" ({problem.filename})"
    words = {PermissionError: "is not readable", FileNotFoundError: "changes while it is read"}
    return f"{words.get(type(problem), problem.strerror or str(problem))}{where}"


# ---------------------------------------------------------------- ports

# Whether a port is free to listen on, and the processes that hold it.


def port_facts(port: int) -> Json:
    """Return whether the port is free for the rendezvous store (wildcard address), and the processes that hold it."""
    return {"port": port, "free": can_listen(port), "holders": port_holders(port)}


def port_holders(port: int) -> list[Json]:
    """Return the processes that listen on the port or use it as their local port."""
    here = [one for one in sockets() if one.port == port and one.inode != "0"]
    here = [one for one in here if one.state == LISTENING] or here
    if not here:
        return []
    inodes = {f"socket:[{one.inode}]" for one in here}
    deadline = time.monotonic() + HOLDERS_SECONDS
    pids = [pid for pid in process.ids() if inodes & process.opened(pid)]
    return holders(pids, deadline) or (by_user({one.uid for one in here}, deadline) if os.geteuid() else [NOT_SEEN])


def by_user(uids: set[int], deadline: float) -> list[Json]:
    """Return possible holders, found without root: the first process of each launch of these users, or else the
    users."""
    first: dict[process.LaunchUnit, int] = {}
    for pid in process.ids():
        launch = process.launch_at(pid)
        if launch and launch not in first and process.user_id(pid) in uids:
            first[launch] = pid
    return holders(first.values(), deadline) or [{**NOT_SEEN, "user": files.user_name(uid)} for uid in sorted(uids)]


SIOCGIFADDR = 0x8915


# ---------------------------------------------------------------- addresses

# The interface of this node that has an address.


def interface_of(address: str) -> str | None:
    """Return the name of the interface with this address, or None."""
    if ":" in address:
        return interface_of_ipv6(address)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        for _, name in socket.if_nameindex():
            request = struct.pack("256s", name.encode()[:15])
            try:
                reply = fcntl.ioctl(sock.fileno(), SIOCGIFADDR, request)
            except OSError:
                continue  # an interface without an IPv4 address
            if socket.inet_ntoa(reply[20:24]) == address:
                return name
    return secondary_interface_of(address)


def secondary_interface_of(address: str) -> str | None:
    """Return the interface that has this address as a secondary address. `ip` lists all addresses. The ioctl above
    returns only the first address."""
    try:
        links = json.loads(command("ip", "-json", "address", "show").text)
    except ValueError:
        return None
    for link in links:
        if any(entry.get("local") == address for entry in link.get("addr_info", [])):
            return str(link["ifname"])
    return None


def interface_of_ipv6(address: str) -> str | None:
    wanted = socket.inet_pton(socket.AF_INET6, address).hex()
    for line in (files.text("/proc/net/if_inet6") or "").splitlines():
        fields = line.split()
        if fields and fields[0] == wanted:
            return fields[5]
    return None


FILE_SECONDS = 5.0
MOST_PLACES = 20  # of PATH
SLURM_SECONDS = 5.0
MOST_JOBS = 100
A_JOB = re.compile(r"([0-9]+)\|([^|]{1,100})\|([^|]{0,100})[^|]*")
STOPPED = ("inactive", "failed", "unknown")


def prepare(request: Json) -> Json:
    """Return the data for the preflight checks of this node. Changes nothing.

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
        "slurm": slurm_jobs(),
    }


def slurm_jobs() -> Json | None:
    """Return {jobs, used, why}: the jobs that Slurm has given resources of this node to, and the generic resources in
    use; None if slurmd does not run.

    Each job is {id, user, gres}. Its name could contain a line that looks like another job.
    """
    active = command("systemctl", "is-active", "slurmd.service")
    if active.missing or active.text.strip() in STOPPED:
        return None
    node = socket.gethostname().partition(".")[0]
    columns = ("--noheader", "--states=RUNNING,COMPLETING,CONFIGURING", f"--nodelist={node}", "--format=%A|%u|%b")
    listed = command("squeue", *columns, seconds=SLURM_SECONDS)
    lines = listed.text.splitlines()
    found = [job for line in lines if (job := A_JOB.fullmatch(line))]
    jobs = [dict(zip(("id", "user", "gres"), job.groups(), strict=True)) for job in found[:MOST_JOBS]]
    # squeue prints only GPUs that were requested per node, and without accounting the other totals lack GPUs.
    shown = listed if listed.late else command("scontrol", "-d", "-o", "show", "node", node, seconds=SLURM_SECONDS)
    used = re.search(r" GresUsed=(\S*)", shown.text)
    cut = f"{len(jobs)} of {len(lines)} lines of squeue were read as jobs" if len(jobs) < len(lines) else ""
    slow = "" if active.text.strip() else active.why
    return {"jobs": jobs, "used": used[1] if used else "", "why": listed.why or shown.why or cut or slow}


def foreign_folders(request: Json) -> list[str]:
    """Return a sentence for each launch folder that users other than root can change. Such users could redirect root's
    writes."""
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
    """Return whether a path exists and whether the user has access, checked as that user and with a time limit."""
    usable = False
    with suppress(KeyError):
        usable = asked(pwd.getpwnam(user), lambda: os.access(path, mode))
    return {"path": path, "exists": usable or asked(None, lambda: os.path.exists(path)), "usable": usable}


def program_facts(name: str, user: str, path: str) -> Json:
    """Return file_facts of a program. A name is searched in PATH, as in the launch: the first file that the user can
    execute is used."""
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
