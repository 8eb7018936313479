"""The machine: free disk space and shared memory, the clock, connection tracking, and RemoveIPC."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from ..inspect.facts import WSL
from ..inspect.node import DISK_SMALL, UNSYNCHRONISED
from ..verdict.check import Check, skip_all
from ..verdict.commands import playbook, shell
from ..verdict.finding import evidence
from ..verdict.words import gigabytes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ..verdict.check import Said

# Bytes that a launch requires before it starts, and that logs and a few checkpoints soon need.
LEAST_FREE = 64_000_000
LITTLE_FREE = 500_000_000
FEW_INODES = 1000
# Docker's default size of /dev/shm, with which NCCL is known to fail, and the size that NCCL's guide recommends.
DOCKER_SHM = 64 * 2**20
WANTED_SHM = 2**30
# A data loader worker keeps two batches there (prefetch_factor): of 32 images of 3 x 224 x 224 floats, 39 MB.
LITTLE_SHM = 40_000_000
# Unused shared memory is reported when it fills this share of /dev/shm.
LEFT_BEHIND_PART = 0.1
# Clock sources that read a chipset register: thousands of times slower than tsc.
SLOW_CLOCKS = ("hpet", "acpi_pm", "jiffies", "refined-jiffies", "pit")
FULL_CONNTRACK = 0.8
FIRST_ORDINARY_UID = 1000
# Folders of systemd's settings, by priority, and the values that systemd takes for true.
PLACES = ("/etc/systemd", "/run/systemd", "/usr/local/lib/systemd", "/usr/lib/systemd")
TRUE = ("1", "yes", "y", "true", "t", "on")

TMP_UNUSABLE = Check(
    "os.tmp.unusable",
    seen="recording",
    reads="the folder for temporary files, by writing a file as the training user",
    fires="fail: no folder is writable. warn: /tmp is full or not writable, so the user writes to another folder",
    fix="Free up space in /tmp, and make /tmp writable for all users with",
    command="sudo chmod 1777 /tmp && df -h /tmp",
)
SHM_UNUSABLE = Check(
    "os.shm.unusable",
    seen="recording",
    reads="/dev/shm in a unit with a launch's settings",
    fires="fail: /dev/shm is missing or not writable",
    fix="Mount a tmpfs with mode 1777 on /dev/shm",
)
SHM_SMALL = Check(
    "os.shm.small",
    seen="sandbox",
    reads="size and free space of /dev/shm in a unit with a launch's settings",
    fires="warn: for NCCL with several ranks, less than 1 GiB is free (NCCL's guide; NCCL is known to fail with a "
    "container's default of 64 MiB). Otherwise, less than 40 MB is free: a data loader worker keeps two batches in "
    "/dev/shm and ends with a bus error if these batches do not fit",
    fix="Increase the size of /dev/shm. Start a container with a larger --shm-size",
)
SHM_LEFT_BEHIND = Check(
    "os.shm.left_behind",
    seen="recording",
    reads="files of NCCL, Gloo and data loaders in /dev/shm, while no rank runs",
    fires="warn: files that killed ranks have left fill at least a tenth of /dev/shm",
    fix="While no job is running, delete the files with",
)
REMOVE_IPC = Check(
    "os.remove_ipc",
    seen="sandbox",
    reads="RemoveIPC of systemd-logind: the active value, and the value in its configuration files",
    fires="warn: a value is yes and the training user is not a system user: systemd-logind deletes shared memory of a "
    "launch when that user's last session ends (NCCL troubleshooting guide)",
    fix="Set RemoveIPC=no with",
    command=playbook("site.yml", tags="baseline"),
)
CLOCK_SOURCE = Check(
    "os.clock.source",
    seen="recording",
    reads="the kernel's clock source",
    fires="warn: the kernel found tsc unstable and uses a chipset clock, which takes thousands of times longer to read",
    fix="Find the reason in the kernel log. A firmware update often fixes the problem",
)
CONNTRACK_FULL = Check(
    "os.conntrack.full",
    seen="recording",
    reads="the fill level of the connection tracking table",
    fires=f"warn: the table is at least {FULL_CONNTRACK:.0%} full. A full table drops new connections",
    fix="Raise net.netfilter.nf_conntrack_max",
)
CHECKS = (
    *(DISK_SMALL, TMP_UNUSABLE, SHM_UNUSABLE, SHM_SMALL, SHM_LEFT_BEHIND),
    *(REMOVE_IPC, CLOCK_SOURCE, UNSYNCHRONISED, CONNTRACK_FULL),
)
LOOKS = ("host",)


def facts_of(looks: Mapping[str, Any], _: Mapping[str, Any]) -> dict[str, Any]:
    look = looks["host"]
    said = re.search(r"^RemoveIPC=(\w+)", look["login"], re.MULTILINE)
    system_uids = re.search(r"^SYS_UID_MAX\s+(\d+)", look["login_defs"], re.MULTILINE)
    count, most = (int(text) if text.isdigit() else None for text in look["conntrack"])
    return {
        "remove_ipc": said[1] if said else None,
        "remove_ipc_next": _at_the_next_start(look["login_files"]),
        "remove_ipc_why": look["login_why"] or "systemd-logind does not report RemoveIPC",
        "first_ordinary_uid": int(system_uids[1]) + 1 if system_uids else FIRST_ORDINARY_UID,
        "clock_source": look["clock_source"],
        "clock_sources": look["clock_sources"].split(),
        "modules": sorted(line.split()[0] for line in look["modules"].splitlines() if line.strip()),
        "conntrack": {"count": count, "max": most},
        "preload": look["preload"].split(),
        "unread": look["unread"],
    }


def _at_the_next_start(files: Mapping[str, str]) -> str | None:
    """Return the value of RemoveIPC that systemd will use at its next start; None if no file was read.

    systemd reads the first logind.conf, then the drop-in files by name. If two files have the same name, /etc takes
    precedence over /run and /usr (systemd-system.conf(5)).
    """
    main = next((path for place in PLACES if (path := f"{place}/logind.conf") in files), "")
    parts: dict[str, str] = {}
    for place in PLACES:
        folder = f"{place}/logind.conf.d/"
        parts |= {
            path.removeprefix(folder): path
            for path in files
            if path.startswith(folder) and path.removeprefix(folder) not in parts
        }
    # A commented line in logind.conf shows systemd's built-in default; the manual says yes.
    built = re.search(r"^\s*#\s*RemoveIPC=(\S+)", files.get(main, ""), re.MULTILINE)
    said = [built[1] if built else "yes"]
    for path in (*([main] if main else []), *(parts[name] for name in sorted(parts))):
        said += re.findall(r"^\s*RemoveIPC\s*=\s*(\S+)", files[path], re.MULTILINE)
    return ("yes" if said[-1].lower() in TRUE else "no") if files else None


def judge(facts: Mapping[str, Any], request: Mapping[str, Any]) -> Iterator[Said]:
    node = request["node"]
    yield from _disk(node, facts, request)
    yield from _temporary(node, facts)
    yield from _shared_memory(node, facts, request)
    yield from _left_behind(node, facts)
    yield from _remove_ipc(node, facts, request)
    yield from _clock(node, facts)
    count, most = facts["host"]["conntrack"]["count"], facts["host"]["conntrack"]["max"]
    if not most or count is None:
        yield CONNTRACK_FULL.skip("the kernel does not track connections")
    elif count >= FULL_CONNTRACK * most:
        yield CONNTRACK_FULL.warn(
            node,
            f"the connection tracking table has {count} of {most} entries. A full table silently drops connections",
            "Raise the limit with",
            shell("sudo sysctl -w net.netfilter.nf_conntrack_max={most}", most=most * 4),
            observed=str(count),
            expected=f"less than {FULL_CONNTRACK:.0%} of {most}",
        )


def _disk(node: str, facts: Mapping[str, Any], request: Mapping[str, Any]) -> Iterator[Said]:
    room = facts["disk"][request["run_root"]]
    if "why" in room:
        yield DISK_SMALL.skip(room["why"])
        return
    what = ""
    if room["read_only"]:
        what = "is mounted read-only"
    elif room["inodes_free"] is not None and room["inodes_free"] < FEW_INODES:
        what = f"has fewer than {FEW_INODES} free inodes"
    elif room["free"] < LITTLE_FREE:
        what = f"has {gigabytes(room['free'])} free"
    if not what:
        return
    bad = room["read_only"] or not what.endswith("free") or room["free"] < LEAST_FREE
    yield (DISK_SMALL.fail if bad else DISK_SMALL.warn)(
        node,
        f"{room['on']}, where launches write logs ({request['run_root']}), {what}",
        "Free up space, or change cluster_run_root. Show the largest folders with",
        shell("sudo du -xhd1 {on}", on=room["on"]),
        observed=what,
        expected=f"{gigabytes(LITTLE_FREE)} free",
    )


def _temporary(node: str, facts: Mapping[str, Any]) -> Iterator[Said]:
    inside = facts["unit"]["inside"]
    if not inside or facts["unit"]["way"] != "unit":
        yield TMP_UNUSABLE.skip(facts["unit"]["why"])
    elif "why" in inside["tmp"]:
        yield TMP_UNUSABLE.fail(
            node,
            f"the training user has no writable folder for temporary files: {inside['tmp']['why']}",
        )
    elif inside["tmp"]["path"] != "/tmp":
        yield TMP_UNUSABLE.warn(
            node,
            f"the training user cannot write to /tmp and uses {inside['tmp']['path']} instead",
            observed=inside["tmp"]["path"],
            expected="/tmp",
        )


def is_container(facts: Mapping[str, Any]) -> bool:
    """Return whether the node is a container. WSL does not count as a container, although systemd reports it as one."""
    return bool(facts["system"]["container"]) and facts["system"]["virtual"] != WSL


def _shared_memory(node: str, facts: Mapping[str, Any], request: Mapping[str, Any]) -> Iterator[Said]:
    inside = facts["unit"]["inside"]
    if not inside:
        yield from skip_all((SHM_UNUSABLE, SHM_SMALL), facts["unit"]["why"])
        return
    shm = inside["shm"]
    container = is_container(facts)
    fix = "Increase the size of /dev/shm with" if not container else "Start the container with --shm-size=1g or larger"
    command = "" if container else "sudo mount -o remount,size=50% /dev/shm"
    if "why" in shm or not shm["writable"]:
        yield SHM_UNUSABLE.fail(
            node,
            f"the training user cannot use shared memory: {shm.get('why') or '/dev/shm is not writable'}",
            "Mount a tmpfs on /dev/shm with",
            "sudo mount -t tmpfs -o mode=1777 tmpfs /dev/shm",
        )
        yield SHM_SMALL.skip("/dev/shm cannot be used")
        return
    said = f"/dev/shm has {gigabytes(shm['free'])} free of {gigabytes(shm['size'])}"
    more = {"observed": gigabytes(shm["free"]), "evidence": evidence("statvfs /dev/shm in a unit", said)}
    if request["backend"] != "nccl" or request["nproc"] < 2:
        if shm["free"] < LITTLE_SHM:
            summary = f"{said}. Data loader workers keep batches there, and end with a bus error when it is full"
            yield SHM_SMALL.warn(node, summary, fix, command, **more)
    elif shm["free"] < WANTED_SHM:
        # With NVLink and newer drivers NCCL may not need it (NCCL's guide, cuMem host allocations): a warning only.
        known = ", with which NCCL is known to fail" if shm["size"] <= DOCKER_SHM else ""
        summary = f"{said}{known}; NCCL's guide recommends 1 GiB"
        yield SHM_SMALL.warn(node, summary, fix, command, expected="1 GiB", **more)


def _left_behind(node: str, facts: Mapping[str, Any]) -> Iterator[Said]:
    inside = facts["unit"]["inside"]
    if not inside or not inside["shm"].get("size"):
        yield SHM_LEFT_BEHIND.skip(facts["unit"]["why"] or "/dev/shm cannot be used")
        return
    if inside["left_behind"] is None:
        yield SHM_LEFT_BEHIND.skip("permission to list /dev/shm is denied")
        return
    if facts["jobs"]["processes"]:
        yield SHM_LEFT_BEHIND.skip("a job is running and might own the files")
        return
    size = sum(each["size"] for each in inside["left_behind"])
    if size >= LEFT_BEHIND_PART * inside["shm"]["size"]:
        names = [each["name"] for each in inside["left_behind"]]
        yield SHM_LEFT_BEHIND.warn(
            node,
            f"killed ranks have left {len(names)} files ({gigabytes(size)}) in /dev/shm",
            command="sudo find /dev/shm -maxdepth 1 -type f "
            "\\( -name 'nccl-*' -o -name 'torch_*' -o -name 'gloo-*' \\) -mmin +10 -delete",
            observed=gigabytes(size),
            evidence=evidence("/dev/shm", ", ".join(names[:5])),
        )


def _remove_ipc(node: str, facts: Mapping[str, Any], request: Mapping[str, Any]) -> Iterator[Said]:
    host, inside = facts["host"], facts["unit"]["inside"]
    if host["remove_ipc"] is None:
        yield REMOVE_IPC.skip(host["remove_ipc_why"])
    elif not inside or facts["unit"]["way"] != "unit":
        yield REMOVE_IPC.skip(facts["unit"]["why"])
    elif inside["uid"] < host["first_ordinary_uid"]:
        yield REMOVE_IPC.skip(f"{request['user']} is a system user, which RemoveIPC does not affect")
    elif host["remove_ipc"] != "yes" and host["remove_ipc_next"] is None:
        yield REMOVE_IPC.skip("the configured value of RemoveIPC cannot be read (logind.conf)")
    elif "yes" in (host["remove_ipc"], host["remove_ipc_next"]):
        now = host["remove_ipc"] == "yes"
        later = " after the next restart of systemd-logind (the active value is no, but logind.conf has RemoveIPC=yes)"
        yield REMOVE_IPC.warn(
            node,
            f"systemd-logind deletes shared memory of a launch when the last session of {request['user']} ends"
            + (" (RemoveIPC=yes)" if now else later),
            observed="RemoveIPC=yes",
            expected="RemoveIPC=no",
            evidence=evidence("loginctl show-user" if now else "logind.conf and logind.conf.d", "RemoveIPC=yes"),
        )


def _clock(node: str, facts: Mapping[str, Any]) -> Iterator[Said]:
    if facts["system"]["container"]:
        why = facts["skipped"]["clock"]
        yield from skip_all((CLOCK_SOURCE, UNSYNCHRONISED), why)
        return
    source = facts["host"]["clock_source"]
    if not source:
        yield CLOCK_SOURCE.skip("the kernel reports no clock source")
    elif source in SLOW_CLOCKS:
        yield CLOCK_SOURCE.warn(
            node,
            f"the kernel uses the clock source {source}, which is thousands of times slower than tsc",
            "Find out why the kernel stopped using tsc with",
            "sudo dmesg | grep -iE 'tsc|clocksource'",
            observed=source,
            expected="tsc",
        )
    clock = facts["clock"]
    if clock["synchronised"] is None:
        yield UNSYNCHRONISED.skip(facts["skipped"].get("clock", "the kernel does not report the clock status"))
    elif not clock["synchronised"]:
        sources = ", ".join(clock["sources"])
        yield UNSYNCHRONISED.warn(
            node,
            f"the clock is not synchronised ({f'{sources} is running' if sources else 'no time service is running'})",
            "Check the time sources with" if sources else "Run the step baseline, which sets up a time service",
            "chronyc -n sources" if "chrony" in sources else "timedatectl timesync-status" if sources else "",
        )
