"""May this node take part in the launch: findings from what `prepare` saw on it (muster_node/launch/facts.py)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..members import quarantine
from ..verdict.check import Check
from ..verdict.commands import again, ping, playbook
from ..verdict.finding import evidence
from . import caches, launchers, manager
from . import plan as planning
from .occupied import describe, launches_on, on_seats, taken, unknown

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from ..verdict.finding import Finding
    from .manager import Whose
    from .messages import Facts, FileFacts, Identity
    from .planned import LaunchPlan, PlannedNode

BASELINE = playbook("site.yml", tags="baseline")
PYTORCH = playbook("site.yml", tags="pytorch")

READY = Check(
    "launch.preflight",
    seen="stand-in",
    reads="everything below, on each participant, right before a launch",
    fires="never: it is the pass of a node on which nothing stands against the launch",
)
PRIVILEGE = Check(
    "launch.privilege",
    seen="stand-in",
    reads="the node, once more right before the launch",
    fires="the launch is not started as root, which making a unit needs (fail)",
    fix="Set ansible_become: true for the node",
)
SYSTEMD = Check(
    "launch.systemd",
    seen="stand-in",
    reads="/run/systemd/system",
    fires="systemd does not run (fail)",
    fix="Boot the node with systemd",
)
PYTHON = Check(
    "launch.python",
    seen="stand-in",
    reads="the Python that Ansible uses there",
    fires="it is older than 3.10 (fail)",
    fix="Set ansible_python_interpreter to a newer one",
)
USER = Check(
    "launch.user",
    seen="stand-in",
    reads="the account of the training user (cluster_user)",
    fires="it does not exist, or is root (fail)",
    fix=f"Make it with {BASELINE}",
)
TORCHRUN = Check(
    "launch.torchrun",
    seen="stand-in",
    reads="the file cluster_torchrun, as the training user",
    fires="it is not there, or may not be executed (fail)",
    fix=f"Build the environment with {PYTORCH}",
)
COMMAND = Check(
    "launch.command",
    seen="stand-in",
    reads="the first word of launch_command, in the environment's bin and then in PATH, as the training user",
    fires="no such program is there, or it may not be executed (fail)",
    fix=f"Add its package to pytorch_packages and run {PYTORCH}, or copy it to the same path on every node",
)
SCRIPT = Check(
    "launch.script",
    seen="stand-in",
    reads="the file launch_script, as the training user",
    fires="it is not there, or may not be read (fail)",
    fix="Copy it to the same path on every node",
)
CHDIR = Check(
    "launch.chdir",
    seen="stand-in",
    reads="the folder launch_chdir, as the training user",
    fires="it is not there, or may not be entered (fail)",
    fix="Copy it to the same path on every node",
)
DISK = Check(
    "launch.disk",
    seen="sandbox",
    reads="the file system of cluster_run_root",
    fires="it is read-only, has no inodes, or less room than the logs need (fail)",
    fix="Free some, or set cluster_run_root elsewhere",
)
FOLDERS = Check(
    "launch.folders",
    seen="stand-in",
    reads="owners and modes of cluster_run_root, cluster_work_root and every folder above them, and where links lead",
    fires="anybody but root may change one of them: root would write where they choose (fail)",
    fix="Give it to root, writable by nobody else, or set the option to a folder that is so",
)
ADDRESS = Check(
    "launch.address",
    seen="stand-in",
    reads="the addresses of the interfaces",
    fires="none is cluster_address (fail)",
    fix="Set cluster_address to an address of the node",
)
INTERFACE = Check(
    "launch.interface",
    seen="stand-in",
    reads="the interface that has cluster_address",
    fires="it is not cluster_interface (fail)",
    fix="Set cluster_interface to it, or leave it empty",
)
GPUS = Check(
    "launch.gpus",
    seen="stand-in",
    reads="/dev/nvidia0 and so on",
    fires="under NCCL there are fewer than ranks (fail); under Gloo there are some, which are not used (warn)",
    fix="Look with nvidia-smi, or correct cluster_gpus",
)
PORT = Check(
    "launch.port",
    seen="sandbox",
    reads="an attempt to listen on cluster_master_port on the head node, and /proc/net/tcp",
    fires="a process that is no launch's holds the port: it is named with its owner (fail)",
    fix="Wait for it or stop it, or take another cluster_master_port",
)
UNREACHABLE = Check(
    "launch.unreachable",
    seen="sandbox",
    reads="the connection of Ansible to the node",
    fires="a participant cannot be reached (fail)",
    fix="Fix it, or leave the node out (cluster_launch_nodes)",
)
LOOK = Check(
    "launch.look",
    seen="stand-in",
    reads="what the program on the node answers",
    fires="it cannot be looked at although it is reached (fail)",
    fix="Fix what it says, and run again",
)

PROJECT = Check(
    "launch.project",
    seen="sandbox",
    reads="the files of launch_project on each participant, by their sha256, and the way from node to node",
    fires="a node does not get all of it (fail)",
    fix="Fix that, then launch again: what has come stays, and only the rest is sent",
)

PYTHON_WANTED = (3, 10)
LAST_PORT = 65535


@dataclass
class Prepared:
    """plan: with what only the nodes know filled in, once nothing is refused. readers: who looks on each node.

    whose: whose launch it is, once that is known. notes: sentences on what a node cannot hold it to.
    """

    plan: LaunchPlan
    readers: dict[str, Identity] = field(default_factory=dict)
    reached: set[str] = field(default_factory=set)
    findings: list[Finding] = field(default_factory=list)
    whose: Whose | None = None
    notes: list[str] = field(default_factory=list)

    @property
    def refused(self) -> bool:
        return any(finding.status in ("fail", "unknown") for finding in self.findings)


@dataclass(frozen=True)
class Requested:
    """What of a launch the nodes are judged by; backend: gloo or nccl. begun_here: launches that are known here.

    launcher: as in the plan. in_image: whether its programs are those of a container image.
    """

    user: str
    backend: str
    min_free_bytes: int
    script_is_sent: bool
    shared: bool = False
    begun_here: Collection[str] = ()
    users_root: str = ""  # in somebody's own launch, the folder of their launches
    launcher: str = launchers.TORCHRUN.name
    in_image: bool = False


def judge(entry: PlannedNode, facts: Facts, request: Requested) -> list[Finding]:
    """Every reason against a start on this node, at once; a single `pass` when there is none.

    entry: the node's part of the plan.
    """
    found = [
        *quarantine.refused(entry.node, facts.get("quarantine")),
        *privilege(entry, facts),
        *system(entry, facts),
        *user(entry, facts, request),
        *programs(entry, facts, request),
        *disk(entry, facts, request),
        *folders(entry, facts),
        *interface(entry, facts),
        *gpus(entry, facts, request),
        *port(entry, facts, request),
        *beats(entry, facts, request),
        *others(entry, facts, request),
        *manager.own(entry, facts, planning.seats(entry, facts, request.backend), request.users_root),
        *caches.judge(entry.node, facts.get("caches", {})),
    ]
    if any(finding.status == "fail" for finding in found):
        return found
    return [*found, READY.passed(entry.node, "ready to launch")]


def not_looked_at(node: str, why: str, *, reachable: bool, user: str = "") -> Finding:
    """Nothing is known of the node, which may not start then. user: who logs in there, and is no launch user."""
    if reachable:
        fix = f"Fix that, or have an administrator name {user} in launch_users" if user else "Fix that"
        return LOOK.fail(node, f"could not be looked at: {why}", fix=f"{fix}, then run again")
    return UNREACHABLE.fail(
        node,
        f"cannot be reached: {why}",
        fix="Fix it, or leave it out of cluster_launch_nodes. Look why with",
        command=ping(node),
    )


def without_project(failures: Mapping[str, str]) -> list[Finding]:
    """failures: why a node does not have what was sent, by node."""
    return [PROJECT.fail(node, f"it does not have the project: {why}") for node, why in failures.items()]


def privilege(entry: PlannedNode, facts: Facts) -> list[Finding]:
    if facts["uid"] == 0 or facts["own"]:
        return []
    text = "the launch is started as root, which needs sudo"
    return [PRIVILEGE.fail(entry.node, text, fix="Set ansible_become: true for this node")]


def system(entry: PlannedNode, facts: Facts) -> list[Finding]:
    found = []
    if not facts["systemd"]:
        fix = "A launch is a systemd unit: boot the node with systemd"
        found.append(SYSTEMD.fail(entry.node, "systemd does not run here", fix=fix))
    if tuple(facts["python"][:2]) < PYTHON_WANTED:
        seen = ".".join(str(part) for part in facts["python"])
        fix = "Python 3.10 or newer is needed: set ansible_python_interpreter"
        found.append(PYTHON.fail(entry.node, f"its Python is {seen}", fix=fix))
    return found


def user(entry: PlannedNode, facts: Facts, request: Requested) -> list[Finding]:
    if facts["user"] is None:
        text = f"the training user {request.user} does not exist"
        return [USER.fail(entry.node, text, fix="Make it with", command=BASELINE)]
    if facts["user"]["uid"] == 0:
        text = f"{request.user} is root; jobs run unprivileged"
        return [USER.fail(entry.node, text, fix="Set cluster_user to an ordinary user")]
    return []


def programs(entry: PlannedNode, facts: Facts, request: Requested) -> list[Finding]:
    node, found = entry.node, []
    executable = facts["executable"]
    brought = request.launcher != launchers.TORCHRUN.name
    if request.in_image:
        pass  # a container says what it has (image.judge_versions)
    elif not executable["exists"] and brought:
        found.append(not_there(entry, executable["path"]))
    elif not executable["exists"]:
        text = f"{executable['path']} is not there"
        found.append(TORCHRUN.fail(node, text, fix="Build the environment with", command=PYTORCH))
    elif facts["user"] and not executable["usable"]:
        check = COMMAND if brought else TORCHRUN
        text = f"{request.user} may not execute {executable['path']}"
        found.append(check.fail(node, text, fix="Make it readable and executable"))
    script = None if request.script_is_sent else facts["script"]
    checks: list[tuple[Check, FileFacts | None, str]] = [(SCRIPT, script, "read"), (CHDIR, facts["chdir"], "enter")]
    for check, seen, verb in checks:
        if seen is None:
            continue
        if not seen["exists"]:
            found.append(check.fail(node, f"{seen['path']} is not there"))
        elif facts["user"] and not seen["usable"]:
            text = f"{request.user} may not {verb} {seen['path']}"
            found.append(check.fail(node, text, fix=f"Let {request.user} {verb} it"))
    return found


def not_there(entry: PlannedNode, program: str) -> Finding:
    """The program of a command that somebody brings is missing."""
    if "/" in program:
        return COMMAND.fail(entry.node, f"{program} is not there", fix="Copy it to the same path on every node")
    text = f"{program} is not there, neither in {entry.environment}/bin nor in PATH"
    fix = "Give its whole path, or add its package to pytorch_packages and build the environment with"
    return COMMAND.fail(entry.node, text, fix=fix, command=PYTORCH)


def disk(entry: PlannedNode, facts: Facts, request: Requested) -> list[Finding]:
    node, seen = entry.node, facts["disk"]
    if seen["read_only"]:
        return [DISK.fail(node, f"{seen['path']} is mounted read-only", fix="Set cluster_run_root to a writable place")]
    if seen["inodes_free"] == 0:
        return [DISK.fail(node, f"{seen['path']} has no free inodes")]
    if seen["free"] < request.min_free_bytes:
        return [
            DISK.fail(
                node,
                f"{seen['path']}, where logs go, has {seen['free'] / 1e6:.0f} MB free",
                observed=f"{seen['free']} bytes free",
                expected=f"{request.min_free_bytes} bytes",
            )
        ]
    return []


def folders(entry: PlannedNode, facts: Facts) -> list[Finding]:
    who = "the launch" if facts["own"] else "root"
    return [FOLDERS.fail(entry.node, f"{who} would write where others may: {each}") for each in facts["foreign"]]


def interface(entry: PlannedNode, facts: Facts) -> list[Finding]:
    address, carrier = entry.address, facts["interface_of_address"]
    if carrier is None:
        return [
            ADDRESS.fail(
                entry.node,
                f"no interface here carries {address}",
                fix="Set cluster_address to an address of this node",
                observed=", ".join(facts["interfaces"]),
                expected=address,
            )
        ]
    if entry.interface and entry.interface != carrier:
        return [
            INTERFACE.fail(
                entry.node,
                f"{address} is on {carrier}, not on {entry.interface}",
                fix=f"Set cluster_interface to {carrier}, or leave it empty",
                observed=carrier,
                expected=entry.interface,
            )
        ]
    return []


def gpus(entry: PlannedNode, facts: Facts, request: Requested) -> list[Finding]:
    node, seen = entry.node, facts["gpus"]
    if request.backend == "nccl" and seen < entry.nproc:
        text = f"the driver shows {seen} GPUs for {entry.nproc} ranks"
        return [GPUS.fail(node, text, observed=str(seen), expected=str(entry.nproc))]
    if request.backend == "gloo" and seen > 0:
        text = f"it has {seen} GPUs, which this launch on CPUs does not use"
        return [GPUS.warn(node, text, fix=f"Set cluster_gpus: {seen} for it")]
    return []


def beats(entry: PlannedNode, facts: Facts, request: Requested) -> list[Finding]:
    """The port on which the head node of a detached launch hears of the others. One that another launch holds is waited
    for with what else that launch has."""
    seen = facts.get("beat_port")
    if seen is None or seen["free"] or (launches_on(seen) and not request.shared):
        return []
    holders = "; ".join(describe(holder) for holder in seen["holders"]) or "a process that cannot be seen from here"
    text = f"port {seen['port']}, on which the nodes of a detached launch hear of each other, is held by {holders}"
    fix = f"Wait for it or stop it, or take another cluster_master_port: this one is {planning.PORTS} beside it"
    return [PORT.fail(entry.node, text, fix=fix, evidence=evidence("/proc/net/tcp", holders))]


def port(entry: PlannedNode, facts: Facts, request: Requested) -> list[Finding]:
    seen = facts["port"]
    if seen is None or seen["free"] or (launches_on(seen) and not request.shared):
        return []
    holders = "; ".join(describe(holder) for holder in seen["holders"]) or "a process that cannot be seen from here"
    return [
        PORT.fail(
            entry.node,
            f"port {seen['port']} is held by {holders}",
            fix="Wait for it or stop it, or take another port",
            command=again(cluster_master_port=seen["port"] + (1 if seen["port"] < LAST_PORT else -1)),
            observed=holders,
            expected=f"port {seen['port']} free on the head node",
            evidence=evidence("/proc/net/tcp", holders),
        )
    ]


def others(entry: PlannedNode, facts: Facts, request: Requested) -> list[Finding]:
    """Whoever has what this launch needs for itself alone. In the port of a launch, a shared one has no part."""
    node, seats = entry.node, on_seats(planning.seats(entry, facts, request.backend), facts["occupied"])
    ports = {**launches_on(facts["port"]), **launches_on(facts.get("beat_port"))}
    held = seats if request.shared else {**seats, **ports}
    found = taken(node, held, shared=request.shared, begun_here=request.begun_here)
    return [*found, *unknown(node, facts["occupied"])]
