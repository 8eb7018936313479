"""Shapes of the evidence of a failed or hanging launch: the records of nodes, and the case that combines them.

Times are in seconds. Times in a node record are on the node's wall clock, times in a case are on the controller's. A
part that could not be checked is None, and `unseen` contains the reason. An empty part is never None.

Values of environment variables are never stored. `environment` has keyed digests. With the launch's key, which only
the controller has, the digests show whether two nodes have the same value, and whether a variable has a suspected
value.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from ..verdict.finding import FindingShape

# ---------------------------------------------------------------- a node at one moment


@dataclass(frozen=True)
class Text:
    """A known error line.

    id: the name by which cause checks refer to the line. pattern: a regular expression with named groups (address,
    port, node, rank, seconds, size, path, name). means: the meaning of the line in one sentence. example: a line that
    matches the pattern. source: where the line was observed. victim: the line only reports that a peer, or the
    connection to a peer, was lost. ordinary: a healthy launch prints the line too, so that it is a symptom only if
    there is no other one.
    """

    id: str
    pattern: str
    means: str
    example: str
    source: str
    victim: bool = False
    ordinary: bool = False


class Interface(TypedDict):
    """A network interface. carrier: None if the kernel does not report it. addresses: without prefixes. counters:
    carrier_changes, rx_errors, tx_errors, rx_dropped and tx_dropped, as in /sys/class/net."""

    up: bool
    carrier: bool | None
    mtu: int
    kind: str  # physical, virtual, bridge, loopback
    addresses: list[str]
    counters: dict[str, int]


class Route(TypedDict):
    """The route to one peer. error: why there is no route."""

    interface: str
    source: str
    gateway: str
    error: str


class Disk(TypedDict):
    """A file system. use: logs, work, tmp, shm, or "other" for a local file system that is full or read-only. free,
    total: bytes. inodes_free: None if the file system has no inodes."""

    use: str
    path: str
    type: str
    free: int
    total: int
    inodes_free: int | None
    read_only: bool


class Unit(TypedDict):
    """The launch's control group. A number is None or missing if the kernel does not count it for this group.
    memory_max, pids_max, cpu_max (cores): None for no limit.

    memory_events: the content of memory.events (v2), or {oom_kill} from memory.oom_control (v1). cpu: nr_periods,
    nr_throttled, throttled_usec, usage_usec.
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
    """The program that the ranks run. argv: arguments of the launcher. executable, interpreter: paths with links
    resolved. digests: sha256 of "script", and of "code" (names and contents of the Python files beside it), within size
    limits. versions: python, torch, nccl, muster_environment, as far as they can be determined without importing
    anything. environment: keyed digests."""

    argv: list[str]
    executable: str
    interpreter: str
    script: str
    cwd: str
    digests: dict[str, str]
    versions: dict[str, str]
    environment: dict[str, str]


class KernelLine(TypedDict):
    """A line of the kernel log. at: time of the line by the wall clock."""

    at: float
    text: str


class Gpu(TypedDict):
    """A GPU. memory_used, memory_total: bytes. ecc: uncorrected errors since the driver was loaded."""

    index: int
    uuid: str
    name: str
    memory_used: int | None
    memory_total: int | None
    ecc: int | None
    processes: list[int]


class Collective(TypedDict):
    """An entry of torch's flight recorder. state: as reported by torch, but "started" for every call of nccl2 that has
    not completed; for Gloo, it does not show whether the collective completed."""

    sequence: int
    operation: str
    sizes: str
    types: str
    state: str


class Flight(TypedDict):
    """The content of a rank's flight recorder. enqueued: the highest sequence number in the default group. last: the
    newest entries, with the newest last."""

    group: str
    enqueued: int
    last: list[Collective]


class RankLeft(TypedDict):
    """The flight recorder of a rank that has exited."""

    rank: int
    flight: Flight


class NodeRecord(TypedDict):
    """The state of a node at one moment of a launch.

    routes: by peer node. names: the addresses that each name resolves to; an empty list if the name does not resolve.
    limits: soft and hard (None: no limit) of the unit's main process, by their names in /proc/PID/limits in lower case
    with underscores. counters: flat, cumulative: tcp.RetransSegs, tcp.OutRsts, tcp.InErrs, tcp.AttemptFails,
    ext.TCPTimeouts, ext.ListenDrops, ext.IPReversePathFilter, ip.InDiscards, ip.OutNoRoutes, conntrack.count,
    conntrack.max, conntrack.drop, conntrack.insert_failed, vm.oom_kill (of the whole kernel, available without its
    log), machine.oom_kill, .pids_refused, .nr_periods, .nr_throttled (of a container that the launch treats as a
    machine). pressure: the value "some avg10" of cpu, memory and io. memory: total, available, swap_free (bytes).
    kernel: kernel log lines since the launch began. fabric: state and error counters by "device/port". left: flight
    recorders of ranks that had exited, only in the record at the end.
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


# ---------------------------------------------------------------- ranks, before the launch is stopped


class Socket(TypedDict):
    """A TCP connection of a rank. local, peer: "address:port". state: the kernel's name, such as ESTABLISHED or
    SYN_SENT. queued: bytes sent but not yet acknowledged. retransmits: number of consecutive retransmissions without a
    reply. idle: seconds since data was received, None if the kernel does not report it."""

    local: str
    peer: str
    state: str
    queued: int
    retransmits: int
    idle: float | None


class RankShot(TypedDict):
    """The state of one rank. state: the kernel's letter for the process state. stack: frames of the main thread,
    innermost first; if empty, stack_why contains the reason.

    said: seconds since the rank last wrote to its logs, None if there are no logs. cpu: seconds of CPU time.
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
    """A process that listens on a port. started: when the process started, in seconds since the epoch; 0 if the process
    is not visible."""

    port: int
    address: str
    pid: int
    user: str
    command: str
    unit: str
    started: float


class Snapshot(TypedDict):
    """The state of one node of a running launch. left: flight recorders of ranks that had exited. listeners: processes
    that listen on the launch's ports. half_open: peer addresses of half-open connections to these listeners (SYN_RECV,
    03 in /proc/net/tcp), which distinguish a lost reply from a lost request. frozen: whether the unit is frozen."""

    at: float
    ranks: list[RankShot]
    left: list[RankLeft]
    listeners: list[Listener]
    half_open: list[str] | None
    frozen: bool | None
    unseen: dict[str, str]


class Agent(TypedDict):
    """A launcher such as torchrun that runs on a node and was started by any user. ranks: the ranks that the launcher
    started."""

    pid: int
    user: str
    argv: list[str]
    cwd: str
    started: float
    state: str
    environment: dict[str, str]
    ranks: list[RankShot]
    unit: str


# ---------------------------------------------------------------- a launch and its outcome


class LaunchNode(TypedDict):
    node: str
    address: str
    interface: str
    node_rank: int
    ranks: list[int]


class LaunchFacts(TypedDict):
    """Properties of a launch. how: muster, foreign (found running, not started by Muster) or log (only a log). own: a
    user launch, whose nodes are not checked as root. live: the launch was still running when the evidence was gathered.
    ending, ending_text: an ending's name (launch/endings.py) and its description; "" if unknown. starting: the launch
    could not be started on ending_node. timeout: of the rendezvous, in seconds. began, stop_began: 0 if unknown.
    backend: gloo, nccl or ""."""

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
    """How a rank ended. code: exit code reported by the launcher; negative for a signal, None if unknown. gone_at: None
    while the rank runs. stderr: the end of the rank's stderr, or the lines that a log marks as output of this rank.
    error: the traceback in torch's error.json."""

    rank: int
    node: str
    local_rank: int
    code: int | None
    gone_at: float | None
    stderr: str
    error: str


class NodeEnd(TypedDict):
    """How a launch ended on a node. lost: the node stopped responding. reason, code, error: how the unit's main process
    ended; code is None if unknown. result: systemd's result of the unit. log: the last part of the launcher's log."""

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


class MoreEvidence(TypedDict, total=False):
    """Evidence that only some cases have. unanswered: by node and question, the reason why a command of the site rules
    returned no answer. told: by node, the launch arguments that logs contain, under torchrun's names. last: the last
    lines of these logs. boots: by lost node, its boot_id after it responded again. paths: by node and path, how the
    launch user can access it: e (exists), r and w."""

    unanswered: dict[str, dict[str, str]]
    told: dict[str, dict[str, str]]
    last: list[str]
    boots: dict[str, str]
    paths: dict[str, dict[str, str]]


class CaseShape(MoreEvidence):
    """All evidence of one launch. start, end, snapshots, agents: by node; a node is missing if it has none. findings:
    results of the probes after the failure. ran: by node, the ids (or prefixes of ids) of the checks that ran, and
    "peer:NAME" for each other node that was probed from this node. not_looked: by node, why the node was not checked
    after the failure. key: the key of the environment digests, in hexadecimal."""

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
