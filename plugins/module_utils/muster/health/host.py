"""The machine itself: room on disk and in shared memory, its clock, and what its manager of logins takes away."""

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

# What a launch asks for before it starts, and what logs and a checkpoint or two soon need.
LEAST_FREE = 64_000_000
LITTLE_FREE = 500_000_000
FEW_INODES = 1000
# Docker's own size of /dev/shm, with which NCCL is known to fail, and the one that NCCL's guide asks for instead.
DOCKER_SHM = 64 * 2**20
WANTED_SHM = 2**30
# A worker of a data loader keeps two batches there (prefetch_factor): of 32 pictures of 3 x 224 x 224 floats, 39 MB.
LITTLE_SHM = 40_000_000
# Shared memory that nobody uses is worth a word once it fills this part of it.
LEFT_BEHIND_PART = 0.1
# Sources of time that need a register of the chipset for each look: thousands of times slower than tsc.
SLOW_CLOCKS = ("hpet", "acpi_pm", "jiffies", "refined-jiffies", "pit")
FULL_CONNTRACK = 0.8
FIRST_ORDINARY_UID = 1000
# Where systemd looks for its settings, the first of a name first, and what it takes for true.
PLACES = ("/etc/systemd", "/run/systemd", "/usr/local/lib/systemd", "/usr/lib/systemd")
TRUE = ("1", "yes", "y", "true", "t", "on")

TMP_UNUSABLE = Check(
    "os.tmp.unusable",
    seen="recording",
    reads="the folder for temporary files, by writing there as the training user",
    fires="fail: there is none; warn: it is not /tmp, because that one is full or may not be written",
    fix="Make room in /tmp, and let everybody write there",
    command="sudo chmod 1777 /tmp && df -h /tmp",
)
SHM_UNUSABLE = Check(
    "os.shm.unusable",
    seen="recording",
    reads="/dev/shm, inside a unit like a launch's",
    fires="fail: it is not there or may not be written",
    fix="Mount a tmpfs there, with the mode 1777",
)
SHM_SMALL = Check(
    "os.shm.small",
    seen="sandbox",
    reads="size and free room of /dev/shm, inside a unit like a launch's",
    fires="warn: with NCCL and several ranks, less than 1 GiB free, as NCCL's guide asks for; with a container's "
    "default of 64 MiB NCCL is known to fail. Otherwise, less than 40 MB free: a worker of a data loader keeps two "
    "batches there, and ends with a bus error where they do not fit",
    fix="Mount it larger; a container needs --shm-size from its host",
)
SHM_LEFT_BEHIND = Check(
    "os.shm.left_behind",
    seen="recording",
    reads="files of NCCL, Gloo and data loaders in /dev/shm, while no rank runs",
    fires="warn: they fill a tenth of it or more. Killed ranks leave them",
    fix="Delete them while no job runs",
)
REMOVE_IPC = Check(
    "os.remove_ipc",
    seen="sandbox",
    reads="RemoveIPC of systemd-logind, as it is in force and as its files say for the next start",
    fires="warn: it is yes in one of them and the training user is an ordinary one: shared memory of a launch is "
    "deleted when that user's last login ends (NCCL troubleshooting guide)",
    fix="Set RemoveIPC=no with",
    command=playbook("site.yml", tags="baseline"),
)
CLOCK_SOURCE = Check(
    "os.clock.source",
    seen="recording",
    reads="the kernel's clock source",
    fires="warn: it is one of the chipset's, thousands of times slower to read than tsc, because the kernel found "
    "tsc unstable",
    fix="Look for the reason in the kernel's log; a firmware update often fixes it",
)
CONNTRACK_FULL = Check(
    "os.conntrack.full",
    seen="recording",
    reads="how full the table of tracked connections is",
    fires=f"warn: {FULL_CONNTRACK:.0%} or more; when it is full, new connections are dropped",
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
        "remove_ipc_why": look["login_why"] or "systemd-logind does not say",
        "first_ordinary_uid": int(system_uids[1]) + 1 if system_uids else FIRST_ORDINARY_UID,
        "clock_source": look["clock_source"],
        "clock_sources": look["clock_sources"].split(),
        "modules": sorted(line.split()[0] for line in look["modules"].splitlines() if line.strip()),
        "conntrack": {"count": count, "max": most},
        "preload": look["preload"].split(),
        "unread": look["unread"],
    }


def _at_the_next_start(files: Mapping[str, str]) -> str | None:
    """RemoveIPC as systemd will read it: the first logind.conf, then the files in the folders of that name, by name.

    Of two files of one name that in /etc counts, then /run, then /usr (systemd-system.conf(5)). None: nothing was read.
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
    # What is commented out in logind.conf is what systemd was built with; its manual says yes.
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
        yield CONNTRACK_FULL.skip("connections are not tracked here")
    elif count >= FULL_CONNTRACK * most:
        yield CONNTRACK_FULL.warn(
            node,
            f"{count} of {most} connections are tracked, and one more than that is dropped without a word",
            "Raise the limit",
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
            f"the training user finds no folder for temporary files: {inside['tmp']['why']}",
        )
    elif inside["tmp"]["path"] != "/tmp":
        yield TMP_UNUSABLE.warn(
            node,
            f"the training user cannot write to /tmp, and uses {inside['tmp']['path']} instead",
            observed=inside["tmp"]["path"],
            expected="/tmp",
        )


def is_container(facts: Mapping[str, Any]) -> bool:
    """Whether what it lacks is given by whoever starts it. WSL is none, though systemd counts it among them."""
    return bool(facts["system"]["container"]) and facts["system"]["virtual"] != WSL


def _shared_memory(node: str, facts: Mapping[str, Any], request: Mapping[str, Any]) -> Iterator[Said]:
    inside = facts["unit"]["inside"]
    if not inside:
        yield from skip_all((SHM_UNUSABLE, SHM_SMALL), facts["unit"]["why"])
        return
    shm = inside["shm"]
    container = is_container(facts)
    fix = "Give it room" if not container else "Start the container with --shm-size=1g or more"
    command = "" if container else "sudo mount -o remount,size=50% /dev/shm"
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
    if request["backend"] != "nccl" or request["nproc"] < 2:
        if shm["free"] < LITTLE_SHM:
            summary = f"{said}: data loaders hand their batches over there, and their workers end with a bus error"
            yield SHM_SMALL.warn(node, summary, fix, command, **more)
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
    if inside["left_behind"] is None:
        yield SHM_LEFT_BEHIND.skip("what lies in /dev/shm may not be listed")
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
    elif host["remove_ipc"] != "yes" and host["remove_ipc_next"] is None:
        yield REMOVE_IPC.skip("what it will be from the next start on cannot be read (logind.conf)")
    elif "yes" in (host["remove_ipc"], host["remove_ipc_next"]):
        now = host["remove_ipc"] == "yes"
        later = " from the next start on: its files say RemoveIPC=yes, and systemd-logind still goes by no"
        yield REMOVE_IPC.warn(
            node,
            f"shared memory of a launch is deleted when the last login of {request['user']} ends"
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
