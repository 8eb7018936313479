"""The experiments in order of priority, with steps, durations and expected results."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from . import nodes
from .layers import PLACE, controller
from .report import Expected, Seen, read_seen, unread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

Try: TypeAlias = "Callable[[Lab, str], Seen]"
INVENTORY = ("-i", f"{PLACE}/inventory")
LONGEST = "180"  # maximum seconds of a playbook
SCRIPT = "tests/gpu/two_nodes/train.py"
STEP = re.compile(r"^ *step \d+/", re.MULTILINE)
TRANSPORT = re.compile(r"via (NET/\w+|P2P|SHM)|: (gloo), torch")
BACKEND = re.compile(r": (\w+), torch \d")
# A short timeout, a step every 0.2 s, and a flight recorder, also of torch 2.14 and older.
FAULTY = {
    "PG_TIMEOUT": "15",
    "STEPS": "2000",
    "PACE": "0.2",
    "NCCL_DEBUG": "WARN",
    "TORCH_NCCL_DUMP_ON_TIMEOUT": "1",
    "TORCH_FR_BUFFER_SIZE": "2000",
    "TORCH_NCCL_TRACE_BUFFER_SIZE": "2000",
}
ONE_HOST = {"NCCL_HOSTID": "one"}
DETAIL = {"TORCH_DISTRIBUTED_DEBUG": "DETAIL"}
BLOCKING = {"TORCH_NCCL_BLOCKING_WAIT": "1"}
NCCL2, LEGACY = {"TORCH_DIST_USE_NCCL2": "1"}, {"TORCH_DIST_USE_NCCL2": "0"}
DESYNC = {"TORCH_NCCL_DESYNC_DEBUG": "1"}
NCCL_SAYS = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,NET,GRAPH,ENV,P2P,SHM"}
RAS = """
import socket
with socket.create_connection(("localhost", 28028), 3) as line:
    line.settimeout(9)
    line.sendall(b"verbose status\\n")
    while part := line.recv(65536):
        print(part.decode(), end="")
"""
# Only packets between ranks: not SSH, the store on port 29500 or the supervisor's port.
CUT = """
table inet two {{
    chain in {{
        type filter hook input priority 0; policy accept;
        ip saddr {peer} tcp dport 32768-60999 tcp sport != {{ 22, 29500, 29450 }} {verdict}
        ip saddr {peer} tcp sport 32768-60999 tcp dport 32768-60999 {verdict}
    }}
}}
"""
PROBES = (
    "uname -a",
    "cat /proc/cmdline /proc/filesystems /proc/self/cgroup /proc/mounts",
    "env | grep -iE '^(PATH|LD_|CUDA|NVIDIA|NCCL|PYTHON)' | sort",
    "ls -la /dev/nvidia* /dev/nvidia-caps /usr/bin/python3*",
    "zcat /proc/config.gz | grep -E 'OVERLAY_FS|VETH|BRIDGE|NF_TABLES|NFT_REJECT|CGROUPS|MEMCG|YAMA|APPARMOR'",
    "nvidia-smi",
    "nvidia-smi topo -m",
    "dmesg | tail -n 60",
)


class Lab:
    """Two running nodes, and the folder with the recordings of the current experiment."""

    def __init__(self, folder: Path, artifacts: Path) -> None:
        self.folder = folder
        self.artifacts = artifacts
        self.known = self.runs()
        self.begun: list[Run] = []

    def runs(self) -> set[str]:
        return {path.name for path in self.artifacts.glob("2*")}

    def keep(self, name: str, *argv: str) -> None:
        """Record the output of a command, whether the command succeeds or not."""
        with (self.folder / f"{name}.txt").open("ab", buffering=0) as file:
            file.write(f"$ {' '.join(argv)[-200:]}\n".encode())
            subprocess.run(["timeout", "60", *argv], check=False, stdout=file, stderr=subprocess.STDOUT)

    def keep_of_nodes(self, name: str, *argv: str) -> None:
        for node in nodes.NODES:
            self.keep(name, *nodes.inside(node, *argv))

    def keep_smi(self, name: str) -> None:
        """Record the GPU processes that the machine and each node can see."""
        asked = ("nvidia-smi", "--query-compute-apps=pid,name,used_memory", "--format=csv")
        self.keep(f"{name}_smi", *asked)
        self.keep_of_nodes(f"{name}_smi", *asked)

    def begin(self, name: str, playbook: str, *options: str) -> Run:
        self.begun.append(Run(self.folder / f"{name}.txt", playbook, *options))
        return self.begun[-1]

    def launch(self, name: str, environment: dict[str, str], **options: object) -> Run:
        given = {"launch_script_src": SCRIPT, "launch_env": environment, **options}
        return self.begin(name, "launch.yml", "-e", json.dumps(given))

    def live(self, name: str) -> Path:
        """Run a live diagnosis, and return the folder with its results."""
        self.begin(f"{name}_live", "diagnose.yml", "-e", "live=true").wait()
        return self.artifacts / max(self.runs())

    def end(self) -> None:
        """Interrupt playbooks that a failed experiment left running."""
        for run in self.begun:
            if run.process.poll() is None:
                run.interrupt()

    def seen(self) -> Seen:
        """Return the results of the newest run since the previous call."""
        new = sorted(self.runs() - self.known)
        self.known |= set(new)
        return read_seen(self.artifacts / new[-1]) if new else Seen("no run")


class Run:
    """A running playbook whose output goes to a file."""

    def __init__(self, screen: Path, playbook: str, *options: str) -> None:
        self.screen = screen
        argv = ["timeout", "--signal=INT", "--kill-after=30", LONGEST]
        argv += controller("ansible-playbook", *INVENTORY, f"playbooks/{playbook}", *options)
        with screen.open("wb") as file:
            self.process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT)

    def says(self, pattern: str | re.Pattern[str]) -> Run:
        """Wait until the output matches the pattern."""
        while not re.search(pattern, self.screen.read_text(errors="replace")):
            if self.process.poll() is not None:
                raise RuntimeError(f"{self.screen.stem} ended before it showed {re.compile(pattern).pattern!r}")
            time.sleep(0.1)
        return self

    def wait(self) -> None:
        self.process.wait()

    def interrupt(self) -> None:
        self.process.send_signal(signal.SIGINT)
        self.wait()


@contextmanager
def cut_off(verdict: str) -> Iterator[None]:
    """Drop or reject packets from ranks of node1 on node2. verdict: drop or reject."""
    rules = CUT.format(peer=nodes.ADDRESS["node1"], verdict=verdict)
    subprocess.run(nodes.inside("node2", "nft", "-f", "-"), check=True, input=rules, text=True)
    try:
        yield
    finally:
        subprocess.run(nodes.inside("node2", "nft", "delete", "table", "inet", "two"), check=True)


def record_live_diagnosis(lab: Lab, name: str) -> None:
    """Record a live diagnosis and the output of NCCL's RAS."""
    lab.keep_of_nodes(f"{name}_ras", "python3", "-c", RAS)
    lab.live(name)


def played(playbook: str) -> Try:
    """Return an experiment that runs one playbook."""

    def experiment(lab: Lab, name: str) -> Seen:
        lab.begin(name, playbook).wait()
        return lab.seen()

    return experiment


def fault(**environment: str) -> Try:
    """Return an experiment in which environment variables make the script fail."""

    def experiment(lab: Lab, name: str) -> Seen:
        lab.launch(name, {**FAULTY, **environment}).wait()
        return lab.seen()

    return experiment


def over(backend: str, **environment: str) -> Try:
    """Return an experiment like `fault`, in which the ranks must use one of torch's two NCCL backends."""

    def experiment(lab: Lab, name: str) -> Seen:
        seen = fault(**environment)(lab, name)
        logs = (path.read_text(errors="replace") for path in (lab.artifacts / "latest/logs").rglob("*.log"))
        used = {one for text in logs for one in BACKEND.findall(text)}
        return seen if used == {backend} else Seen(f"ran over {', '.join(sorted(used))}")

    return experiment


def recorder(lab: Lab, name: str) -> Seen:
    """Experiment: a live diagnosis reads the flight recorders of both ranks, while rank 0 waits for rank 1."""
    run = lab.launch(name, {**FAULTY, "PG_TIMEOUT": "60", "FAULT": "absent", "FAULT_STEP": "5"}).says(STEP)
    live = lab.live(name)
    why = unread(live, len(nodes.NODES))
    seen = Seen("not read", says=tuple(why)) if why else read_seen(live)
    run.interrupt()  # its verdict is written to the same folder
    return seen


def capture(lab: Lab, name: str) -> Seen:
    """Experiment: a live diagnosis reads the flight recorders while the ranks capture CUDA graphs, which must go on."""
    run = lab.launch(name, {**FAULTY, **LEGACY, "STEPS": "40", "CAPTURE": "0.5"}).says(STEP)
    launch = lab.artifacts / max(lab.runs())
    why = unread(lab.live(name), len(nodes.NODES))
    run.wait()
    return Seen("not read", says=tuple(why)) if why else read_seen(launch)


def probe(lab: Lab, name: str) -> Seen:
    for command in PROBES:
        lab.keep(name, "sh", "-c", command)
    return Seen("kept")


def healthy(lab: Lab, name: str) -> Seen:
    run = lab.launch(name, {**NCCL_SAYS, "STEPS": "30", "PACE": "0.2"}).says(STEP)
    lab.keep_smi(name)
    lab.keep(f"{name}_ras", *nodes.inside("node1", "python3", "-c", RAS))
    run.wait()
    seen = lab.seen()
    logs = (path.read_text(errors="replace") for path in (lab.artifacts / "latest/logs").rglob("*.log"))
    found = {one or other for text in logs for one, other in TRANSPORT.findall(text)}
    return replace(seen, ids=tuple(sorted(found)))


def killed(lab: Lab, name: str) -> Seen:
    run = lab.launch(name, FAULTY, launch_failure_timeout=20).says(STEP)
    os.kill(nodes.of_rank(1), signal.SIGKILL)
    run.wait()
    return lab.seen()


def stopped(lab: Lab, name: str) -> Seen:
    run = lab.launch(name, FAULTY).says(STEP)
    os.kill(nodes.of_rank(1), signal.SIGSTOP)
    record_live_diagnosis(lab, name)
    run.wait()
    return lab.seen()


def dropped(lab: Lab, name: str) -> Seen:
    run = lab.launch(name, FAULTY).says(STEP)
    with cut_off("drop"):
        record_live_diagnosis(lab, name)
        run.wait()
    return lab.seen()


def refused(lab: Lab, name: str) -> Seen:
    with cut_off("reject with tcp reset"):
        lab.launch(name, FAULTY).wait()
    return lab.seen()


def held(lab: Lab, name: str) -> Seen:
    """Experiment: a launch on node2 holds the GPU memory, and node1 cannot see the process."""
    holder = lab.launch("holder", {"FAULT": "hold", "FAULT_RANK": "0"}, cluster_launch_nodes=["node2"])
    holder.says(r"rank 0 holds")
    lab.keep_smi(name)
    lab.begin(f"{name}_health", "health.yml").wait()
    lab.launch(name, {"STEPS": "5"}, cluster_launch_nodes=["node1"]).wait()
    seen = lab.seen()
    holder.interrupt()
    return seen


def off(lab: Lab, name: str) -> Seen:
    run = lab.launch(name, FAULTY).says(STEP)
    os.kill(nodes.state()["init"]["node2"], signal.SIGKILL)
    run.wait()
    return lab.seen()


@dataclass(frozen=True)
class Experiment:
    """An experiment on the two nodes. seconds: duration if everything goes as expected. gpu: reason why the experiment
    is useless with Gloo."""

    name: str
    does: str
    seconds: int
    expected: Expected
    run: Try
    gpu: str = ""


class Choice(NamedTuple):
    """Experiments to run. left_out: reasons by name for requested experiments that cannot run on this machine."""

    experiments: list[Experiment]
    left_out: dict[str, str]


def failed(*ids: str) -> Expected:
    return Expected("failed", ids)


MEMORY = "fills the GPU memory"
NCCL = "tests NCCL settings"
LATE = failed("program.straggler", "absent.rank")
OTHER = failed("program.other_operation")
INTERFACE = failed("address.interface_missing", "address.nccl_interface")
EXPERIMENTS = (
    Experiment("probe", "record properties of the machine", 15, Expected("kept"), probe),
    Experiment("healthy", "a launch; NCCL's log and RAS", 70, Expected("healthy", ("NET/Socket", "gloo")), healthy),
    Experiment("acceptance", "the acceptance test, quick", 90, Expected("healthy"), played("ddp_smoke.yml")),
    Experiment("killed", "rank 1 gets SIGKILL", 50, failed("process.killed"), killed),
    Experiment("stopped", "rank 1 gets SIGSTOP", 70, failed("process.stopped"), stopped),
    Experiment(
        "recorder", "recorders, and rank 1 is absent", 80, Expected("no verdict", ("program.straggler",)), recorder
    ),
    Experiment("dropped", "packets between ranks are dropped", 80, failed("network.ports_filtered"), dropped),
    Experiment("mismatch", "rank 1 calls a different collective", 60, OTHER, fault(FAULT="mismatch")),
    Experiment("one_host", "NCCL sees a single host", 50, failed("program.device_twice"), fault(**ONE_HOST), NCCL),
    Experiment("held", "a process of another node holds the GPU", 90, failed("gpu.memory.others"), held, MEMORY),
    Experiment("hog", "rank 1 allocates the GPU memory", 60, failed("gpu.memory.own"), fault(FAULT="hog"), MEMORY),
    Experiment("health", "the health check", 40, Expected("healthy"), played("health.yml")),
    Experiment("ifname", "a missing interface", 40, INTERFACE, fault(FAULT="ifname")),
    Experiment("refused", "ports of ranks reject, at the start", 60, failed("net.peer.refused"), refused),
    Experiment("absent", "rank 1 stops calling collectives", 60, LATE, fault(FAULT="absent")),
    Experiment("shape", "different tensor sizes", 60, failed("program.other_sizes"), fault(FAULT="shape"), NCCL),
    Experiment("detail", "mismatch with TORCH_DISTRIBUTED_DEBUG", 60, OTHER, fault(FAULT="mismatch", **DETAIL)),
    Experiment("blocking", "absent with a blocking wait", 60, LATE, fault(FAULT="absent", **BLOCKING), NCCL),
    Experiment("desync", "absent with TORCH_NCCL_DESYNC_DEBUG", 60, LATE, fault(FAULT="absent", **DESYNC), NCCL),
    Experiment("nccl2", "absent over nccl2, torch 2.14+", 60, LATE, over("nccl2", FAULT="absent", **NCCL2), NCCL),
    Experiment("legacy", "absent over NCCL's older backend", 60, LATE, over("nccl", FAULT="absent", **LEGACY), NCCL),
    Experiment("capture", "flight recorders during graph captures", 80, Expected("healthy"), capture, NCCL),
    Experiment("off", "node2 is switched off", 60, failed("access.host_down"), off),
)


def choose(wanted: list[str], gpus: int) -> Choice:
    """Return the requested experiments in order, or all experiments if none are requested."""
    unknown = set(wanted) - {one.name for one in EXPERIMENTS}
    if unknown:
        raise ValueError(f"no such experiment: {', '.join(sorted(unknown))}; --list prints the names")
    chosen = [one for one in EXPERIMENTS if not wanted or one.name in wanted]
    left_out = {one.name: f"needs a GPU: {one.gpu}" for one in chosen if one.gpu and not gpus}
    return Choice([one for one in chosen if one.name not in left_out], left_out)
