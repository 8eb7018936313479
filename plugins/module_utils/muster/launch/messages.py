"""Messages between the controller and the program on a node (muster_node/programs/launch.py), by verb.

Times are in seconds. Times of a node are on the node's clock.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any, TypedDict

from ..verdict.printable import ForeignText
from ..verdict.reading import Count, Flag, Limit, Word

if TYPE_CHECKING:
    from .data import DataFacts
    from .reservation import Holder, Occupied, Reserved


ACCOUNT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@-]{0,63}")
MOST_PART = 8 * 1024 * 1024  # characters of one part of a log
MOST_RANKS = 4096  # and parts of their logs, of one node

Amount = Annotated[int, Limit(least=0, below=2**64)]  # some file servers report nearly this many bytes
Number = Annotated[float, Limit(least=-(2**53), below=2**53)]
Sentence = Annotated[ForeignText, Limit(most=800)]
Written = Annotated[str, Limit(most=256 * 1024, raw=True)]  # by a rank, into its error file


class Identity(TypedDict):
    """identity: the account that the controller logs in as. name: becomes part of paths. launch_user: whether the
    account is a launch user."""

    uid: Count
    gid: Count
    name: Annotated[str, Limit(pattern=ACCOUNT, instead="")]
    launch_user: Flag


# ---------------------------------------------------------------- prepare


class PrepareRequest(TypedDict):
    """script, chdir, work_root: None for none to check. port: only for the head node. gpus: whether the launch uses
    GPUs. path: folders to search for an executable without a path, as in PATH. environment: a folder whose path is to
    be resolved. caches: folders by their source. beat_port: only for the head node of a detached launch. data: paths to
    compare."""

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
    """A file system. path: the nearest existing folder. free, total: bytes. inodes_free: None without inodes."""

    path: Annotated[str, Limit(most=4096, instead="")]
    free: Amount
    total: Amount
    inodes_free: Annotated[int | None, Limit(least=0, instead=None)]
    read_only: Flag


class ProcessFacts(TypedDict):
    """A process. pid: None if it is not visible. Unknown texts are empty."""

    pid: Annotated[int | None, Limit(least=0, instead=None)]
    command: Word
    user: Word
    unit: Word


NOBODY: ProcessFacts = {"pid": None, "command": "", "user": "", "unit": ""}


class PortFacts(TypedDict):
    """A port. holders: the processes that listen on it, or otherwise use it as their local port."""

    port: int
    free: bool
    holders: list[Holder]


class OwnFacts(TypedDict):
    """The systemd instance of a launch user. manager_why: why it does not respond. lingers: whether it stays without a
    login. group_is_new: it was started before the user joined the group, so its units have no access to GPU slots.

    seats: slots that the user can lock. limits: the maximum memlock (bytes) and nofile of its units; None for no limit.
    not_held: limits that the kernel does not enforce for its units: "memory" or "pids".
    """

    manager_why: str
    lingers: bool
    group_is_new: bool
    seats: list[str]
    limits: dict[str, int | None]
    not_held: list[str]


class Facts(TypedDict):
    """Answer to prepare: the conditions of a start. user, interface_of_address: None for none. foreign: sentences on
    launch folders that other users than root can change. own: None in an administrator launch. quarantine: the node's
    copy of its quarantine in the inventory; see muster/members/quarantine.py."""

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


# ---------------------------------------------------------------- start


class RecordRequest(TypedDict):
    """The data that a node collects for a diagnosis. key: of the digests of the environment (hexadecimal); a node does
    not store it. peers: addresses by node. names: host names to resolve. script, environment: paths, "" for none.
    gpus: whether the launch uses GPUs."""

    launch_id: str
    run_dir: str
    key: str
    peers: dict[str, str]
    names: list[str]
    script: str
    environment: str
    gpus: bool


class ProjectRequest(TypedDict):
    """A distributed project. store: the folder of distributed files. digest: of the project."""

    store: str
    digest: str


class ImageRequest(TypedDict):
    """A container image. id: of the image. chdir: the working directory if the launch sets none. folders: folders of
    the node, mounted at the same paths. gpus: whether the container has the GPUs."""

    id: str
    chdir: str
    folders: list[str]
    gpus: bool


class StartRequest(TypedDict):
    """reader: the account that reads the launch's state. lease: seconds until the first request. time_limit: seconds, 0
    for none.

    seats: exclusive slots of the launch, unless it is shared. waits: whether it waits for the slots without a limit.

    run_dir: owned by root, with the folder `logs` of the training user. work_dir: the working directory to create, ""
    if it exists. script_name, script_body (base64): a copied script, else empty. keep, keep_bytes (0: any size): limits
    of all kept logs, with those of earlier launches. log_max: bytes of each log, 0 for any size. earlier: launches that
    must have ended here. stop_timeout: seconds from SIGTERM to SIGKILL at the time limit. plan: the packed plan that
    the node keeps for others (kept.py). cache_root: the training user's folder for compiled files. peers: the other
    nodes of a detached launch; it ends on all nodes when it ends on one. project: the launch gets its own copy; None
    for none. observe: seconds between two samples of its ranks (sampling.py on the node), 0 for no samples. record:
    request for the state of the node at the start. image: None for the node's own files.
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
    """The nodes of a detached launch. token: their shared secret. address, port: where the head node receives
    heartbeats.

    own: this node's address. nodes: names, by node rank. rank: this node's.
    """

    token: str
    address: str
    port: int
    own: str
    nodes: list[str]
    rank: int


class Started(TypedDict):
    """Answer to start. reserved: the state of the slots; None if the launch was not started. pruned, bytes: earlier
    launches whose logs were removed, and their size. project: the digest of the launch's copy, "" for none. record: the
    state of the node, not validated (see verdict/reading.py); None if the launch was not started."""

    started: bool
    error: str
    time: float
    reserved: Reserved | None
    pruned: list[str]
    bytes: int
    project: str
    record: Any


# ---------------------------------------------------------------- look, logs, stop


class LogsRequest(TypedDict):
    """offsets: bytes of each log that the controller has. limit: maximum number of bytes to send."""

    launch_id: str
    run_dir: str
    offsets: dict[str, int]
    limit: int


class LookRequest(LogsRequest):
    """wait: seconds to wait for changes. sampled: the number of the last received samples."""

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
    """dump: whether the ranks print their stacks first. seconds: from SIGTERM to SIGKILL.

    why: the reason, kept on the node. record: request for the state of the node after the end; None for none.
    """

    launch_id: str
    dump: bool
    seconds: float
    why: str
    record: RecordRequest | None


class LogPart(TypedDict):
    """Bytes of a log from `begin` to `offset`: first `gap` bytes that were dropped because the log reached its limit,
    then those of `text`. more: whether the log continues."""

    begin: Count
    gap: Count
    offset: Count
    text: Annotated[str, Limit(most=MOST_PART, raw=True)]
    more: Flag


class Logs(TypedDict):
    """Parts of logs by name: "agent", "LOCAL_RANK/stdout" or "LOCAL_RANK/stderr"."""

    logs: Annotated[dict[str, LogPart], Limit(most=MOST_RANKS)]


class Result(TypedDict, total=False):
    """The outcome of the unit's main process. reason: a word of endings.NODE_WORDS, or an unknown one."""

    reason: Annotated[str, Limit(most=200, pattern=re.compile(".+"))]
    code: Annotated[int, Limit(least=-1024, below=2**53)]
    error: Word
    ended_at: Number


class RankState(TypedDict, total=False):
    """A rank. gone_at: None while it runs. state: the kernel's letter, "" for gone. wchan: kernel function it waits
    in."""

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
    """The content of torch's error file, in both of its formats."""

    message: Written | ErrorMessage


class Sample(TypedDict):
    """A sample of a rank. cpu: seconds of CPU time, with its child processes. switches: context switches of its main
    thread. stack: of that thread, innermost first; [] if unknown. sequence: number of collectives started in the group
    of all ranks; None if unknown. operation: the newest collective. begun: the newest collective has started on a GPU
    and not ended."""

    local_rank: Count
    state: Annotated[str, Limit(pattern=re.compile("."))]
    cpu: Number
    switches: Count
    stack: Annotated[list[Annotated[str, Limit(most=200)]], Limit(most=10, instead=[])]
    sequence: Annotated[int | None, Limit(least=0, instead=None)]
    operation: Word
    begun: Flag


class Samples(TypedDict):
    """Samples of the ranks of a node. age: seconds since they were taken."""

    number: Count
    age: Number
    ranks: Annotated[list[Sample], Limit(most=MOST_RANKS)]


class RanksEnd(TypedDict):
    """A stop of the ranks, by request or at the time limit. seconds: total time to end. left: remaining time."""

    reason: Annotated[str, Limit(most=200, pattern=re.compile(".+"))]
    seconds: Number
    left: Number


Unit = Annotated[dict[str, Annotated[str, Limit(most=200)]], Limit(needed=True)]  # as systemd shows it


class LaunchLook(Logs):
    """The state of the launch on a node. unit: as systemd shows it; its Result is failure.NO_MANAGER if the user's
    systemd instance does not run. errors: torch's error.json by local rank. clock: read last.

    notes: sentences on failed actions and checks, without the node's name and a full stop. samples: None if there are
    no new samples.
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
    """Answer to stop. unit_before: the unit before the stop. error: "" if the launch has ended. clean: nothing is left.
    record: the state of the node after the end, not validated (see verdict/reading.py)."""

    unit_before: Unit
    error: Annotated[ForeignText, Limit(most=800, instead=ForeignText(""))]
    leftovers: Annotated[list[Annotated[ProcessFacts, Limit(instead=NOBODY)]], Limit(most=100)]
    clean: Flag
    record: Any
