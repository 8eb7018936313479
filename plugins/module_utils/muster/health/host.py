"""The machine itself: room on disk and in shared memory, its clock, and what its manager of logins takes away."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from ..verdict.entry import Entry
from ..verdict.finding import evidence
from .judged import Judged, gigabytes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .judged import Outcome

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

FINDINGS = {
    "os.tmp.unusable": Entry(
        reads="the folder for temporary files, by writing there as the training user",
        fires="fail: there is none; warn: it is not /tmp, because that one is full or may not be written",
        fix="Make room in /tmp, and give it the mode 1777",
    ),
    "os.shm.unusable": Entry(
        reads="/dev/shm, inside a unit like a launch's",
        fires="fail: it is not there or may not be written",
        fix="Mount a tmpfs there, with the mode 1777",
    ),
    "os.shm.small": Entry(
        reads="size and free room of /dev/shm, inside a unit like a launch's",
        fires="warn: with NCCL and several ranks, less than 1 GiB free, as NCCL's guide asks for; with a container's "
        "default of 64 MiB NCCL is known to fail. With Gloo, less than 8 MB free",
        fix="Mount it larger; a container needs --shm-size from its host",
    ),
    "os.shm.left_behind": Entry(
        reads="files of NCCL, Gloo and data loaders in /dev/shm, while no rank runs",
        fires="warn: they fill a tenth of it or more. Killed ranks leave them",
        fix="Delete them while no job runs",
    ),
    "os.remove_ipc": Entry(
        reads="RemoveIPC of systemd-logind, as it is in force",
        fires="warn: it is yes and the training user is an ordinary one: shared memory of a launch is deleted when "
        "that user's last login ends (NCCL troubleshooting guide)",
        fix="The step baseline sets RemoveIPC=no",
    ),
    "os.clock.source": Entry(
        reads="the kernel's clock source",
        fires="warn: it is one of the chipset's, thousands of times slower to read than tsc, because the kernel found "
        "tsc unstable",
        fix="Look for the reason in the kernel's log; a firmware update often fixes it",
    ),
    "os.conntrack.full": Entry(
        reads="how full the table of tracked connections is",
        fires=f"warn: {FULL_CONNTRACK:.0%} or more; when it is full, new connections are dropped",
        fix="Raise net.netfilter.nf_conntrack_max",
    ),
}
# Declared where a node is inspected, and the same here.
LOOKS = ("host",)
ALSO = ("node.disk.small", "time.unsynchronised")


def facts_of(looks: Mapping[str, Any], _: Mapping[str, Any]) -> dict[str, Any]:
    look = looks["host"]
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


def judge(facts: Mapping[str, Any], request: Mapping[str, Any]) -> Outcome:
    out = Judged(request["node"])
    _disk(out, facts, request)
    _temporary(out, facts)
    _shared_memory(out, facts, request)
    _left_behind(out, facts)
    _remove_ipc(out, facts, request)
    _clock(out, facts)
    count, most = facts["host"]["conntrack"]["count"], facts["host"]["conntrack"]["max"]
    if not most or count is None:
        out.skip("connections are not tracked here", "os.conntrack.full")
    elif count >= FULL_CONNTRACK * most:
        out.warn(
            "os.conntrack.full",
            f"{count} of {most} connections are tracked, and one more than that is dropped without a word",
            "Raise the limit",
            f"sudo sysctl -w net.netfilter.nf_conntrack_max={most * 4}",
            observed=str(count),
            expected=f"less than {FULL_CONNTRACK:.0%} of {most}",
        )
    return out.outcome


def _disk(out: Judged, facts: Mapping[str, Any], request: Mapping[str, Any]) -> None:
    room = facts["disk"][request["run_root"]]
    if "why" in room:
        out.skip(room["why"], "node.disk.small")
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
    (out.fail if bad else out.warn)(
        "node.disk.small",
        f"{room['on']}, where logs of launches go ({request['run_root']}), {what}",
        "Make room there, or set cluster_run_root elsewhere; what fills it is shown by",
        f"sudo du -xhd1 {room['on']}",
        observed=what,
        expected=f"{gigabytes(LITTLE_FREE)} free",
    )


def _temporary(out: Judged, facts: Mapping[str, Any]) -> None:
    inside = facts["unit"]["inside"]
    if not inside or facts["unit"]["way"] != "unit":
        out.skip(facts["unit"]["why"], "os.tmp.unusable")
    elif "why" in inside["tmp"]:
        out.fail(
            "os.tmp.unusable",
            f"the training user finds no folder for temporary files: {inside['tmp']['why']}",
            "Make room in /tmp, and let everybody write there",
            "sudo chmod 1777 /tmp && df -h /tmp",
        )
    elif inside["tmp"]["path"] != "/tmp":
        out.warn(
            "os.tmp.unusable",
            f"the training user cannot write to /tmp, and uses {inside['tmp']['path']} instead",
            "Make room in /tmp, and let everybody write there",
            "sudo chmod 1777 /tmp && df -h /tmp",
            observed=inside["tmp"]["path"],
            expected="/tmp",
        )


def _shared_memory(out: Judged, facts: Mapping[str, Any], request: Mapping[str, Any]) -> None:
    inside = facts["unit"]["inside"]
    if not inside:
        out.skip(facts["unit"]["why"], "os.shm.unusable", "os.shm.small")
        return
    shm = inside["shm"]
    fix = "Give it room" if not facts["system"]["container"] else "Start the container with --shm-size=1g or more"
    command = "" if facts["system"]["container"] else "sudo mount -o remount,size=50% /dev/shm"
    if "why" in shm or not shm["writable"]:
        out.fail(
            "os.shm.unusable",
            f"the training user cannot use shared memory: {shm.get('why') or '/dev/shm may not be written'}",
            "Mount a tmpfs there",
            "sudo mount -t tmpfs -o mode=1777 tmpfs /dev/shm",
        )
        out.skip("/dev/shm cannot be used at all", "os.shm.small")
        return
    said = f"/dev/shm has {gigabytes(shm['free'])} free of {gigabytes(shm['size'])}"
    more = {"observed": gigabytes(shm["free"]), "evidence": evidence("statvfs /dev/shm in a unit", said)}
    if request["backend"] != "nccl":
        if shm["free"] < LITTLE_SHM:
            out.warn("os.shm.small", f"{said}, and data loaders hand their batches over there", fix, command, **more)
    elif request["nproc"] < 2:
        out.skip("a single rank on the node shares no memory with others", "os.shm.small")
    elif shm["free"] < WANTED_SHM:
        # With NVLink and newer drivers NCCL may do without (its guide, cuMem host allocations): so this is no failure.
        known = ", with which NCCL is known to fail" if shm["size"] <= DOCKER_SHM else ""
        summary = f"{said}{known}; NCCL's guide asks for 1 GiB"
        out.warn("os.shm.small", summary, fix, command, expected="1 GiB", **more)


def _left_behind(out: Judged, facts: Mapping[str, Any]) -> None:
    inside = facts["unit"]["inside"]
    if not inside or not inside["shm"].get("size"):
        out.skip(facts["unit"]["why"] or "/dev/shm cannot be used", "os.shm.left_behind")
        return
    if facts["jobs"]["processes"]:
        out.skip("a job runs, and it may be its own", "os.shm.left_behind")
        return
    size = sum(each["size"] for each in inside["left_behind"])
    if size >= LEFT_BEHIND_PART * inside["shm"]["size"]:
        names = [each["name"] for each in inside["left_behind"]]
        out.warn(
            "os.shm.left_behind",
            f"ranks that were killed have left {gigabytes(size)} in /dev/shm, in {len(names)} files",
            "Delete them while no job runs",
            "sudo find /dev/shm -maxdepth 1 -type f "
            "\\( -name 'nccl-*' -o -name 'torch_*' -o -name 'gloo-*' \\) -mmin +10 -delete",
            observed=gigabytes(size),
            evidence=evidence("/dev/shm", ", ".join(names[:5])),
        )


def _remove_ipc(out: Judged, facts: Mapping[str, Any], request: Mapping[str, Any]) -> None:
    host, inside = facts["host"], facts["unit"]["inside"]
    if host["remove_ipc"] is None:
        out.skip(host["remove_ipc_why"], "os.remove_ipc")
    elif not inside or facts["unit"]["way"] != "unit":
        out.skip(facts["unit"]["why"], "os.remove_ipc")
    elif inside["uid"] < host["first_ordinary_uid"]:
        out.skip(f"{request['user']} is a system user, whom systemd-logind leaves alone", "os.remove_ipc")
    elif host["remove_ipc"] == "yes":
        out.warn(
            "os.remove_ipc",
            f"shared memory of a launch is deleted when the last login of {request['user']} ends (RemoveIPC=yes)",
            "The step baseline sets RemoveIPC=no",
            "ansible-playbook site.yml --tags baseline",
            observed="RemoveIPC=yes",
            expected="RemoveIPC=no",
            evidence=evidence("loginctl show-user", "RemoveIPC=yes"),
        )


def _clock(out: Judged, facts: Mapping[str, Any]) -> None:
    if facts["system"]["container"]:
        why = f"the clock of a container ({facts['system']['virtual']}) is its host's"
        out.skip(why, "os.clock.source", "time.unsynchronised")
        return
    source = facts["host"]["clock_source"]
    if not source:
        out.skip("the kernel does not say which one it has", "os.clock.source")
    elif source in SLOW_CLOCKS:
        out.warn(
            "os.clock.source",
            f"its kernel reads the time from {source}, thousands of times slower than tsc",
            "Look why it gave tsc up",
            "sudo dmesg | grep -iE 'tsc|clocksource'",
            observed=source,
            expected="tsc",
        )
    clock = facts["clock"]
    if clock["synchronised"] is None:
        out.skip(facts["skipped"].get("clock", "the kernel does not say"), "time.unsynchronised")
    elif not clock["synchronised"]:
        sources = ", ".join(clock["sources"])
        out.warn(
            "time.unsynchronised",
            f"its clock is not synchronised ({f'{sources} runs' if sources else 'nothing sets it'})",
            "Look at its sources" if sources else "The step baseline sets one up",
            "chronyc -n sources" if "chrony" in sources else "timedatectl timesync-status" if sources else "",
        )
