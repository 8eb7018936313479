"""Derive findings, with fixes, from the facts of one node."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..nvidia_driver.model import DriverState
from ..nvidia_driver.next_boot import findings
from ..verdict import access
from ..verdict.check import Check, collect
from ..verdict.commands import ping, shell
from ..verdict.finding import Skipped, evidence
from .facts import WSL
from .floors import BELOW, below
from .gpus import gpus
from .training_network import address, ports, ways

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from ..verdict.check import Said
    from ..verdict.finding import Finding
    from .facts import InspectedNode

    Rule = Callable[["InspectedNode"], "Iterable[Finding]"]

DISK_SMALL = Check(
    "node.disk.small",
    seen="sandbox",
    reads="the file systems Muster writes to",
    fires="a file system is read-only, or lacks free inodes or free space (fail). A file system used only for logs"
    " fails below 64 MB and warns below 500 MB",
    fix="Free disk space, or choose another location",
)
UNSYNCHRONISED = Check(
    "time.unsynchronised",
    seen="recording",
    reads="the kernel's clock state (adjtimex)",
    fires="the clock is not synchronized (warn)",
    fix="Check the time servers of the time daemon",
)
UNREACHABLE = Check(
    "node.unreachable",
    seen="sandbox",
    reads="Ansible's connection to the node",
    fires="the node could not be inspected: fail if the node participates in a launch, otherwise unknown",
    fix="Run the command shown to find the reason, or exclude the node (cluster_quarantined, cluster_launch_nodes)",
)
NOTHING_AGAINST = Check(
    "inspect.node",
    seen="stand-in",
    reads="all checks of inspect",
    fires="never; shown as passed for a node without problems",
)
OS_UNSUPPORTED = Check(
    "node.os.unsupported",
    seen="recording",
    reads="/etc/os-release",
    fires="Muster does not support the operating system (fail)",
    fix="Install one of {supported}, or remove the node from the inventory",
)
SYSTEMD_MISSING = Check(
    "node.systemd.missing",
    seen="recording",
    reads="/proc/1/comm",
    fires="process 1 is not systemd (fail)",
    fix="Boot the node with systemd",
)
WSL_HERE = Check(
    "node.wsl",
    seen="stand-in",
    reads="systemd-detect-virt",
    fires="the node runs in WSL (warn): Windows controls the driver, clock, memory and network, and Muster does not"
    " configure them",
    fix="On Windows, install NVIDIA's driver, set networkingMode=mirrored in .wslconfig, and allow the other nodes in"
    " the Hyper-V firewall; or remove the node from the inventory",
)
PYTHON_OLD = Check(
    "node.python.old",
    seen="recording",
    reads="the Python that Ansible uses on the node",
    fires="Python is older than 3.10 (fail)",
    fix="Set ansible_python_interpreter to Python {oldest} or newer",
)
UID_DIFFERS = Check(
    "user.uid.differs",
    seen="recording",
    reads="/etc/passwd",
    fires="the uid of the training user differs from node_baseline_user_uid (fail) or from most nodes (warn)",
    fix="Correct the variable, or change the account manually",
)
GID_DIFFERS = Check(
    "user.gid.differs",
    seen="recording",
    reads="/etc/passwd",
    fires="the gid of the training user differs from node_baseline_user_gid (fail) or from most nodes (warn)",
    fix="Correct the variable, or change the account manually",
)
CLOUD_INIT_FAILED = Check(
    "node.cloud_init.failed",
    seen="recording",
    reads="cloud-init's result file",
    fires="cloud-init reported errors at the last boot (warn)",
    fix="Show the errors with",
    command="cloud-init status --long",
)

OLDEST_PYTHON = (3, 10)
GIGABYTE = 1_000_000_000


def judge(node: InspectedNode) -> list[Finding]:
    """Return the findings about one node, or a single `pass` if the node has no problems."""
    if node.facts is None:
        what, fix = access.explain(node.why)
        if what:
            return [UNREACHABLE.unknown(node.name, f"the node was not inspected: {what}", fix)]
        why = f"the node was not inspected: {node.why}"
        return [UNREACHABLE.unknown(node.name, why, "Check the connection", ping(node.name))]
    found = [finding for rule in RULES for finding in rule(node)]
    if not any(finding.status in ("fail", "warn") for finding in found):
        found.append(NOTHING_AGAINST.passed(node.name, "no problems found"))
    return found


def skips(node: InspectedNode) -> list[Skipped]:
    """Return the facts that could not be collected on the node, with reasons. Skipped checks are not included."""
    if node.facts is None:
        return [Skipped(id="inspect", node=node.name, why=node.why)]
    skipped = [Skipped(id=f"inspect.{fact}", node=node.name, why=why) for fact, why in node.facts["skipped"].items()]
    return [*skipped, *(skip for skip in collect(advice(node)).skipped if skip["id"] == BELOW.id)]


def system(node: InspectedNode) -> Iterator[Finding]:
    seen = node.seen["system"]
    if not seen["id"]:
        return
    if seen["version"] not in node.platforms.get(seen["id"], []):
        supported = ", ".join(f"{name.capitalize()} {' '.join(versions)}" for name, versions in node.platforms.items())
        yield OS_UNSUPPORTED.fail(
            node.name,
            f"Muster does not support {seen['name'] or seen['id']}",
            named={"supported": supported},
            observed=f"{seen['id']} {seen['version']}",
            expected=supported,
            evidence=evidence("/etc/os-release", f"ID={seen['id']} VERSION_ID={seen['version']}"),
        )
    under_windows = seen["virtual"] == WSL
    if under_windows:
        yield WSL_HERE.warn(
            node.name,
            "the node runs in WSL: Windows controls the driver, clock, memory and network, and Muster does not"
            " configure them",
            observed=WSL,
            expected="a machine that boots Linux",
            evidence=evidence("systemd-detect-virt", WSL),
        )
    if seen["init"] != "systemd":
        boot = "Add systemd=true below [boot] in /etc/wsl.conf, then run on Windows: wsl --shutdown"
        yield SYSTEMD_MISSING.fail(
            node.name,
            f"process 1 is {seen['init'] or 'unknown'}, but launches require systemd",
            boot if under_windows else None,
            evidence=evidence("/proc/1/comm", seen["init"]),
        )


def python(node: InspectedNode) -> Iterator[Finding]:
    seen = node.seen["system"]
    if tuple(int(number) for number in seen["python"].split(".")[:2]) < OLDEST_PYTHON:
        oldest = ".".join(map(str, OLDEST_PYTHON))
        yield PYTHON_OLD.fail(
            node.name,
            f"{seen['python_path']} is Python {seen['python']}, which is older than {oldest}",
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
                f"{seen['name']} has the {key} {seen[key]}, but {variable} is {wanted}",
                "Muster never changes an existing account: correct the variable, or change the account manually",
                observed=str(seen[key]),
                expected=wanted,
            )


def disk(node: InspectedNode) -> Iterator[Finding]:
    rooms = node.seen["disk"]
    # Creating the first environment takes 8 GB with CUDA and 1.5 GB without. Half a gigabyte is the minimum for
    # installing and logging.
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
            what = f"has {room['free'] / GIGABYTE:.1f} GB free, but {need / GIGABYTE:g} GB are required"
            small.setdefault((room["on"], what), []).append(path)
        elif room["inodes_free"] is not None and room["inodes_free"] < 1000:
            small.setdefault((room["on"], "has no free inodes"), []).append(path)
    for (on, what), paths in small.items():
        yield DISK_SMALL.fail(
            node.name,
            f"{on}, the location of {' and '.join(paths)}, {what}",
            "Free disk space, or choose another location; list the largest folders with",
            shell("sudo du -xhd1 {on}", on=on),
            observed=what,
        )


def clock(node: InspectedNode) -> Iterator[Finding]:
    seen = node.seen["clock"]
    if seen["synchronised"] is False:
        sources = ", ".join(seen["sources"])
        yield UNSYNCHRONISED.warn(
            node.name,
            f"the clock is not synchronized ({f'{sources} runs' if sources else 'no time daemon runs'})",
            "Check the time servers with" if sources else "Run the step baseline, which sets up a time daemon",
            "chronyc -n sources" if "chrony" in sources else "timedatectl timesync-status" if sources else "",
        )


def starting(node: InspectedNode) -> Iterator[Finding]:
    if node.seen["packages"]["cloud_init"] == "error":
        yield CLOUD_INIT_FAILED.warn(
            node.name,
            "cloud-init reported errors at the last boot, so the node might be set up incompletely",
        )


def boot_and_versions(node: InspectedNode) -> Iterator[Finding]:
    yield from collect(advice(node)).findings


def advice(node: InspectedNode) -> Iterator[Said]:
    """Judge the next boot, and compare the versions on the node with the security floors."""
    seen = node.seen
    driver = DriverState(seen["stack"], seen["gpus"], seen["secure_boot"], seen["key_enrolled"])
    yield from findings(node.name, driver.next_boot)
    versions = {name: package["version"] for name, package in driver.packages.items()}
    installed = {**versions, "driver": driver.installed}
    yield from below(node.name, node.floors, installed, seen["stack"]["running"], seen["rdma"]["firmware"])


RULES: tuple[Rule, ...] = (system, python, address, ways, gpus, boot_and_versions, user, disk, ports, clock, starting)
