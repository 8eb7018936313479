"""What the controller and the program on a node (muster_node/programs/launch.py) say to each other, verb by verb.

Times in seconds; those of a node on its own clock, as they are called.
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

Amount = Annotated[int, Limit(least=0, below=2**64)]  # some file servers say that they have nearly as many bytes
Number = Annotated[float, Limit(least=-(2**53), below=2**53)]
Sentence = Annotated[ForeignText, Limit(most=800)]
Written = Annotated[str, Limit(most=256 * 1024, raw=True)]  # by a rank, into its error file


class Identity(TypedDict):
    """identity: who the controller logs in as there. name: it becomes part of paths. launch_user: whether that account
    launches for itself."""

    uid: Count
    gid: Count
    name: Annotated[str, Limit(pattern=ACCOUNT, instead="")]
    launch_user: Flag


# ---------------------------------------------------------------- prepare


class PrepareRequest(TypedDict):
    """script, chdir, work_root: None where there is none to look for. port: of the head node alone. gpus: whether it
    uses them. path: the folders in which an executable without one is looked for, as in PATH. environment: a folder,
    of which the path is wanted that no link leads to. caches: folders, by who chose them. beat_port: of the head node
    of a detached launch alone. data: paths that are compared."""

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
    """usable: by the training user, for what it is there for."""

    path: str
    exists: bool
    usable: bool


class CacheFacts(TypedDict):
    """type: of the file system that a folder is on, or will be; "" where it is not known."""

    path: str
    type: str


class DiskFacts(TypedDict):
    """path: the nearest folder that exists. free, total: bytes. inodes_free: None where there are no inodes."""

    path: Annotated[str, Limit(most=4096, instead="")]
    free: Amount
    total: Amount
    inodes_free: Annotated[int | None, Limit(least=0, instead=None)]
    read_only: Flag


class ProcessFacts(TypedDict):
    """pid: None where it cannot be seen; the texts are empty where they are not known."""

    pid: Annotated[int | None, Limit(least=0, instead=None)]
    command: Word
    user: Word
    unit: Word


NOBODY: ProcessFacts = {"pid": None, "command": "", "user": "", "unit": ""}


class PortFacts(TypedDict):
    """holders: who listens on it, or else talks from it."""

    port: int
    free: bool
    holders: list[Holder]


class OwnFacts(TypedDict):
    """The manager of the user who launches for themselves. manager_why: it does not answer. lingers: whether it stays
    without a login. group_is_new: it began before the user was in the group, and its units do not come to the seats.

    seats: that the user comes to. limits: what its units may have at most of memlock (bytes) and nofile; None for no
    limit. not_held: what the kernel does not limit for its units, of "memory" and "pids".
    """

    manager_why: str
    lingers: bool
    group_is_new: bool
    seats: list[str]
    limits: dict[str, int | None]
    not_held: list[str]


class Facts(TypedDict):
    """prepare: what a start depends on. user, interface_of_address: None where there is none. foreign: sentences about
    folders for launches that others than root may change. own: None in an administrator's launch. quarantine: the
    node's copy of what the inventory said of it; see muster/members/quarantine.py."""

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
    """What a node looks at for a diagnosis. key: of the digests of the environment (hexadecimal), which a node keeps
    nowhere. peers: addresses by node. names: that its resolver is asked for. script, environment: paths, "" for none.
    gpus: whether the launch uses any."""

    launch_id: str
    run_dir: str
    key: str
    peers: dict[str, str]
    names: list[str]
    script: str
    environment: str
    gpus: bool


class ProjectRequest(TypedDict):
    """store: the folder that holds what was distributed. digest: of the project."""

    store: str
    digest: str


class ImageRequest(TypedDict):
    """id: of the image. chdir: the working directory where the launch has none of its own. folders: of the node, which
    the container shows at the same paths. gpus: whether it has the GPUs."""

    id: str
    chdir: str
    folders: list[str]
    gpus: bool


class StartRequest(TypedDict):
    """reader: who will look. lease: seconds until the first look. time_limit: seconds, 0 for none.

    seats: what is the launch's alone, unless it is shared. waits: for them, as long as it takes.

    run_dir: root's, with the folder `logs` of the training user. work_dir: the working directory to be made, "" where
    there is one. script_name, script_body (base64): a script that is sent, else empty. keep, keep_bytes (0: any size):
    of logs, with those of earlier launches. log_max: bytes of each log, 0 for any size. earlier: launches that must be
    over here. stop_timeout: seconds that the ranks have from SIGTERM to SIGKILL at the time limit. plan: what the
    node keeps of it for others, packed (kept.py). cache_root: the training user's folder for what is compiled. peers:
    the others of a detached launch, by which it ends everywhere when it does so somewhere. project: of which the launch
    gets its own copy, None without one. observe: seconds between two samples of its ranks (sampling.py on the node); 0
    leaves them unobserved. record: of the node, as it is now. image: that it runs in, None for the node's own files.
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
    """token: the secret by which they know each other. address, port: on which the head node hears of the others.

    own: this node's address. nodes: names, by node rank. rank: this node's.
    """

    token: str
    address: str
    port: int
    own: str
    nodes: list[str]
    rank: int


class Started(TypedDict):
    """reserved: how far the launch has come with its seats; None where it was not started. pruned: earlier launches
    whose logs were removed, and their bytes. project: the digest of the launch's copy, "" without one. record: the node
    as it was then, as it says (verdict/reading.py reads it); None where it was not started."""

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
    """offsets: bytes that are known of each log. limit: bytes to send at most."""

    launch_id: str
    run_dir: str
    offsets: dict[str, int]
    limit: int


class LookRequest(LogsRequest):
    """wait: seconds to wait for news. sampled: the number of the samples that are known already."""

    lease: float
    wait: float
    sampled: int


class FreezeRequest(TypedDict):
    launch_id: str


class SnapshotRequest(TypedDict):
    """ports: on which the launch listens there."""

    launch_id: str
    run_dir: str
    ports: list[int]


class StopRequest(LogsRequest):
    """dump: whether the ranks show their stacks first. seconds: that they have to end by themselves, behind SIGTERM.

    why: what the node keeps of the reason. record: of the node, as it is when the launch has ended; None for no need.
    """

    launch_id: str
    dump: bool
    seconds: float
    why: str
    record: RecordRequest | None


class LogPart(TypedDict):
    """Bytes of a log from `begin` to `offset`: `gap` bytes that are left out, since the log had its limit, and then
    those of `text`. more: whether there is more behind it."""

    begin: Count
    gap: Count
    offset: Count
    text: Annotated[str, Limit(most=MOST_PART, raw=True)]
    more: Flag


class Logs(TypedDict):
    """By log: "agent", or "LOCAL_RANK/stdout" and "LOCAL_RANK/stderr"."""

    logs: Annotated[dict[str, LogPart], Limit(most=MOST_RANKS)]


class Result(TypedDict, total=False):
    """How the unit's main process ended: a word of endings.NODE_WORDS, unless the node knows others."""

    reason: Annotated[str, Limit(most=200, pattern=re.compile(".+"))]
    code: Annotated[int, Limit(least=-1024, below=2**53)]
    error: Word
    ended_at: Number


class RankState(TypedDict, total=False):
    """gone_at: None while it runs. state: the kernel's letter, "" for gone. wchan: where in the kernel it waits."""

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
    """What torch's error file says, in the shapes that it has."""

    message: Written | ErrorMessage


class Sample(TypedDict):
    """A rank at one moment. cpu: seconds of processor time, with all that it has started. switches: of its main thread
    to another and back. stack: of that thread, innermost first; [] where it does not say. sequence: collectives that it
    has begun in the group of all ranks; None where that is not known. operation: the newest. begun: that one has begun
    on a GPU, and not ended."""

    local_rank: Count
    state: Annotated[str, Limit(pattern=re.compile("."))]
    cpu: Number
    switches: Count
    stack: Annotated[list[Annotated[str, Limit(most=200)]], Limit(most=10, instead=[])]
    sequence: Annotated[int | None, Limit(least=0, instead=None)]
    operation: Word
    begun: Flag


class Samples(TypedDict):
    """Of the ranks of a node. age: seconds since they were taken."""

    number: Count
    age: Number
    ranks: Annotated[list[Sample], Limit(most=MOST_RANKS)]


class RanksEnd(TypedDict):
    """The ranks were told to end, since somebody asked for it or the time is up: seconds that they have in all, and
    that are left."""

    reason: Annotated[str, Limit(most=200, pattern=re.compile(".+"))]
    seconds: Number
    left: Number


Unit = Annotated[dict[str, Annotated[str, Limit(most=200)]], Limit(needed=True)]  # as systemd shows it


class LaunchLook(Logs):
    """What is known of the launch there. unit: as systemd shows it; its Result is failure.NO_MANAGER where the user's
    own systemd is not there. errors: torch's error.json by local rank. clock: read last of all.

    notes: sentences on what could not be done or looked at there, without the node's name and the full stop.
    samples: None where there are no new ones.
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
    """stop: unit_before: as it was before it was stopped. error: "" where it is over. clean: nothing is left. record:
    of the node behind the end, as it says (verdict/reading.py reads it)."""

    unit_before: Unit
    error: Annotated[ForeignText, Limit(most=800, instead=ForeignText(""))]
    leftovers: Annotated[list[Annotated[ProcessFacts, Limit(instead=NOBODY)]], Limit(most=100)]
    clean: Flag
    record: Any
