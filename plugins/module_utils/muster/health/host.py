"""The machine itself: room on disk and in shared memory, its clock, and what its manager of logins takes away."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from ..inspect.node import DISK_SMALL, UNSYNCHRONISED
from ..verdict.check import Check, skip_all
from ..verdict.finding import evidence
from ..verdict.words import gigabytes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ..verdict.check import Said

# What a launch asks for before it starts (launch_min_free_mb), and what logs and a checkpoint or two soon need.
LEAST_FREE = 64_000_000
LITTLE_FREE = 500_000_000
FEW_INODES = 1000
# Docker's own size of /dev/shm, with which NCCL is known to fail, and the one that NCCL's guide asks for instead.
DOCKER_SHM = 64 * 2**20
WANTED_SHM = 2**30
LITTLE_SHM = 8_000_000
# Shared memory that nobody uses is worth a word once it fills this part of it.
LEFT_BEHIND_PART = 0.1
# Sources of time that need a register of the chipset for each look: thousands of times slower than tsc.
SLOW_CLOCKS = ("hpet", "acpi_pm", "jiffies", "refined-jiffies", "pit")
FULL_CONNTRACK = 0.8
FIRST_ORDINARY_UID = 1000

TMP_UNUSABLE = Check(
    "os.tmp.unusable",
    reads="the folder for temporary files, by writing there as the training user",
    fires="fail: there is none; warn: it is not /tmp, because that one is full or may not be written",
    fix="Make room in /tmp, and give it the mode 1777",
)
SHM_UNUSABLE = Check(
    "os.shm.unusable",
    reads="/dev/shm, inside a unit like a launch's",
    fires="fail: it is not there or may not be written",
    fix="Mount a tmpfs there, with the mode 1777",
)
SHM_SMALL = Check(
    "os.shm.small",
    reads="size and free room of /dev/shm, inside a unit like a launch's",
    fires="warn: with NCCL and several ranks, less than 1 GiB free, as NCCL's guide asks for; with a container's "
    "default of 64 MiB NCCL is known to fail. With Gloo, less than 8 MB free",
    fix="Mount it larger; a container needs --shm-size from its host",
)
SHM_LEFT_BEHIND = Check(
    "os.shm.left_behind",
    reads="files of NCCL, Gloo and data loaders in /dev/shm, while no rank runs",
    fires="warn: they fill a tenth of it or more. Killed ranks leave them",
    fix="Delete them while no job runs",
)
REMOVE_IPC = Check(
    "os.remove_ipc",
    reads="RemoveIPC of systemd-logind, as it is in force",
    fires="warn: it is yes and the training user is an ordinary one: shared memory of a launch is deleted when "
    "that user's last login ends (NCCL troubleshooting guide)",
    fix="The step baseline sets RemoveIPC=no",
)
CLOCK_SOURCE = Check(
    "os.clock.source",
    reads="the kernel's clock source",
    fires="warn: it is one of the chipset's, thousands of times slower to read than tsc, because the kernel found "
    "tsc unstable",
    fix="Look for the reason in the kernel's log; a firmware update often fixes it",
)
CONNTRACK_FULL = Check(
    "os.conntrack.full",
    reads="how full the table of tracked connections is",
    fires=f"warn: {FULL_CONNTRACK:.0%} or more; when it is full, new connections are dropped",
    fix="Raise net.netfilter.nf_conntrack_max",
)
CHECKS = (
    *(DISK_SMALL, TMP_UNUSABLE, SHM_UNUSABLE, SHM_SMALL, SHM_LEFT_BEHIND),
    *(REMOVE_IPC, CLOCK_SOURCE, UNSYNCHRONISED, CONNTRACK_FULL),
)


def facts_of(look: Mapping[str, Any]) -> dict[str, Any]:
    """Make facts of what muster_node/look_host.py brought back."""
    said = re.search(r"^RemoveIPC=(\w+)", look["login"], re.MULTILINE)
    system_uids = re.search(r"^SYS_UID_MAX\s+(\d+)", look["login_defs"], re.MULTILINE)
    count, most = (int(text) if text.isdigit() else None for text in look["conntrack"])
    return {
        "remove_ipc": said[1] if said else None,
        "remove_ipc_why": look["login_why"] or "systemd-logind does not say",
        "first_ordinary_uid": int(system_uids[1]) + 1 if system_uids else FIRST_ORDINARY_UID,
        "clock_source": look["clock_source"],
        "clock_sources": look["clock_sources"].split(),
        "modules": sorted(line.split()[0] for line in look["modules"].splitlines() if line.strip()),
        "conntrack": {"count": count, "max": most},
        "preload": look["preload"].split(),
    }


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
        yield CONNTRACK_FULL.skip("connections are not tracked here")
    elif count >= FULL_CONNTRACK * most:
        yield CONNTRACK_FULL.warn(
            node,
            f"{count} of {most} connections are tracked, and one more than that is dropped without a word",
            "Raise the limit",
            f"sudo sysctl -w net.netfilter.nf_conntrack_max={most * 4}",
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
        what = "has no inodes left"
    elif room["free"] < LITTLE_FREE:
        what = f"has {gigabytes(room['free'])} free"
    if not what:
        return
    bad = room["read_only"] or not what.endswith("free") or room["free"] < LEAST_FREE
    yield (DISK_SMALL.fail if bad else DISK_SMALL.warn)(
        node,
        f"{room['on']}, where logs of launches go ({request['run_root']}), {what}",
        "Make room there, or set cluster_run_root elsewhere; what fills it is shown by",
        f"sudo du -xhd1 {room['on']}",
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
            f"the training user finds no folder for temporary files: {inside['tmp']['why']}",
            "Make room in /tmp, and let everybody write there",
            "sudo chmod 1777 /tmp && df -h /tmp",
        )
    elif inside["tmp"]["path"] != "/tmp":
        yield TMP_UNUSABLE.warn(
            node,
            f"the training user cannot write to /tmp, and uses {inside['tmp']['path']} instead",
            "Make room in /tmp, and let everybody write there",
            "sudo chmod 1777 /tmp && df -h /tmp",
            observed=inside["tmp"]["path"],
            expected="/tmp",
        )


def _shared_memory(node: str, facts: Mapping[str, Any], request: Mapping[str, Any]) -> Iterator[Said]:
    inside = facts["unit"]["inside"]
    if not inside:
        yield from skip_all((SHM_UNUSABLE, SHM_SMALL), facts["unit"]["why"])
        return
    shm = inside["shm"]
    fix = "Give it room" if not facts["system"]["container"] else "Start the container with --shm-size=1g or more"
    command = "" if facts["system"]["container"] else "sudo mount -o remount,size=50% /dev/shm"
    if "why" in shm or not shm["writable"]:
        yield SHM_UNUSABLE.fail(
            node,
            f"the training user cannot use shared memory: {shm.get('why') or '/dev/shm may not be written'}",
            "Mount a tmpfs there",
            "sudo mount -t tmpfs -o mode=1777 tmpfs /dev/shm",
        )
        yield SHM_SMALL.skip("/dev/shm cannot be used at all")
        return
    said = f"/dev/shm has {gigabytes(shm['free'])} free of {gigabytes(shm['size'])}"
    more = {"observed": gigabytes(shm["free"]), "evidence": evidence("statvfs /dev/shm in a unit", said)}
    if request["backend"] != "nccl":
        if shm["free"] < LITTLE_SHM:
            yield SHM_SMALL.warn(node, f"{said}, and data loaders hand their batches over there", fix, command, **more)
    elif request["nproc"] < 2:
        yield SHM_SMALL.skip("a single rank on the node shares no memory with others")
    elif shm["free"] < WANTED_SHM:
        # With NVLink and newer drivers NCCL may do without (its guide, cuMem host allocations): so this is no failure.
        known = ", with which NCCL is known to fail" if shm["size"] <= DOCKER_SHM else ""
        summary = f"{said}{known}; NCCL's guide asks for 1 GiB"
        yield SHM_SMALL.warn(node, summary, fix, command, expected="1 GiB", **more)


def _left_behind(node: str, facts: Mapping[str, Any]) -> Iterator[Said]:
    inside = facts["unit"]["inside"]
    if not inside or not inside["shm"].get("size"):
        yield SHM_LEFT_BEHIND.skip(facts["unit"]["why"] or "/dev/shm cannot be used")
        return
    if facts["jobs"]["processes"]:
        yield SHM_LEFT_BEHIND.skip("a job runs, and it may be its own")
        return
    size = sum(each["size"] for each in inside["left_behind"])
    if size >= LEFT_BEHIND_PART * inside["shm"]["size"]:
        names = [each["name"] for each in inside["left_behind"]]
        yield SHM_LEFT_BEHIND.warn(
            node,
            f"ranks that were killed have left {gigabytes(size)} in /dev/shm, in {len(names)} files",
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
        yield REMOVE_IPC.skip(f"{request['user']} is a system user, whom systemd-logind leaves alone")
    elif host["remove_ipc"] == "yes":
        yield REMOVE_IPC.warn(
            node,
            f"shared memory of a launch is deleted when the last login of {request['user']} ends (RemoveIPC=yes)",
            command="ansible-playbook site.yml --tags baseline",
            observed="RemoveIPC=yes",
            expected="RemoveIPC=no",
            evidence=evidence("loginctl show-user", "RemoveIPC=yes"),
        )


def _clock(node: str, facts: Mapping[str, Any]) -> Iterator[Said]:
    if facts["system"]["container"]:
        why = f"the clock of a container ({facts['system']['virtual']}) is its host's"
        yield from skip_all((CLOCK_SOURCE, UNSYNCHRONISED), why)
        return
    source = facts["host"]["clock_source"]
    if not source:
        yield CLOCK_SOURCE.skip("the kernel does not say which one it has")
    elif source in SLOW_CLOCKS:
        yield CLOCK_SOURCE.warn(
            node,
            f"its kernel reads the time from {source}, thousands of times slower than tsc",
            "Look why it gave tsc up",
            "sudo dmesg | grep -iE 'tsc|clocksource'",
            observed=source,
            expected="tsc",
        )
    clock = facts["clock"]
    if clock["synchronised"] is None:
        yield UNSYNCHRONISED.skip(facts["skipped"].get("clock", "the kernel does not say"))
    elif not clock["synchronised"]:
        sources = ", ".join(clock["sources"])
        yield UNSYNCHRONISED.warn(
            node,
            f"its clock is not synchronised ({f'{sources} runs' if sources else 'nothing sets it'})",
            "Look at its sources" if sources else "The step baseline sets one up",
            "chronyc -n sources" if "chrony" in sources else "timedatectl timesync-status" if sources else "",
        )
