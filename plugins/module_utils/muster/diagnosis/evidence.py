"""What is known of a launch that failed or hangs: the shapes of what nodes record, and of the case that is decided.

Times are seconds; those of a node are on its own wall clock, those of a case on the controller's. What could not be
looked at is None, with the reason in `unseen`: it is never the same as "there is nothing".

No value of an environment variable is in any of it. `environment` holds keyed digests: whoever has the launch's key,
which the controller keeps to itself, can tell whether two nodes agree, and whether a value is one that is suspected.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from ..verdict.finding import FindingShape

# ---------------------------------------------------------------- a node at one moment


@dataclass(frozen=True)
class Text:
    """A line that people see.

    id: what it is called in causes. pattern: a regular expression; its named groups say more (address, port, node,
    rank, seconds, size, path, name). means: in one sentence. example: a line as it is printed, which the pattern
    finds. source: where it was seen. victim: it only says that a peer, or the way to it, is gone.
    """

    id: str
    pattern: str
    means: str
    example: str
    source: str
    victim: bool = False


class Interface(TypedDict):
    """carrier: None where the kernel does not say. addresses: without their prefixes. counters: carrier_changes,
    rx_errors, tx_errors, rx_dropped, tx_dropped, as /sys/class/net has them."""

    up: bool
    carrier: bool | None
    mtu: int
    kind: str  # physical, virtual, bridge, loopback
    addresses: list[str]
    counters: dict[str, int]


class Route(TypedDict):
    """The way to one peer. error: why there is none."""

    interface: str
    source: str
    gateway: str
    error: str


class Disk(TypedDict):
    """use: logs, work, tmp, shm, or other for a local one that takes nothing more. free, total: bytes. inodes_free:
    None where there are no inodes."""

    use: str
    path: str
    type: str
    free: int
    total: int
    inodes_free: int | None
    read_only: bool


class Unit(TypedDict):
    """The launch's control group. A number that nobody counts for it alone is None, or missing. memory_max, pids_max,
    cpu_max (cores): None for no limit or where it is not limited.

    memory_events: as memory.events (v2), or {oom_kill} from memory.oom_control (v1). cpu: nr_periods, nr_throttled,
    throttled_usec, usage_usec.
    """

    memory_current: int | None
    memory_max: int | None
    memory_events: dict[str, int]
    cpu_max: float | None
    cpu: dict[str, int]
    pids_current: int | None
    pids_max: int | None
    pids_refused: int | None  # pids.events: max
    frozen: bool | None


class Program(TypedDict):
    """What runs the ranks. argv: of the launcher. executable, interpreter: where no link leads on. digests: sha256 of
    "script", and of "code" (names and contents of the Python files beside it), as far as the limits of size go.
    versions: python, torch, nccl, muster_environment, as far as they are known without importing anything.
    environment: keyed digests."""

    argv: list[str]
    executable: str
    interpreter: str
    script: str
    cwd: str
    digests: dict[str, str]
    versions: dict[str, str]
    environment: dict[str, str]


class KernelLine(TypedDict):
    """at: wall clock."""

    at: float
    text: str


class Gpu(TypedDict):
    """memory_used, memory_total: bytes. ecc: uncorrected errors since the driver was loaded."""

    index: int
    uuid: str
    name: str
    memory_used: int | None
    memory_total: int | None
    ecc: int | None
    processes: list[int]


class Collective(TypedDict):
    """An entry of torch's flight recorder. state: as torch says it; completion is not known for Gloo."""

    sequence: int
    operation: str
    sizes: str
    types: str
    state: str


class Flight(TypedDict):
    """enqueued: the highest sequence number of the default group. last: the newest entries, the newest last."""

    group: str
    enqueued: int
    last: list[Collective]


class RankLeft(TypedDict):
    """What a rank that had ended by then has left behind."""

    rank: int
    flight: Flight


class NodeRecord(TypedDict):
    """A node at one moment of a launch.

    routes: by peer node. names: what the resolver answers, by name; an empty list where it knows none. limits: soft and
    hard (None: none) of the unit's main process, by their names in /proc/PID/limits in lower case with underscores.
    counters: flat, cumulative: tcp.RetransSegs, tcp.OutRsts, tcp.InErrs, tcp.AttemptFails, ext.TCPTimeouts,
    ext.ListenDrops, ext.IPReversePathFilter, ip.InDiscards, ip.OutNoRoutes, conntrack.count, conntrack.max,
    conntrack.drop, conntrack.insert_failed, vm.oom_kill (of the whole kernel, as it counts without a log),
    machine.oom_kill, .pids_refused, .nr_periods, .nr_throttled (of a container that is the whole machine).
    pressure: some avg10 of cpu, memory, io. memory: total, available, swap_free (bytes). kernel: lines since the record
    before it, or since a minute ago. fabric: state and error counters by "device/port". left: at the end, of ranks that
    had ended.
    """

    at: float
    boot_id: str
    hostname: str
    interfaces: dict[str, Interface]
    routes: dict[str, Route]
    names: dict[str, list[str]]
    program: Program | None
    limits: dict[str, list[int | None]]
    counters: dict[str, int]
    unit: Unit | None
    pressure: dict[str, float]
    memory: dict[str, int]
    disks: list[Disk]
    kernel: list[KernelLine] | None
    gpus: list[Gpu] | None
    fabric: dict[str, dict[str, str]] | None
    left: list[RankLeft]
    unseen: dict[str, str]


# ---------------------------------------------------------------- the ranks, before anything is stopped


class Socket(TypedDict):
    """A TCP connection of a rank. local, peer: "address:port". state: the kernel's name, such as ESTABLISHED or
    SYN_SENT. queued: bytes not yet acknowledged. retransmits: in a row, without an answer. idle: seconds since anything
    was received, None where the kernel does not say."""

    local: str
    peer: str
    state: str
    queued: int
    retransmits: int
    idle: float | None


class RankShot(TypedDict):
    """One rank. state: the kernel's letter. stack: of its main thread, innermost first; [] with why in stack_why.

    said: seconds since it last wrote into its logs, None where they are not there. cpu: seconds of processor time.
    """

    rank: int
    local_rank: int
    pid: int
    state: str
    wchan: str
    cpu: float
    memory: int
    files: int
    threads: int
    stack: list[str]
    stack_why: str
    flight: Flight | None
    flight_why: str
    sockets: list[Socket]
    said: float | None


class Listener(TypedDict):
    """started: seconds since the epoch; 0 where it cannot be seen who listens."""

    port: int
    address: str
    pid: int
    user: str
    command: str
    unit: str
    started: float


class Snapshot(TypedDict):
    """A node's part of a launch that is still there. left: of ranks that had ended. listeners: on the launch's ports.
    half_open: the addresses whose calls to these listeners have come in without being completed (SYN_RECV in
    /proc/net/tcp, where it is 03), which tells a lost answer from a lost call. frozen: of the unit."""

    at: float
    ranks: list[RankShot]
    left: list[RankLeft]
    listeners: list[Listener]
    half_open: list[str] | None
    frozen: bool | None
    unseen: dict[str, str]


class Agent(TypedDict):
    """A torchrun (or the like) that runs on a node, whoever started it. ranks: of its own, as they say it."""

    pid: int
    user: str
    argv: list[str]
    cwd: str
    started: float
    state: str
    environment: dict[str, str]
    ranks: list[RankShot]
    unit: str


# ---------------------------------------------------------------- a launch, and what became of it


class LaunchNode(TypedDict):
    node: str
    address: str
    interface: str
    node_rank: int
    ranks: list[int]


class LaunchFacts(TypedDict):
    """how: muster, foreign (found running, started by others) or log (nothing but a log). own: somebody's own launch,
    of which root looked at nothing. live: it had not ended when this was gathered. ending: an ending's name
    (launch/endings.py) and what was said of it; "" where that is not known. starting: it could not be started on
    ending_node. timeout: seconds of rendezvous. began, stop_began: 0 where it is not known. backend: gloo, nccl or "".
    """

    launch_id: str
    how: str
    own: bool
    live: bool
    backend: str
    launcher: str
    world_size: int
    master_addr: str
    master_port: int
    timeout: float
    nodes: list[LaunchNode]
    ending: str
    ending_text: str
    ending_node: str
    starting: bool
    began: float
    stop_began: float


class RankEnd(TypedDict):
    """code: as the launcher says it; negative for a signal, None where it is not known. gone_at: None while it runs.
    stderr: the end of it, or what a log marks as this rank's. error: the traceback out of torch's error.json."""

    rank: int
    node: str
    local_rank: int
    code: int | None
    gone_at: float | None
    stderr: str
    error: str


class NodeEnd(TypedDict):
    """A node's part. lost: it stopped answering. reason, code, error: how the unit's main process ended; code None
    where it is not known. result: systemd's word for the unit. log: the end of the launcher's own."""

    node: str
    reached: bool
    lost: bool
    lost_why: str
    last_answer: float
    reason: str
    code: int | None
    error: str
    result: str
    ended_at: float
    log: str


class SiteAnswers(TypedDict, total=False):
    """unanswered: by node and question, why a command of the site did not answer; where any was asked."""

    unanswered: dict[str, dict[str, str]]


class CaseShape(SiteAnswers):
    """start, end, snapshots, agents: by node, without those of which there is none. findings: of the probes that were
    made afterwards, with `ran`: the ids (or their beginnings) of what was looked for, by node, and "peer:NAME" for each
    node that was called from there, though it could not be asked itself. not_looked: why a node could not be asked
    afterwards, by node. key: hexadecimal, of the digests of the environment."""

    schema: int
    launch: LaunchFacts
    ranks: list[RankEnd]
    nodes: list[NodeEnd]
    start: dict[str, NodeRecord]
    end: dict[str, NodeRecord]
    snapshots: dict[str, Snapshot]
    agents: dict[str, list[Agent]]
    findings: list[FindingShape]
    ran: dict[str, list[str]]
    not_looked: dict[str, str]
    key: str
