"""What the facts of one node mean for the cluster: findings, each with the words that fix it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..verdict import access
from ..verdict.check import Check
from ..verdict.commands import ping, shell
from ..verdict.finding import Skipped, evidence
from .facts import WSL
from .gpus import gpus
from .training_network import address, ports, ways

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from ..verdict.finding import Finding
    from .facts import InspectedNode

    Rule = Callable[["InspectedNode"], "Iterable[Finding]"]

DISK_SMALL = Check(
    "node.disk.small",
    seen="sandbox",
    reads="the file systems that Muster writes to",
    fires="they are read-only, have no inodes, or too little room for what comes (fail). Where only logs are to come, "
    "less than 64 MB fails and less than 500 MB warns",
    fix="Make room, or choose another place",
)
UNSYNCHRONISED = Check(
    "time.unsynchronised",
    seen="recording",
    reads="the state of the clock that the kernel keeps",
    fires="it is not synchronised (warn)",
    fix="Look at the sources of the time daemon",
)
UNREACHABLE = Check(
    "node.unreachable",
    seen="sandbox",
    reads="the connection of Ansible to the node",
    fires="the node could not be looked at: a fail where it takes part in a launch, else unknown",
    fix="Look why with the command that is named, or leave it out (cluster_quarantined, cluster_launch_nodes)",
)
NOTHING_AGAINST = Check(
    "inspect.node",
    seen="stand-in",
    reads="everything that inspect looks at",
    fires="never: it is the pass of a node against which nothing stands",
)
OS_UNSUPPORTED = Check(
    "node.os.unsupported",
    seen="recording",
    reads="/etc/os-release",
    fires="the system is none that Muster knows (fail)",
    fix="Install one of {supported}, or take the node out of the inventory",
)
SYSTEMD_MISSING = Check(
    "node.systemd.missing",
    seen="recording",
    reads="/proc/1/comm",
    fires="the first process is not systemd (fail)",
    fix="Boot the node with systemd",
)
WSL_HERE = Check(
    "node.wsl",
    seen="stand-in",
    reads="systemd-detect-virt",
    fires="the node is a Windows machine's WSL (warn): its driver, clock, memory and network are those of Windows, and"
    " Muster sets none of them up",
    fix="On Windows, install NVIDIA's driver, set networkingMode=mirrored in .wslconfig, and let the other nodes"
    " through the Hyper-V firewall; or take the node out of the inventory",
)
PYTHON_OLD = Check(
    "node.python.old",
    seen="recording",
    reads="the Python that Ansible uses there",
    fires="it is older than 3.10 (fail)",
    fix="Set ansible_python_interpreter to one of {oldest} or newer",
)
UID_DIFFERS = Check(
    "user.uid.differs",
    seen="recording",
    reads="/etc/passwd",
    fires="the training user has another uid than node_baseline_user_uid (fail), or than on most nodes (warn)",
    fix="Correct the variable, or the account by hand",
)
GID_DIFFERS = Check(
    "user.gid.differs",
    seen="recording",
    reads="/etc/passwd",
    fires="the training user has another gid than node_baseline_user_gid (fail), or than on most nodes (warn)",
    fix="Correct the variable, or the account by hand",
)
CLOUD_INIT_FAILED = Check(
    "node.cloud_init.failed",
    seen="recording",
    reads="the result file of cloud-init",
    fires="cloud-init had errors at the last start (warn)",
    fix="Look at them with",
    command="cloud-init status --long",
)

OLDEST_PYTHON = (3, 10)
GIGABYTE = 1_000_000_000


def judge(node: InspectedNode) -> list[Finding]:
    """Return every finding about the node alone; one `pass` when nothing is wrong with it."""
    if node.facts is None:
        what, fix = access.explain(node.why)
        if what:
            return [UNREACHABLE.unknown(node.name, f"it could not be looked at: {what}", fix)]
        return [UNREACHABLE.unknown(node.name, f"it could not be looked at: {node.why}", "Look why", ping(node.name))]
    found = [finding for rule in RULES for finding in rule(node)]
    if not any(finding.status in ("fail", "warn") for finding in found):
        found.append(NOTHING_AGAINST.passed(node.name, "nothing stands against it"))
    return found


def skips(node: InspectedNode) -> list[Skipped]:
    """Return what could not be looked at on the node, and why: not checks, but the facts that several of them read."""
    if node.facts is None:
        return [Skipped(id="inspect", node=node.name, why=node.why)]
    return [Skipped(id=f"inspect.{fact}", node=node.name, why=why) for fact, why in node.facts["skipped"].items()]


def system(node: InspectedNode) -> Iterator[Finding]:
    seen = node.seen["system"]
    if not seen["id"]:
        return
    if seen["version"] not in node.platforms.get(seen["id"], []):
        supported = ", ".join(f"{name.capitalize()} {' '.join(versions)}" for name, versions in node.platforms.items())
        yield OS_UNSUPPORTED.fail(
            node.name,
            f"it runs {seen['name'] or seen['id']}, which Muster does not know",
            named={"supported": supported},
            observed=f"{seen['id']} {seen['version']}",
            expected=supported,
            evidence=evidence("/etc/os-release", f"ID={seen['id']} VERSION_ID={seen['version']}"),
        )
    under_windows = seen["virtual"] == WSL
    if under_windows:
        yield WSL_HERE.warn(
            node.name,
            "it runs under WSL: its driver, clock, memory and network are those of Windows, and Muster sets none of"
            " them up",
            observed=WSL,
            expected="a machine with a Linux of its own",
            evidence=evidence("systemd-detect-virt", WSL),
        )
    if seen["init"] != "systemd":
        boot = "Write systemd=true below [boot] into /etc/wsl.conf, then end the machine on Windows: wsl --shutdown"
        yield SYSTEMD_MISSING.fail(
            node.name,
            f"its first process is {seen['init'] or 'unknown'}, and a launch is a unit of systemd",
            boot if under_windows else None,
            evidence=evidence("/proc/1/comm", seen["init"]),
        )


def python(node: InspectedNode) -> Iterator[Finding]:
    seen = node.seen["system"]
    if tuple(int(number) for number in seen["python"].split(".")[:2]) < OLDEST_PYTHON:
        oldest = ".".join(map(str, OLDEST_PYTHON))
        yield PYTHON_OLD.fail(
            node.name,
            f"{seen['python_path']} is Python {seen['python']}, older than {oldest}",
            named={"oldest": oldest},
            observed=seen["python"],
            expected=f"{oldest} or newer",
        )


def user(node: InspectedNode) -> Iterator[Finding]:
    seen = node.seen["users"]["training_user"]
    for check, key, variable in (
        (UID_DIFFERS, "uid", "node_baseline_user_uid"),
        (GID_DIFFERS, "gid", "node_baseline_user_gid"),
    ):
        wanted = str(node.request.get(variable) or "")
        if seen and wanted not in ("", "0", str(seen[key])):
            yield check.fail(
                node.name,
                f"{seen['name']} has the {key} {seen[key]}, and {variable} is {wanted}",
                "An account that exists is never altered: correct the variable, or the account by hand",
                observed=str(seen[key]),
                expected=wanted,
            )


def disk(node: InspectedNode) -> Iterator[Finding]:
    rooms = node.seen["disk"]
    # A first environment with CUDA takes 8 GB while it is made, one for the CPU alone 1.5 GB; nothing can be installed
    # or logged on less than half a gigabyte.
    first = (10 if node.request["cluster_gpus"] else 2) * GIGABYTE
    small: dict[tuple[str, str], list[str]] = {}
    for path, room in rooms.items():
        if "why" in room:
            continue
        new = path.startswith(str(node.request["pytorch_root"])) and not room["exists"]
        need = first if new else GIGABYTE // 2
        if room["read_only"]:
            small.setdefault((room["on"], "is mounted read-only"), []).append(path)
        elif room["free"] < need:
            what = f"has {room['free'] / GIGABYTE:.1f} GB free, and {need / GIGABYTE:g} GB are needed"
            small.setdefault((room["on"], what), []).append(path)
        elif room["inodes_free"] is not None and room["inodes_free"] < 1000:
            small.setdefault((room["on"], "has no inodes left"), []).append(path)
    for (on, what), paths in small.items():
        yield DISK_SMALL.fail(
            node.name,
            f"{on}, where {' and '.join(paths)} will be, {what}",
            "Make room there, or choose another place; what fills it is shown by",
            shell("sudo du -xhd1 {on}", on=on),
            observed=what,
        )


def clock(node: InspectedNode) -> Iterator[Finding]:
    seen = node.seen["clock"]
    if seen["synchronised"] is False:
        sources = ", ".join(seen["sources"])
        yield UNSYNCHRONISED.warn(
            node.name,
            f"its clock is not synchronised ({f'{sources} runs' if sources else 'nothing sets it'})",
            "Look at its sources" if sources else "The step baseline sets one up",
            "chronyc -n sources" if "chrony" in sources else "timedatectl timesync-status" if sources else "",
        )


def starting(node: InspectedNode) -> Iterator[Finding]:
    if node.seen["packages"]["cloud_init"] == "error":
        yield CLOUD_INIT_FAILED.warn(
            node.name,
            "cloud-init had errors at the last start, so what it was to set up may be missing",
        )


RULES: tuple[Rule, ...] = (system, python, address, ways, gpus, user, disk, ports, clock, starting)
