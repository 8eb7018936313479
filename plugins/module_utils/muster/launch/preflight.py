"""Check whether a node can take part in a launch, from its answer to `prepare` (muster_node/launch/facts.py)."""

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
from .slurm_jobs import on_the_node

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
    reads="all checks below, on each participating node, directly before a launch",
    fires="never; the check passes for a node on which nothing blocks the launch",
)
PRIVILEGE = Check(
    "launch.privilege",
    seen="stand-in",
    reads="the uid of the module on the node, directly before the launch",
    fires="the module does not run as root, which is required to create a systemd unit (fail)",
    fix="Set ansible_become: true for the node",
)
SYSTEMD = Check(
    "launch.systemd",
    seen="stand-in",
    reads="/run/systemd/system",
    fires="systemd is not running (fail)",
    fix="Boot the node with systemd",
)
PYTHON = Check(
    "launch.python",
    seen="stand-in",
    reads="the Python that Ansible uses on the node",
    fires="this Python is older than 3.10 (fail)",
    fix="Set ansible_python_interpreter to a newer Python",
)
USER = Check(
    "launch.user",
    seen="stand-in",
    reads="the account of the training user (cluster_user)",
    fires="the account does not exist, or is root (fail)",
    fix=f"Create it with {BASELINE}",
)
TORCHRUN = Check(
    "launch.torchrun",
    seen="stand-in",
    reads="the file cluster_torchrun, as the training user",
    fires="the file does not exist, or is not executable (fail)",
    fix=f"Build the environment with {PYTORCH}",
)
COMMAND = Check(
    "launch.command",
    seen="stand-in",
    reads="the first word of launch_command, which the training user's PATH and the environment must contain",
    fires="the program does not exist, or is not executable (fail)",
    fix=f"Add its package to pytorch_packages and run {PYTORCH}, or copy the program to the same path on every node",
)
SCRIPT = Check(
    "launch.script",
    seen="stand-in",
    reads="the file launch_script, as the training user",
    fires="the file does not exist, or is not readable (fail)",
    fix="Copy it to the same path on every node",
)
CHDIR = Check(
    "launch.chdir",
    seen="stand-in",
    reads="the folder launch_chdir, as the training user",
    fires="the folder does not exist, or the user has no search permission (fail)",
    fix="Copy it to the same path on every node",
)
DISK = Check(
    "launch.disk",
    seen="sandbox",
    reads="the file system of cluster_run_root",
    fires="the file system is read-only, has no free inodes, or has less free space than the logs need (fail)",
    fix="Free some space, or set cluster_run_root to another disk",
)
FOLDERS = Check(
    "launch.folders",
    seen="stand-in",
    reads="owners and modes of cluster_run_root, cluster_work_root, all their parent folders and the targets of links",
    fires="a user other than root can change one of them, and could redirect what root writes (fail)",
    fix="Allow only root to own and write to these folders, or set the option to another folder",
)
ADDRESS = Check(
    "launch.address",
    seen="stand-in",
    reads="the addresses of the interfaces",
    fires="no interface has cluster_address (fail)",
    fix="Set cluster_address to an address of the node",
)
INTERFACE = Check(
    "launch.interface",
    seen="stand-in",
    reads="the interface that has cluster_address",
    fires="this interface is not cluster_interface (fail)",
    fix="Set cluster_interface to that interface, or leave it empty",
)
GPUS = Check(
    "launch.gpus",
    seen="stand-in",
    reads="/dev/nvidia0 and further GPU devices",
    fires="the node has fewer GPUs than ranks with NCCL (fail); the node has GPUs, but the backend is Gloo (warn)",
    fix="Check with nvidia-smi, or correct cluster_gpus",
)
PORT = Check(
    "launch.port",
    seen="sandbox",
    reads="an attempt to listen on cluster_master_port on the head node, and /proc/net/tcp",
    fires="a process outside of launches holds the port; the process and its owner are named (fail)",
    fix="Wait for the process to end, stop it, or set another cluster_master_port",
)
UNREACHABLE = Check(
    "launch.unreachable",
    seen="sandbox",
    reads="the connection of Ansible to the node",
    fires="a participant is unreachable (fail)",
    fix="Fix the connection, or leave the node out (cluster_launch_nodes)",
)
LOOK = Check(
    "launch.look",
    seen="stand-in",
    reads="the response of Muster's program on the node",
    fires="the node is reachable, but the check failed (fail)",
    fix="Fix the reported error, and run again",
)

PROJECT = Check(
    "launch.project",
    seen="sandbox",
    reads="the SHA-256 of each launch_project file on each participating node, and the transfers between nodes",
    fires="a node did not receive the complete project (fail)",
    fix="Fix the error, then launch again; only missing files are copied",
)

PYTHON_WANTED = (3, 10)
LAST_PORT = 65535


@dataclass
class Prepared:
    """The result of the preflight checks. plan: the plan with the values from the nodes, if no check failed. readers:
    the account that reads the launch's state on each node.

    whose: type of the launch; None until known. notes: sentences about limits that a node cannot enforce.
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
    """The properties of a launch that the checks need. backend: gloo or nccl. begun_here: launches started by this
    controller.

    launcher: name of the launcher, as in the plan. in_image: whether the launched programs are in a container image.
    slurm_job: ID of the job of Slurm in whose allocation the controller runs; "" for none.
    """

    user: str
    backend: str
    min_free_bytes: int
    script_is_sent: bool
    shared: bool = False
    begun_here: Collection[str] = ()
    users_root: str = ""  # in a user launch, the folder of the user's launches
    launcher: str = launchers.TORCHRUN.name
    in_image: bool = False
    slurm_job: str = ""


def judge(entry: PlannedNode, facts: Facts, request: Requested) -> list[Finding]:
    """Return all problems that block a start on this node, or a single `pass`.

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
    """Return the finding for a node that was not checked.

    user: login account, if the cause is that it is not a launch user.
    """
    if reachable:
        fix = f"Fix the error, or have an administrator add {user} to launch_users" if user else "Fix the error"
        return LOOK.fail(node, f"could not be checked: {why}", fix=f"{fix}, then run again")
    return UNREACHABLE.fail(
        node,
        f"unreachable: {why}",
        fix="Fix the connection, or leave the node out of cluster_launch_nodes. Check the connection with",
        command=ping(node),
    )


def without_project(failures: Mapping[str, str]) -> list[Finding]:
    """Return the findings for nodes that did not receive the project. failures: the reason for each node."""
    return [PROJECT.fail(node, f"the project was not copied: {why}") for node, why in failures.items()]


def privilege(entry: PlannedNode, facts: Facts) -> list[Finding]:
    if facts["uid"] == 0 or facts["own"]:
        return []
    text = "the module does not run as root, which an administrator launch requires"
    return [PRIVILEGE.fail(entry.node, text, fix="Set ansible_become: true for this node")]


def system(entry: PlannedNode, facts: Facts) -> list[Finding]:
    found = []
    if not facts["systemd"]:
        fix = "Boot the node with systemd; every launch runs as a systemd unit"
        found.append(SYSTEMD.fail(entry.node, "systemd is not running", fix=fix))
    if tuple(facts["python"][:2]) < PYTHON_WANTED:
        seen = ".".join(str(part) for part in facts["python"])
        fix = "Set ansible_python_interpreter to Python 3.10 or newer"
        found.append(PYTHON.fail(entry.node, f"Python {seen} is too old", fix=fix))
    return found


def user(entry: PlannedNode, facts: Facts, request: Requested) -> list[Finding]:
    if facts["user"] is None:
        text = f"the training user {request.user} does not exist"
        return [USER.fail(entry.node, text, fix="Create it with", command=BASELINE)]
    if facts["user"]["uid"] == 0:
        text = f"the training user {request.user} is root, but launches must run unprivileged"
        return [USER.fail(entry.node, text, fix="Set cluster_user to an ordinary account")]
    return []


def programs(entry: PlannedNode, facts: Facts, request: Requested) -> list[Finding]:
    node, found = entry.node, []
    executable = facts["executable"]
    brought = request.launcher != launchers.TORCHRUN.name
    if request.in_image:
        pass  # checked in the container (image.judge_versions)
    elif not executable["exists"] and brought:
        found.append(not_there(entry, executable["path"]))
    elif not executable["exists"]:
        text = f"{executable['path']} does not exist"
        own = request.users_root and executable["path"].startswith(f"{request.users_root}/")
        command = playbook("playbooks/environment.yml") if own else PYTORCH
        found.append(TORCHRUN.fail(node, text, fix="Build the environment with", command=command))
    elif facts["user"] and not executable["usable"]:
        check = COMMAND if brought else TORCHRUN
        text = f"{request.user} has no permission to execute {executable['path']}"
        found.append(check.fail(node, text, fix="Make the file readable and executable for this user"))
    script = None if request.script_is_sent else facts["script"]
    checks: list[tuple[Check, FileFacts | None, str]] = [(SCRIPT, script, "read"), (CHDIR, facts["chdir"], "enter")]
    for check, seen, verb in checks:
        if seen is None:
            continue
        if not seen["exists"]:
            found.append(check.fail(node, f"{seen['path']} does not exist"))
        elif facts["user"] and not seen["usable"]:
            text = f"{request.user} has no permission to {verb} {seen['path']}"
            found.append(check.fail(node, text, fix=f"Allow {request.user} to {verb} it"))
    return found


def not_there(entry: PlannedNode, program: str) -> Finding:
    """Return the finding for a launch_command whose program is missing on the node."""
    if "/" in program:
        return COMMAND.fail(entry.node, f"{program} does not exist", fix="Copy it to the same path on every node")
    text = f"{program} was found neither in {entry.environment}/bin nor in PATH"
    fix = "Use its absolute path, or add its package to pytorch_packages and build the environment with"
    return COMMAND.fail(entry.node, text, fix=fix, command=PYTORCH)


def disk(entry: PlannedNode, facts: Facts, request: Requested) -> list[Finding]:
    node, seen = entry.node, facts["disk"]
    if seen["read_only"]:
        return [
            DISK.fail(node, f"{seen['path']} is mounted read-only", fix="Set cluster_run_root to a writable folder")
        ]
    if seen["inodes_free"] == 0:
        return [DISK.fail(node, f"{seen['path']} has no free inodes")]
    if seen["free"] < request.min_free_bytes:
        return [
            DISK.fail(
                node,
                f"{seen['path']}, the folder for logs, has only {seen['free'] / 1e6:.0f} MB free",
                observed=f"{seen['free']} bytes free",
                expected=f"{request.min_free_bytes} bytes",
            )
        ]
    return []


def folders(entry: PlannedNode, facts: Facts) -> list[Finding]:
    text = f"other users can change a folder that {'the launch' if facts['own'] else 'root'} writes to"
    return [FOLDERS.fail(entry.node, f"{text}: {each}") for each in facts["foreign"]]


def interface(entry: PlannedNode, facts: Facts) -> list[Finding]:
    address, carrier = entry.address, facts["interface_of_address"]
    if carrier is None:
        return [
            ADDRESS.fail(
                entry.node,
                f"no interface has the address {address}",
                fix="Set cluster_address to an address of this node",
                observed=", ".join(facts["interfaces"]),
                expected=address,
            )
        ]
    if entry.interface and entry.interface != carrier:
        return [
            INTERFACE.fail(
                entry.node,
                f"{address} is assigned to {carrier}, not to {entry.interface}",
                fix=f"Set cluster_interface to {carrier}, or leave it empty",
                observed=carrier,
                expected=entry.interface,
            )
        ]
    return []


def gpus(entry: PlannedNode, facts: Facts, request: Requested) -> list[Finding]:
    node, seen = entry.node, facts["gpus"]
    if request.backend == "nccl" and seen < entry.nproc:
        text = f"the node has fewer GPUs ({seen}) than ranks ({entry.nproc})"
        return [GPUS.fail(node, text, observed=str(seen), expected=str(entry.nproc))]
    if request.backend == "gloo" and seen > 0:
        text = f"this launch runs on CPUs, so the node's GPUs ({seen}) stay idle"
        return [GPUS.warn(node, text, fix=f"Set cluster_gpus: {seen} for this node")]
    return []


def beats(entry: PlannedNode, facts: Facts, request: Requested) -> list[Finding]:
    """Check the heartbeat port on the head node of a detached launch.

    A port that another launch uses is reported together with that launch's other resources.
    """
    seen = facts.get("beat_port")
    if seen is None or seen["free"] or (launches_on(seen) and not request.shared):
        return []
    holders = "; ".join(describe(holder) for holder in seen["holders"]) or "a process that Muster cannot see"
    text = f"port {seen['port']} (for heartbeats of a detached launch) is held by {holders}"
    fix = "Wait for the process to end, stop it, or change cluster_master_port (this port is derived from it)"
    return [PORT.fail(entry.node, text, fix=fix, evidence=evidence("/proc/net/tcp", holders))]


def port(entry: PlannedNode, facts: Facts, request: Requested) -> list[Finding]:
    seen = facts["port"]
    if seen is None or seen["free"] or (launches_on(seen) and not request.shared):
        return []
    holders = "; ".join(describe(holder) for holder in seen["holders"]) or "a process that Muster cannot see"
    return [
        PORT.fail(
            entry.node,
            f"port {seen['port']} is held by {holders}",
            fix="Wait for the process to end, stop it, or use another port",
            command=again(cluster_master_port=seen["port"] + (1 if seen["port"] < LAST_PORT else -1)),
            observed=holders,
            expected=f"port {seen['port']} free on the head node",
            evidence=evidence("/proc/net/tcp", holders),
        )
    ]


def others(entry: PlannedNode, facts: Facts, request: Requested) -> list[Finding]:
    """Return the findings about resources that are in use.

    Even a shared launch must not use the port of another launch.
    """
    node, seats = entry.node, on_seats(planning.seats(entry, facts, request.backend), facts["occupied"])
    ports = {**launches_on(facts["port"]), **launches_on(facts.get("beat_port"))}
    held = seats if request.shared else {**seats, **ports}
    found = taken(node, held, shared=request.shared, begun_here=request.begun_here)
    jobs = on_the_node(
        node,
        facts.get("slurm"),
        gpus=request.backend == "nccl",
        own_job=request.slurm_job,
        shared=request.shared,
    )
    return [*found, *unknown(node, facts["occupied"]), *jobs]
