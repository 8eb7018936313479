"""Change the resource limits of a node during a launch, by changing the limits of its container from outside.

In a container on a host with cgroup v1 controllers, systemd accepts limits for units but does not apply them.
"""

from __future__ import annotations

import subprocess
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from scene import Scene

NAME = "node2"
CGROUPS = Path("/sys/fs/cgroup")
MIB = 1 << 20


def group(scene: Scene, controller: str) -> tuple[Path, bool]:
    """Return the path of the container's cgroup on this machine, and whether the cgroup is v2."""
    argv = ["podman", "inspect", "--format", "{{.State.Pid}}", scene.machines[NAME].container]
    pid = subprocess.run(argv, check=True, capture_output=True, text=True).stdout.strip()
    paths = {}
    for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
        controllers, _, path = line.partition(":")[2].partition(":")
        paths.update(dict.fromkeys(controllers.split(","), path.removesuffix("/init.scope")))
    if controller in paths:
        return CGROUPS / controller / paths[controller].lstrip("/"), False
    return CGROUPS / paths[""].lstrip("/"), True


@dataclass
class Limit:
    """controller: name of the cgroup controller. v1, v2: names of the limit's file. value: returns the new limit for a
    cgroup path and whether it is v2. seconds: revert the limit after this time, before the launch gives up the node.
    """

    controller: str
    v1: str
    v2: str
    value: Callable[[Path, bool], str]
    seconds: float = 0.0
    before: str = field(default="", init=False)
    written: str = field(default="", init=False)

    def file(self, scene: Scene) -> Path:
        folder, is_v2 = group(scene, self.controller)
        return folder / (self.v2 if is_v2 else self.v1)

    def put(self, scene: Scene) -> None:
        file = self.file(scene)
        self.before = file.read_text().strip()
        file.write_text(self.value(*group(scene, self.controller)))
        self.written = file.read_text().strip()
        if self.seconds:
            threading.Timer(self.seconds, self.take_back, (scene,)).start()

    def is_on(self, scene: Scene) -> bool:
        return self.file(scene).read_text().strip() == self.written != self.before

    def take_back(self, scene: Scene) -> None:
        if self.before:
            self.file(scene).write_text(self.before)


def number(folder: Path, name: str) -> int:
    return int((folder / name).read_text())


FEWER_TASKS = Limit("pids", "pids.max", "pids.max", lambda folder, _: str(number(folder, "pids.current") + 40))
LESS_MEMORY = Limit(
    "memory",
    "memory.limit_in_bytes",
    "memory.max",
    lambda folder, v2: str(number(folder, "memory.current" if v2 else "memory.usage_in_bytes") + 300 * MIB),
)
LITTLE_TIME = Limit("cpu", "cpu.cfs_quota_us", "cpu.max", lambda _, v2: "1000 100000" if v2 else "1000", seconds=8)
