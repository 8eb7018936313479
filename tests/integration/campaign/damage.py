"""Inject, prove and revert the faults of the campaign's rows on nodes.

Faults before the start of a launch are context managers. Faults during a launch are reverted by `undo` of their row.
"""

from __future__ import annotations

import json
import re
import subprocess
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from net_faults import TABLE, black_hole, rules, wrong_route
from waiting import PATIENCE, until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager

    from machines import Machine
    from scene import Scene

    Before = Callable[[Scene], AbstractContextManager[None]]

PORT = 29500
EPHEMERAL = "32768-60999"  # the ephemeral ports of the kernel


# ---------------------------------------------------------------- the cgroup of the launch


def freezer(scene: Scene) -> Path:
    """Return the path of the launch unit's cgroup on node2, as seen by this machine. On hosts with cgroup v1
    controllers, systemd in a container cannot freeze units, but the kernel can.
    """
    path = Path(f"/proc/{scene.pid(1)}/cgroup").read_text().rpartition("0::")[2].strip()
    return next(tree for base in ("unified", "") if (tree := Path(f"/sys/fs/cgroup/{base}{path}")).is_dir())


def freeze(scene: Scene) -> None:
    (freezer(scene) / "cgroup.freeze").write_text("1")


def is_frozen(scene: Scene) -> bool:
    return "frozen 1" in (freezer(scene) / "cgroup.events").read_text()


def thaw(scene: Scene) -> None:
    """Thaw the launch unit if its processes still exist."""
    if scene.runs():
        (freezer(scene) / "cgroup.freeze").write_text("0")


# ---------------------------------------------------------------- files and disks


def missing_on(name: str, path: str) -> Before:
    """Create a file on all nodes except one."""

    @contextmanager
    def damage(scene: Scene) -> Iterator[None]:
        folder = path.rpartition("/")[0]
        for machine in scene.machines.values():
            machine.inside("mkdir", "--parents", folder)
            if machine.name != name:
                machine.inside("touch", path)
        try:
            there = {one.name for one in scene.machines.values() if exists(one, path)}
            assert there == set(scene.machines) - {name}
            yield
        finally:
            for machine in scene.machines.values():
                machine.inside("rm", "--recursive", "--force", folder)

    return damage


def module_on(names: Sequence[str], folder: str, module: str) -> Before:
    """Install a Python module on these nodes only."""

    @contextmanager
    def damage(scene: Scene) -> Iterator[None]:
        for machine in scene.machines.values():
            machine.inside("mkdir", "--parents", folder)
        for name in names:
            scene.machines[name].inside("touch", f"{folder}/{module}.py")
        try:
            yield
        finally:
            for machine in scene.machines.values():
                machine.inside("rm", "--recursive", "--force", folder)

    return damage


def exists(machine: Machine, path: str) -> bool:
    return machine.inside("test", "-e", path, check=False).returncode == 0


def closed_on(name: str, path: str) -> Before:
    """Create a file on all nodes. On one node, only root can read the file."""

    @contextmanager
    def damage(scene: Scene) -> Iterator[None]:
        folder = path.rpartition("/")[0]
        for machine in scene.machines.values():
            machine.inside("install", "-D", "--mode", "0600" if machine.name == name else "0644", "/dev/null", path)
        try:
            yield
        finally:
            for machine in scene.machines.values():
                machine.inside("rm", "--recursive", "--force", folder)

    return damage


def library_on(names: Sequence[str], path: str) -> Before:
    """Copy an existing shared library to these nodes only."""

    @contextmanager
    def damage(scene: Scene) -> Iterator[None]:
        folder = path.rpartition("/")[0]
        for name in names:
            scene.machines[name].inside("sh", "-c", f"install -D $(ldconfig -p | grep -om1 '/.*libm[.]so[.]6$') {path}")
        try:
            assert {one.name for one in scene.machines.values() if exists(one, path)} == set(names)
            yield
        finally:
            for machine in scene.machines.values():
                machine.inside("rm", "--recursive", "--force", folder)

    return damage


def other_code_on(name: str, payload: Path, path: str, change: tuple[str, str]) -> Before:
    """Copy the script to all nodes, and change one line of the script on one node."""

    @contextmanager
    def damage(scene: Scene) -> Iterator[None]:
        for machine in scene.machines.values():
            machine.inside("mkdir", "--parents", path.rpartition("/")[0])
            machine.podman_copy(payload, path)
        scene.machines[name].inside("sed", "--in-place", f"s/{change[0]}/{change[1]}/", path)
        try:
            assert change[1] in scene.machines[name].inside("cat", path).stdout
            yield
        finally:
            for machine in scene.machines.values():
                machine.inside("rm", "--recursive", "--force", path.rpartition("/")[0])

    return damage


def mounted(name: str, path: str, options: str, proof: Sequence[str], shown: str) -> Before:
    """Mount a tmpfs. proof: a command whose output must contain `shown`."""

    @contextmanager
    def damage(scene: Scene) -> Iterator[None]:
        machine = scene.machines[name]
        machine.inside("mkdir", "--parents", path)
        machine.inside("mount", "-t", "tmpfs", "-o", f"mode=1777,{options}", "tmpfs", path)
        try:
            assert shown in machine.inside(*proof).stdout
            yield
        finally:
            machine.inside("umount", "--lazy", path)
            machine.inside("rmdir", path)

    return damage


def full_disk(name: str, path: str) -> Before:
    return mounted(name, path, "size=2m", ["df", "--output=size", path], "2048")


def few_inodes(name: str, path: str) -> Before:
    return mounted(name, path, "nr_inodes=40", ["df", "--output=itotal", path], "40")


def read_only(name: str, path: str) -> Before:
    return mounted(name, path, "ro", ["findmnt", "--noheadings", "--output=OPTIONS", path], "ro")


def small_shm(name: str, size: str) -> Before:
    """Reduce the size of /dev/shm on a node."""

    @contextmanager
    def damage(scene: Scene) -> Iterator[None]:
        machine = scene.machines[name]
        before = machine.inside("df", "--output=size", "/dev/shm").stdout.split()[-1]
        machine.inside("mount", "-o", f"remount,size={size}", "/dev/shm")
        try:
            assert machine.inside("df", "--output=size", "/dev/shm").stdout.split()[-1] != before
            yield
        finally:
            machine.inside("mount", "-o", f"remount,size={before}k", "/dev/shm")

    return damage


def limit_open_files(scene: Scene, rank: int, most: int) -> None:
    """Limit the number of open files of a rank, which is a local process because nodes share the kernel of this
    machine. prlimit runs as the rank's user, because root does not have CAP_SYS_RESOURCE.
    """
    pid = scene.pid(rank)
    argv = ["prlimit", f"--pid={pid}", f"--nofile={most}:{most}"]
    whose = Path(f"/proc/{pid}").stat()
    subprocess.run(argv, check=True, user=whose.st_uid, group=whose.st_gid)


def open_files_of(scene: Scene, rank: int) -> int:
    return int(Path(f"/proc/{scene.pid(rank)}/limits").read_text().partition("Max open files")[2].split()[0])


# ---------------------------------------------------------------- the network


def filtered(name: str, match: str, verdict: str) -> Before:
    """Add a filter rule for incoming packets. The rule must have matched a packet when the fault is reverted. match:
    node names in braces are replaced with the addresses of the nodes.
    """

    @contextmanager
    def damage(scene: Scene) -> Iterator[None]:
        addresses = {one.name: one.address for one in scene.machines.values()}
        with rules(scene.machines[name], f"{match.format(**addresses)} counter {verdict}"):
            yield

    return damage


def from_nodes(callers: Sequence[str]) -> str:
    return "ip saddr {{ " + ", ".join(f"{{{one}}}" for one in callers) + " }}"


def dropped(name: str, callers: Sequence[str]) -> Before:
    return filtered(name, f"{from_nodes(callers)} tcp dport {PORT}", "drop")


def rejected(name: str, callers: Sequence[str]) -> Before:
    return filtered(name, f"{from_nodes(callers)} tcp dport {PORT}", "reject with tcp reset")


def prohibited(name: str, callers: Sequence[str]) -> Before:
    return filtered(name, f"{from_nodes(callers)} tcp dport {PORT}", "reject with icmp type admin-prohibited")


def ephemeral_dropped(name: str, callers: Sequence[str]) -> Before:
    return filtered(name, f"{from_nodes(callers)} tcp dport {EPHEMERAL}", "drop")


def reply_lost(head: str, caller: str) -> Before:
    return filtered(caller, f"{from_nodes([head])} tcp sport {PORT}", "drop")


def wrong_route_to(name: str, peer: str) -> Before:
    return lambda scene: wrong_route(scene.machines[name], scene.machines[peer])


def black_hole_at(name: str, callers: Sequence[str], largest: int) -> Before:
    return lambda scene: black_hole(scene.machines[name], [scene.machines[one] for one in callers], largest)


def sleeping_payload(scene: Scene) -> AbstractContextManager[None]:
    """Inject nothing, because the payload itself sleeps before the rendezvous."""
    del scene
    return nullcontext()


def slow_at(name: str, rate: str) -> Before:
    """Limit the outgoing bandwidth of a node to other nodes. Traffic to the controller is not limited."""

    @contextmanager
    def damage(scene: Scene) -> Iterator[None]:
        machine = scene.machines[name]
        peers = [one.address for one in scene.machines.values() if one.name != name]
        machine.inside("tc", "qdisc", "add", "dev", "eth0", "root", "handle", "1:", "htb", "default", "2")
        for name_, its in (("1:2", "10gbit"), ("1:3", rate)):
            machine.inside("tc", "class", "add", "dev", "eth0", "parent", "1:", "classid", name_, "htb", "rate", its)
        # A short queue, as in a switch. A queue of a minute would delay the following probes.
        machine.inside("tc", "qdisc", "add", "dev", "eth0", "parent", "1:3", "handle", "3:", "bfifo", "limit", "10000")
        lines = [f"add table inet {TABLE}"]
        lines.append(f"add chain inet {TABLE} out {{ type filter hook output priority 0; }}")
        lines.append(f"add rule inet {TABLE} out ip daddr {{ {', '.join(peers)} }} meta priority set 1:3")
        machine.inside("nft", "\n".join(lines))
        try:
            yield
            shown = machine.inside("tc", "-statistics", "class", "show", "dev", "eth0").stdout
            assert re.search(r"class htb 1:3 [^\0]*?overlimits [1-9]", shown), shown
        finally:
            machine.inside("nft", f"delete table inet {TABLE}")
            machine.inside("tc", "qdisc", "delete", "dev", "eth0", "root")

    return damage


def cut_off(name: str, match: str) -> Callable[[Scene], None]:
    """Return a function that adds a rule for dropping incoming packets. `reconnect` removes the rule."""

    def strike(scene: Scene) -> None:
        addresses = {one.name: one.address for one in scene.machines.values()}
        lines = [f"add table inet {TABLE}"]
        lines.append(f"add chain inet {TABLE} in {{ type filter hook input priority -10; }}")
        lines.append(f"add rule inet {TABLE} in {match.format(**addresses)} counter drop")
        scene.machines[name].inside("nft", "\n".join(lines))

    return strike


def packets_are_dropped(name: str) -> Callable[[Scene], bool]:
    """Return a function that checks whether the rule has dropped a packet."""

    def proof(scene: Scene) -> bool:
        shown = scene.machines[name].inside("nft", "--json", "list", "table", "inet", TABLE, check=False).stdout
        return any(
            part["counter"]["packets"] > 0
            for entry in json.loads(shown or '{"nftables": []}')["nftables"]
            for part in entry.get("rule", {}).get("expr", ())
            if "counter" in part
        )

    return proof


def reconnect(name: str) -> Callable[[Scene], None]:
    return lambda scene: void(scene.machines[name].inside("nft", f"delete table inet {TABLE}", check=False))


# ---------------------------------------------------------------- whole nodes


def pause(name: str) -> Callable[[Scene], None]:
    def strike(scene: Scene) -> None:
        scene.frozen = name
        scene.machines[name].podman("pause")

    return strike


def go_on(name: str) -> Callable[[Scene], None]:
    return lambda scene: scene.machines[name].podman("unpause")


def switch_off(name: str) -> Callable[[Scene], None]:
    return lambda scene: scene.machines[name].podman("stop", "--time=0")


def switch_on(name: str) -> Callable[[Scene], None]:
    def undo(scene: Scene) -> None:
        scene.machines[name].podman("start")
        until(scene.machines[name].ssh_answers, PATIENCE, "the node accepts SSH again")

    return undo


def silent(name: str) -> Callable[[Scene], bool]:
    return lambda scene: not scene.machines[name].ssh_answers()


def void(value: object) -> None:
    del value
