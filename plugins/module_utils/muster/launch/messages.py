"""Messages between the controller and the program on a node (muster_node/programs/launch.py), grouped by verb.

Times are in seconds. Timestamps of a node come from the node's clock.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any, TypedDict

from ..verdict.printable import ForeignText
from ..verdict.reading import Count, Flag, Limit, Word

if TYPE_CHECKING:
    from .data import DataFacts
    from .reservation import Holder, Occupied
    from .slurm_jobs import SlurmJobs


ACCOUNT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@-]{0,63}")
MOST_PART = 8 * 1024 * 1024  # characters of one part of a log
MOST_RANKS = 4096  # and parts of their logs, of one node

Amount = Annotated[int, Limit(least=0, below=2**64)]  # some file servers report nearly this many bytes
Number = Annotated[float, Limit(least=-(2**53), below=2**53)]
Sentence = Annotated[ForeignText, Limit(most=800)]
Written = Annotated[str, Limit(most=256 * 1024, raw=True)]  # by a rank, into its error file


class Identity(TypedDict):
    """identity: the account with which the controller logs in. name: account name; used in paths. launch_user: whether
    the account is a launch user. boot: as boot_id of a NodeRecord.
    """

    uid: Count
    gid: Count
    name: Annotated[str, Limit(pattern=ACCOUNT, instead="")]
    launch_user: Flag
    boot: Word


# ---------------------------------------------------------------- prepare


class PrepareRequest(TypedDict):
    """Request of `prepare`: what the node checks before a start.

    script, chdir, work_root: paths to check; None to skip the check. port: set only for the head node. gpus: whether
    the launch uses GPUs. path: folders in which an executable without a path is searched, in the format of PATH.
    environment: a folder whose links the node resolves. caches: cache folders by source. beat_port: heartbeat port; set
    only for the head node of a detached launch. data: paths whose content is compared between nodes.
    """

    user: str
    executable: str
    script: str | None
    chdir: str | None
    run_root: str
    work_root: str | None
    address: str
    port: int | None
    gpus: bool
    path: str
    environment: str
    caches: dict[str, str]
    beat_port: int | None
    data: list[str]


class UserFacts(TypedDict):
    uid: int
    gid: int
    home: str


class FileFacts(TypedDict):
    """A file or folder. usable: whether the training user has the access that the launch needs."""

    path: str
    exists: bool
    usable: bool


class CacheFacts(TypedDict):
    """A cache folder. type: the type of its file system; "" if unknown."""

    path: str
    type: str


class DiskFacts(TypedDict):
    """A file system.

    path: the nearest existing folder. free, total: bytes. inodes_free: None if the file system has no inode limit.
    """

    path: Annotated[str, Limit(most=4096, instead="")]
    free: Amount
    total: Amount
    inodes_free: Annotated[int | None, Limit(least=0, instead=None)]
    read_only: Flag


class ProcessFacts(TypedDict):
    """A process. pid: None if the process is not visible. Texts are empty if unknown."""

    pid: Annotated[int | None, Limit(least=0, instead=None)]
    command: Word
    user: Word
    unit: Word


NOBODY: ProcessFacts = {"pid": None, "command": "", "user": "", "unit": ""}


class PortFacts(TypedDict):
    """A port. holders: the processes that listen on the port or use it as the local port of a connection."""

    port: int
    free: bool
    holders: list[Holder]


class OwnFacts(TypedDict):
    """The systemd instance of a launch user.

    manager_why: why the instance does not respond; "" if it does. lingers: whether it keeps running without a login.
    group_is_new: whether it was started before the user joined the group, so that its units cannot access GPU slots.

    seats: slots that the user can lock. limits: maximum memlock (bytes) and nofile of its units; None for no limit.
    not_held: limits that the kernel does not enforce for its units: "memory" or "pids".
    """

    manager_why: str
    lingers: bool
    group_is_new: bool
    seats: list[str]
    limits: dict[str, int | None]
    not_held: list[str]


class Facts(TypedDict):
    """Answer to `prepare`: the state of the node before a start.

    user, interface_of_address: None if they do not exist. foreign: sentences about launch folders that users other than
    root can change. own: None in an administrator launch. quarantine: the node's copy of its quarantine in the
    inventory; see muster/members/quarantine.py. slurm: None if slurmd does not run.
    """

    hostname: str
    uid: int
    python: list[int]
    systemd: bool
    cpus: int
    gpus: int
    user: UserFacts | None
    executable: FileFacts
    script: FileFacts | None
    chdir: FileFacts | None
    disk: DiskFacts
    foreign: list[str]
    interfaces: list[str]
    interface_of_address: str | None
    port: PortFacts | None
    occupied: Occupied
    own: OwnFacts | None
    environment: str
    caches: dict[str, CacheFacts]
    beat_port: PortFacts | None
    data: list[DataFacts]
    quarantine: dict[str, str] | None
    slurm: SlurmJobs | None


# ---------------------------------------------------------------- start


class RecordRequest(TypedDict):
    """Which data a node collects for a diagnosis.

    key: hexadecimal key for the digests of the environment; the node does not store the key. peers: addresses by node.
    names: host names to resolve. script, environment: paths; "" for none. gpus: whether the launch uses GPUs.
    """

    launch_id: str
    run_dir: str
    key: str
    peers: dict[str, str]
    names: list[str]
    script: str
    environment: str
    gpus: bool


class ProjectRequest(TypedDict):
    """A distributed project. store: the folder of distributed files. digest: digest of the project."""

    store: str
    digest: str


class ImageRequest(TypedDict):
    """A container image.

    id: image ID. chdir: the working directory if the launch does not set one. folders: folders of the node that are
    mounted at the same paths. gpus: whether the container gets access to the GPUs.
    """

    id: str
    chdir: str
    folders: list[str]
    gpus: bool


class StartRequest(TypedDict):
    """Request of `start`. reader: the account that reads the launch's state. lease: seconds until the controller's
    first request must arrive. time_limit: seconds; 0 for no limit.

    seats: slots that the launch locks, unless it is a shared launch. waits: whether the launch waits for the slots
    without a time limit.

    run_dir: folder owned by root that contains the training user's folder `logs`. work_dir: the working directory to
    create; "" if it exists. script_name, script_body (base64): a script to copy; "" for none. keep, keep_bytes (0 for
    any size): limits for all kept logs, including those of earlier launches. log_max: bytes of each log; 0 for any
    size. earlier: launches that must have ended on the node. stop_timeout: seconds from SIGTERM to SIGKILL at the time
    limit. plan: the packed plan, which the node keeps for other controllers (kept.py). cache_root: the training user's
    folder for compiled files. peers: the nodes of a detached launch, which ends on all nodes when it ends on one; None
    for others. project: the project of which the launch gets a copy; None for none. observe: seconds between two
    samples of the ranks (sampling.py on the node); 0 for no samples. record: which data the node collects at the start.
    image: None to use the node's own files.
    """

    launch_id: str
    user: str
    reader: Identity
    argv: list[str]
    env: dict[str, str]
    run_dir: str
    work_dir: str
    earlier: list[str]
    lease: float
    time_limit: int
    seats: list[str]
    shared: bool
    waits: bool
    properties: dict[str, str]
    keep: int
    keep_bytes: int
    log_max: int
    script_name: str
    script_body: str
    stop_timeout: int
    plan: str
    cache_root: str
    peers: PeersRequest | None
    project: ProjectRequest | None
    record: RecordRequest
    observe: float
    image: ImageRequest | None


class PeersRequest(TypedDict):
    """The nodes of a detached launch. token: the secret that the nodes share. address, port: where the head node
    receives heartbeats.

    own: address of this node. nodes: node names in the order of their ranks. rank: node rank of this node.
    """

    token: str
    address: str
    port: int
    own: str
    nodes: list[str]
    rank: int


# ---------------------------------------------------------------- look, logs, stop


class LogsRequest(TypedDict):
    """offsets: number of bytes of each log that the controller already has. limit: maximum number of bytes to send."""

    launch_id: str
    run_dir: str
    offsets: dict[str, int]
    limit: int


class LookRequest(LogsRequest):
    """wait: seconds to wait for changes before answering. sampled: number of the last samples that the controller
    received.
    """

    lease: float
    wait: float
    sampled: int


class FreezeRequest(TypedDict):
    launch_id: str


class SnapshotRequest(TypedDict):
    """ports: ports on which the launch listens on this node."""

    launch_id: str
    run_dir: str
    ports: list[int]


class StopRequest(LogsRequest):
    """dump: whether the ranks print their stacks before they are stopped. seconds: from SIGTERM to SIGKILL.

    why: the reason of the stop, which the node keeps. record: which data the node collects after the end; None for
    none.
    """

    launch_id: str
    dump: bool
    seconds: float
    why: str
    record: RecordRequest | None


class LogPart(TypedDict):
    """The bytes of a log from `begin` to `offset`.

    The first `gap` bytes were dropped because the log reached its limit; `text` contains the remaining bytes. more:
    whether the log continues.
    """

    begin: Count
    gap: Count
    offset: Count
    text: Annotated[str, Limit(most=MOST_PART, raw=True)]
    more: Flag


class Logs(TypedDict):
    """Log parts by name of the log: "agent", "LOCAL_RANK/stdout" or "LOCAL_RANK/stderr"."""

    logs: Annotated[dict[str, LogPart], Limit(most=MOST_RANKS)]


class Result(TypedDict, total=False):
    """The outcome of the unit's main process. reason: a word in endings.NODE_WORDS, or an unknown word."""

    reason: Annotated[str, Limit(most=200, pattern=re.compile(".+"))]
    code: Annotated[int, Limit(least=-1024, below=2**53)]
    error: Word
    ended_at: Number


class RankState(TypedDict, total=False):
    """The state of a rank.

    gone_at: None while the rank runs. state: the kernel's one-letter process state; "" after the rank ended. wchan: the
    kernel function in which the rank waits.
    """

    rank: int
    local_rank: Count
    pid: Annotated[int, Limit(least=0, instead=0)]
    gone_at: Number | None
    state: Annotated[str, Limit(most=1, instead="")]
    cpu: Annotated[float, Limit(instead=0.0)]
    wchan: Word


class Uncaught(TypedDict):
    py_callstack: Written


class ErrorMessage(TypedDict, total=False):
    extraInfo: Uncaught
    message: Written


class ErrorFile(TypedDict):
    """The content of torch's error file. The file has two formats."""

    message: Written | ErrorMessage


class Sample(TypedDict):
    """A sample of a rank.

    cpu: CPU time in seconds, including child processes. switches: context switches of the main thread. stack: stack of
    the main thread, innermost frame first; [] if unknown. sequence: number of collectives that the rank has started in
    the group of all ranks; None if unknown. operation: the newest collective. begun: whether the newest collective has
    started on a GPU and not ended.
    """

    local_rank: Count
    state: Annotated[str, Limit(pattern=re.compile("."))]
    cpu: Number
    switches: Count
    stack: Annotated[list[Annotated[str, Limit(most=200)]], Limit(most=10, instead=[])]
    sequence: Annotated[int | None, Limit(least=0, instead=None)]
    operation: Word
    begun: Flag


class Samples(TypedDict):
    """Samples of the ranks on a node. age: seconds since the samples were taken."""

    number: Count
    age: Number
    ranks: Annotated[list[Sample], Limit(most=MOST_RANKS)]


class RanksEnd(TypedDict):
    """The stop of the ranks, on request or at the time limit.

    seconds: total time that the ranks have to end. left: the time that remains.
    """

    reason: Annotated[str, Limit(most=200, pattern=re.compile(".+"))]
    seconds: Number
    left: Number


Unit = Annotated[dict[str, Annotated[str, Limit(most=200)]], Limit(needed=True)]  # as systemd shows it


class LaunchLook(Logs):
    """The state of the launch on a node.

    unit: properties of the unit from systemd. Its Result is failure.NO_MANAGER if the user's systemd instance is not
    running. errors: torch's error.json by local rank. clock: the node's clock, read after everything else.

    notes: sentences about failed actions and checks, without node name and full stop. samples: None if there are no new
    samples.
    """

    unit: Unit
    result: Result | None
    ranks: Annotated[list[RankState], Limit(most=MOST_RANKS)]
    errors: Annotated[dict[str, ErrorFile], Limit(most=MOST_RANKS)]
    notes: Annotated[list[Sentence], Limit(most=20)]
    disk: DiskFacts
    clock: Number
    ending: RanksEnd | None
    samples: Samples | None


class LastLook(LaunchLook):
    """Answer to `stop`.

    unit_before: the unit before the stop. error: "" if the launch has ended. clean: whether nothing of the launch
    remains. record: the state of the node after the end, not validated (see verdict/reading.py).
    """

    unit_before: Unit
    error: Annotated[ForeignText, Limit(most=800, instead=ForeignText(""))]
    leftovers: Annotated[list[Annotated[ProcessFacts, Limit(instead=NOBODY)]], Limit(most=100)]
    clean: Flag
    record: Any
