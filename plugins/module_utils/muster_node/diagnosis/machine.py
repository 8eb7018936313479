"""Facts of a node: memory, pressure, kernel counters of TCP and conntrack, disks, fabric and GPUs."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from typing import Any

from ..launch.mounts import type_of
from ..tools import control_group, files
from ..tools.kernel_files import table, whole, word
from ..tools.run import names, run
from .parts import UnseenError

Json = dict[str, Any]

PROC = "/proc"
SHARED = {"tmp": "/tmp", "shm": "/dev/shm"}
INFINIBAND = "/sys/class/infiniband"
# Prefix of our counter names -> row and names in /proc/net/snmp and /proc/net/netstat.
COUNTED = {
    "tcp": ("Tcp", ("RetransSegs", "OutRsts", "InErrs", "AttemptFails")),
    "ext": ("TcpExt", ("TCPTimeouts", "ListenDrops", "IPReversePathFilter")),
    "ip": ("Ip", ("InDiscards", "OutNoRoutes")),
}
CONNTRACK = {"conntrack.count": "nf_conntrack_count", "conntrack.max": "nf_conntrack_max"}
DROPPED = {"conntrack.drop": "drop", "conntrack.insert_failed": "insert_failed"}
MEMORY = {"total": "MemTotal", "available": "MemAvailable", "swap_free": "SwapFree"}
MOST_MOUNTS = 1000
MOST_FULL = 8
LITTLE = 64 * 1024  # bytes
LOCAL = ("ext4", "ext3", "xfs", "btrfs", "zfs", "f2fs", "tmpfs", "overlay")
KERNELS = ("/proc/", "/sys/", "/dev/", "/run/")  # kernel file systems, and systemd's read-only mounts for units
MOST_PORTS = 16
PORT_COUNTERS = (
    *("link_downed", "link_error_recovery", "symbol_error", "port_rcv_errors", "port_xmit_discards"),
    *("local_link_integrity_errors", "excessive_buffer_overrun_errors"),
)
GPU = ("index", "uuid", "name", "memory.used", "memory.total", "ecc.errors.uncorrected.volatile.total")
FORM = "--format=csv,noheader,nounits"
MIB = 1 << 20
MOST_GPUS, MOST_PROCESSES = 16, 32


def memory() -> dict[str, int]:
    text = files.text(f"{PROC}/meminfo") or ""
    lines = {name: re.search(rf"^{title}: +(\d+) kB", text, re.MULTILINE) for name, title in MEMORY.items()}
    return {name: int(found[1]) * 1024 for name, found in lines.items() if found}


def pressure() -> dict[str, float]:
    """Return PSI values (some avg10, in percent). Raises UnseenError if the kernel does not provide PSI."""
    found = {}
    for name in ("cpu", "memory", "io"):
        some = re.search(r"^some avg10=([\d.]+)", files.text(f"{PROC}/pressure/{name}") or "", re.MULTILINE)
        if some:
            found[name] = float(some[1])
    if not found:
        raise UnseenError("the kernel has no pressure stall information (PSI)")
    return found


def counters() -> dict[str, int]:
    rows = {**table(f"{PROC}/net/snmp"), **table(f"{PROC}/net/netstat")}
    found = {}
    for ours, (row, wanted) in COUNTED.items():
        found.update({f"{ours}.{name}": rows[row][name] for name in wanted if name in rows.get(row, {})})
    for ours, name in CONNTRACK.items():
        number = whole(f"{PROC}/sys/net/netfilter/{name}")
        if number is not None:
            found[ours] = number
    killed = re.search(r"^oom_kill (\d+)$", files.text(f"{PROC}/vmstat") or "", re.MULTILINE)
    if killed:
        found["vm.oom_kill"] = int(killed[1])
    found.update({f"machine.{name}": count for name, count in control_group.of_machine().items()})
    return {**found, **dropped(files.text(f"{PROC}/net/stat/nf_conntrack") or "")}


def dropped(text: str) -> dict[str, int]:
    """Sum the columns in DROPPED over all CPUs. A line of names is followed by one line of hexadecimal numbers per
    CPU."""
    title, *rows = text.splitlines() or [""]
    columns = title.split()
    found = {}
    for ours, name in DROPPED.items():
        if name in columns:
            place = columns.index(name)
            found[ours] = sum(int(words[place], 16) for row in rows if len(words := row.split()) > place)
    return found


def disks(logs: str, work: str) -> list[Json]:
    """Return the file systems that a launch writes to, and other local file systems that are full or read-only; see
    Disk in evidence.py."""
    mounts = files.text(f"{PROC}/self/mounts") or ""
    found = []
    for use, path in {"logs": logs, "work": work, **SHARED}.items():
        if not path:
            continue
        there = os.path.realpath(path)
        while not os.path.isdir(there):
            there = os.path.dirname(there)
        found.append(disk(use, path, type_of(there, mounts), os.statvfs(there)))
    return found + full_ones(mounts, {one["path"] for one in found})


def full_ones(mounts: str, known: set[str]) -> list[Json]:
    """Return full or read-only local file systems. Skip remote file systems, because their servers might not
    respond."""
    found: list[Json] = []
    for line in mounts.splitlines()[:MOST_MOUNTS]:
        _, path, kind, *_ = line.split()
        if kind not in LOCAL or path in known or path.startswith(KERNELS) or len(found) >= MOST_FULL:
            continue
        with suppress(OSError):
            one = disk("other", path, kind, os.statvfs(path))
            if one["total"] and (one["free"] < LITTLE or one["inodes_free"] == 0 or one["read_only"]):
                found.append(one)
    return found


def disk(use: str, path: str, kind: str, usage: os.statvfs_result) -> Json:
    return {
        "use": use,
        "path": path,
        "type": kind,
        "free": usage.f_bavail * usage.f_frsize,
        "total": usage.f_blocks * usage.f_frsize,
        "inodes_free": usage.f_favail if usage.f_files else None,
        "read_only": bool(usage.f_flag & os.ST_RDONLY),
    }


def fabric() -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for device in names(INFINIBAND):
        for port in names(f"{INFINIBAND}/{device}/ports"):
            if len(found) < MOST_PORTS:
                found[f"{device}/{port}"] = port_facts(f"{INFINIBAND}/{device}/ports/{port}")
    return found


def port_facts(folder: str) -> dict[str, str]:
    said = {name: word(f"{folder}/{name}") for name in ("state", "phys_state", "rate", "link_layer")}
    said.update({name: word(f"{folder}/counters/{name}") for name in PORT_COUNTERS})
    return {name: value for name, value in said.items() if value}


def gpus(seconds: float) -> list[Json]:
    """Return the GPUs that nvidia-smi lists. If there is no device file, return [] without running nvidia-smi. Raises
    UnseenError."""
    if not any(name.startswith("nvidia") and name[6:].isdecimal() for name in names("/dev")):
        return []
    listed = run("nvidia-smi", f"--query-gpu={','.join(GPU)}", FORM, seconds=seconds)
    if listed.code != 0:
        raise UnseenError(listed.why)
    apps = run("nvidia-smi", "--query-compute-apps=gpu_uuid,pid", FORM, seconds=seconds)
    users: dict[str, list[int]] = {}
    for line in apps.text.splitlines():
        uuid, _, pid = (each.strip() for each in line.partition(","))
        if pid.isdecimal():
            users.setdefault(uuid, []).append(int(pid))
    return [gpu(words, users) for line in listed.text.splitlines() if (words := columns(line))][:MOST_GPUS]


def columns(line: str) -> list[str]:
    words = [word_.strip() for word_ in line.split(",")]
    return words if len(words) == len(GPU) and words[0].isdecimal() else []


def gpu(words: list[str], users: dict[str, list[int]]) -> Json:
    used, total, ecc = (int(each) if each.isdecimal() else None for each in words[3:])
    return {
        "index": int(words[0]),
        "uuid": words[1],
        "name": words[2],
        "memory_used": None if used is None else used * MIB,
        "memory_total": None if total is None else total * MIB,
        "ecc": ecc,
        "processes": users.get(words[1], [])[:MOST_PROCESSES],
    }
