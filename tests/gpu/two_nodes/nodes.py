"""Create and remove two nodes on this machine: namespaces with systemd as PID 1, and a network between the nodes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
import uuid
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from . import layers, machine
from .layers import BASE, CONTROLLER, PLACE, call, in_root

if TYPE_CHECKING:
    from collections.abc import Callable

Found = TypeVar("Found")
NODES = ("node1", "node2")
PREFIX = os.environ.get("TWO_NODES_PREFIX", "10.209.0")
ADDRESS = {node: f"{PREFIX}.{11 + number}" for number, node in enumerate(NODES)}
BRIDGE = "two-nodes"
STATE = PLACE / "state.json"
INIT = Path(__file__).with_name("init.sh")
# Enters the cgroups of a node before its namespaces.
BEGIN = """
folder=$1 init=$2 root=$3; shift 3
for group in "$@"; do echo $$ >"$group/cgroup.procs" || exit; done
exec unshare --mount --uts --ipc --net --pid --cgroup --fork --kill-child --propagation=private \\
    bash "$init" "$folder" "$root"
"""
PATIENCE = 60.0  # seconds


def state() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(STATE.read_text()) if STATE.exists() else {}
    return found


def keep(**more: Any) -> None:
    """Record an item that the removal must know about, before the item is created."""
    STATE.write_text(json.dumps({**state(), **more}))


def inside(node: str, *argv: str) -> list[str]:
    """Return the argv that runs a command as root in all namespaces of a node."""
    spaces = ["--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup", "--root"]
    return ["nsenter", f"--target={state()['init'][node]}", *spaces, "env", "--chdir=/", *argv]


def until(condition: Callable[[], Found], what: str) -> Found:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        if found := condition():
            return found
        time.sleep(0.1)
    raise TimeoutError(f"not within {PATIENCE:.0f} s: {what}")


def make_groups() -> str:
    """Create a cgroup for each node in each hierarchy that systemd uses."""
    trees, name = (
        machine.trees_of(machine.read_mounts(Path("/proc/mounts").read_text())),
        f"two-nodes-{uuid.uuid4().hex[:8]}",
    )
    lines, groups = [], []
    for number, tree in enumerate(trees):
        options = ",".join(["nosuid", "nodev", "noexec", *([tree.options] if tree.options else [])])
        place = Path(tree.place or PLACE / f"tree{number}")
        if not tree.place:
            place.mkdir()
            call("mount", "-t", tree.kind, "-o", options, tree.kind, place)
        lines.append(f"{tree.kind} {options} /sys/fs/cgroup{'' if len(trees) == 1 else f'/{tree.name}'}\n")
        groups.append(str(place / name))
        keep(groups=groups)
        for node in NODES:
            (place / name / node).mkdir(parents=True)
    (PLACE / "trees").write_text("".join(lines))
    if len(trees) == 1 and trees[0].kind == "cgroup2":
        delegate(Path(groups[0]))
    return f"control groups of nodes: {', '.join(tree.name for tree in trees)}"


def delegate(group: Path) -> None:
    """Enable cgroup v2 controllers for nodes. Record the controllers that were not enabled in the root group."""
    control = group.parent / "cgroup.subtree_control"
    wanted = (group.parent / "cgroup.controllers").read_text().split()
    keep(handed_on=[one for one in wanted if one not in control.read_text().split()])
    for one in wanted:
        for file in (control, group / "cgroup.subtree_control"):
            with suppress(OSError):  # a controller in use elsewhere, e.g. by cgroup v1
                file.write_text(f"+{one}")


def begin(node: str) -> None:
    """Start the first process of a node, which waits for the node's network."""
    folder = PLACE / node
    root = folder / "root"
    layers.mount_root(root, PLACE / "base/upper", Path("/"))
    call(*in_root(CONTROLLER, "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / "ssh_host_ed25519_key"))
    for name, mode in (("ssh_host_ed25519_key", 0o600), ("ssh_host_ed25519_key.pub", 0o644)):
        layers.write(root / "etc/ssh" / name, (folder / name).read_text(), mode)
    kind, key, *_ = (folder / "ssh_host_ed25519_key.pub").read_text().split()
    with (PLACE / "known_hosts").open("a") as known:
        known.write(f"{ADDRESS[node]} {kind} {key}\n")
    (root / "etc/hostname").write_text(f"{node}\n")
    names = "".join(f"{address} {name}\n" for name, address in ADDRESS.items())
    (root / "etc/hosts").write_text(f"127.0.0.1 localhost\n::1 localhost\n{names}")
    (root / "etc/machine-id").write_text(f"{uuid.uuid4().hex}\n")
    (folder / "boot_id").write_text(f"{uuid.uuid4()}\n")
    (folder / "trees").write_text((PLACE / "trees").read_text())
    os.mkfifo(folder / "go")
    groups = [f"{group}/{node}" for group in state()["groups"]]
    with (folder / "log").open("w") as log:
        words = ["bash", "-c", BEGIN, "-", str(folder), str(INIT), str(root), *groups]
        outer = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        )
    keep(outer={**state().get("outer", {}), node: outer.pid})

    def first() -> int:
        if outer.poll() is not None:
            raise RuntimeError(f"{node} ended: {(folder / 'log').read_text()[-300:]}")
        children = Path(f"/proc/{outer.pid}/task/{outer.pid}/children").read_text().split()
        own = Path("/proc/self/ns/net").readlink()
        return next((int(one) for one in children if Path(f"/proc/{one}/ns/net").readlink() != own), 0)

    keep(init={**state().get("init", {}), node: until(first, f"{node} has a first process")})


def make_network() -> str:
    """Connect the nodes with a bridge, or with separate routed links if the kernel has no bridges."""
    ip, gateway = in_root(CONTROLLER, "ip"), f"{PREFIX}.1"
    try:
        call(*ip, "link", "add", BRIDGE, "type", "bridge")
        call(*ip, "address", "add", f"{gateway}/24", "dev", BRIDGE)
        call(*ip, "link", "set", BRIDGE, "up")
        how = "bridge"
    except RuntimeError as error:
        forward = Path("/proc/sys/net/ipv4/ip_forward")
        keep(ip_forward=forward.read_text())
        forward.write_text("1")
        how = f"routed, since {error}"
    for number, node in enumerate(NODES, 1):
        link, peer, init = f"two-{node}", f"two-p{number}", str(state()["init"][node])
        call(*ip, "link", "add", link, "type", "veth", "peer", "name", peer, "netns", init)
        commands = (
            f"ip link set lo up; ip link set {peer} name eth0; ip address add {ADDRESS[node]}/24 dev eth0;"
            f" ip link set eth0 up; ip route add default via {gateway}"
        )
        call("nsenter", f"--target={init}", "--net", *in_root(CONTROLLER, "sh", "-ec", commands))
        if how == "bridge":
            call(*ip, "link", "set", link, "master", BRIDGE, "up")
        else:
            call(*ip, "address", "add", f"{gateway}/32", "dev", link)
            call(*ip, "link", "set", link, "up")
            call(*ip, "route", "add", f"{ADDRESS[node]}/32", "dev", link, "src", gateway)
            Path(f"/proc/sys/net/ipv4/conf/{link}/proxy_arp").write_text("1")
        (PLACE / node / "go").write_text("go\n")
    return how


def wait_for_boot() -> str:
    """Wait until each node has booted and accepts connections from the controller. Return a description."""
    said = []
    for node in NODES:

        def booted(node: str = node) -> str:
            asked = subprocess.run(
                inside(node, "systemctl", "is-system-running"), check=False, capture_output=True, text=True
            )
            return asked.stdout.strip() if asked.stdout.strip() in ("running", "degraded") else ""

        how = until(booted, f"{node} has booted")
        other = NODES[1 - NODES.index(node)]
        words = f"hostname; sudo -n id -un; ps -o comm= -p 1; ping -c1 -W2 {other} >/dev/null && echo reached {other}"
        options = [
            "-o",
            f"UserKnownHostsFile={PLACE}/known_hosts",
            "-o",
            "StrictHostKeyChecking=yes",
            "-o",
            "BatchMode=yes",
        ]
        ssh = ["ssh", "-n", "-i", f"{PLACE}/id_ed25519", *options, f"admin@{ADDRESS[node]}", words]
        seen = call(*in_root(CONTROLLER, *ssh)).split("\n")
        if seen[:4] != [node, "root", "systemd", f"reached {other}"]:
            raise RuntimeError(f"{node} answers over ssh: {seen}")
        said.append(f"{node} {how}")
    return ", ".join(said)


def of_rank(rank: int) -> int:
    """Return the PID of a rank in this machine's PID namespace."""
    for path in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            words = path.read_bytes().split(b"\0")
            if f"RANK={rank}".encode() in words and any(word.startswith(b"MUSTER_LAUNCH_ID=") for word in words):
                return int(path.parent.name)
    raise LookupError(f"rank {rank} does not run")


def end_controller() -> bool:
    """End the controller's playbooks and shared SSH connections. Return whether nothing had to be ended."""
    ended = True
    for path in Path("/proc").glob("[0-9]*/root"):
        with suppress(OSError):
            if path.readlink() in (CONTROLLER, BASE):
                ended = False
                os.kill(int(path.parent.name), signal.SIGKILL)
    return ended


def remove() -> list[str]:
    """Remove everything that was created. Return the items that could not be removed."""
    if not PLACE.exists():
        return []
    known = state()
    own = Path("/proc/self/ns/pid").readlink()
    for pid in known.get("init", {}).values():
        # Killing the first process of a namespace ends all others. Its number may have been reused.
        with suppress(OSError):
            if Path(f"/proc/{pid}/ns/pid").readlink() != own:
                os.kill(pid, signal.SIGKILL)
    until(end_controller, "the controller's processes have ended")
    until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in known.get("init", {}).values()), "nodes have ended")
    for link in (*(f"two-{node}" for node in NODES), BRIDGE):
        # The link may be gone with its namespace, which an open connection can keep for a while.
        with suppress(RuntimeError):
            call(*in_root(CONTROLLER, "ip", "link", "delete", link))
    if "ip_forward" in known:
        Path("/proc/sys/net/ipv4/ip_forward").write_text(known["ip_forward"])
    for group in known.get("groups", []):
        for folder, _, _ in os.walk(group, topdown=False):
            Path(folder).rmdir()
        for one in known.get("handed_on", []):
            with suppress(OSError):
                Path(group).with_name("cgroup.subtree_control").write_text(f"-{one}")
    call("umount", "-R", PLACE)
    PLACE.rmdir()
    return left(known)


def left(known: dict[str, Any]) -> list[str]:
    """Return what is left of removed nodes."""
    mounts = [one.place for one in machine.read_mounts(Path("/proc/mounts").read_text())]
    links = [f"/sys/class/net/{name}" for name in (BRIDGE, *(f"two-{node}" for node in NODES))]
    places = [*known.get("groups", []), *links, str(PLACE)]
    processes = [f"process {pid}" for pid in known.get("init", {}).values() if Path(f"/proc/{pid}").exists()]
    below = [one for one in mounts if one.startswith(str(PLACE))]
    return [*below, *(one for one in places if Path(one).exists()), *processes]
