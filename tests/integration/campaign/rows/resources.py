"""Something runs out on a node."""

from __future__ import annotations

from damage import few_inodes, full_disk, limit_open_files, open_files_of, read_only, small_shm
from row import Row

DATA = "/var/lib/muster-test-disk"

ROWS = (
    Row(
        "resources-disk",
        "the disk that a rank writes to is full",
        "resources",
        right=("resources.disk @ node2",),
        twin="No space left on device",
        arguments=(f"--fault=fill={DATA}",),
        before=full_disk("node2", DATA),
        gates=("node2",),
    ),
    Row(
        "resources-inodes",
        "the disk that a rank writes to has no inodes left",
        "resources",
        right=("resources.inodes @ node2",),
        twin="No space left on device",
        arguments=(f"--fault=many-files={DATA}",),
        before=few_inodes("node2", DATA),
        gates=("node2",),
    ),
    Row(
        "resources-read-only",
        "the disk that a rank writes to is read-only",
        "resources",
        right=("resources.read_only @ node2",),
        arguments=(f"--fault=fill={DATA}",),
        before=read_only("node2", DATA),
        gates=("node2",),
    ),
    Row(
        "resources-shm",
        "/dev/shm is too small for a data loader's workers",
        "resources",
        right=("resources.shared_memory @ node2",),
        twin="exitcode -9",
        arguments=("--fault=workers",),
        before=small_shm("node2", "8m"),
        gates=("node2",),
    ),
    Row(
        "resources-files",
        "a rank opens more files than it may",
        "resources",
        right=("resources.files @ node2",),
        arguments=("--fault=files=/dev/null",),
        strike=lambda scene: limit_open_files(scene, 1, 400),
        proof=lambda scene: open_files_of(scene, 1) == 400,
        gates=("node2",),
    ),
    Row(
        "resources-tasks",
        "a rank begins more threads than the launch may have",
        "resources",
        right=("resources.tasks @ node2",),
        arguments=("--fault=threads",),
        strike=lambda scene: scene.systemctl(
            scene.machines["node2"], "set-property", "--runtime", scene.unit(), "TasksMax=80"
        ),
        proof=lambda scene: "=80" in scene.systemctl(scene.machines["node2"], "show", "-pTasksMax", scene.unit()),
        gates=("node2",),
    ),
    Row(
        "resources-memory-limit",
        "a rank uses more memory than the launch may have",
        "resources",
        right=("process.memory.limit @ node2",),
        twin="exitcode -9",
        arguments=("--fault=hoard",),
        strike=lambda scene: scene.systemctl(
            scene.machines["node2"], "set-property", "--runtime", scene.unit(), "MemoryMax=900M", "MemorySwapMax=0"
        ),
        proof=lambda scene: (
            "=943718400" in scene.systemctl(scene.machines["node2"], "show", "-pMemoryMax", scene.unit())
        ),
        gates=("node2",),
    ),
    Row(
        "resources-allocate",
        "a rank asks for more memory than any machine has",
        "resources",
        right=("process.exception @ node2", "resources.memory @ node2"),
        arguments=("--fault=allocate",),
        gates=("node2",),
    ),
    Row(
        "resources-cpu",
        "the launch may use a fiftieth of a processor on one node, and a collective times out",
        "resources",
        right=("resources.processor_time @ node2",),
        twin="Timed out waiting for recv",
        arguments=("--size=3000000", "--timeout=4"),
        strike=lambda scene: scene.systemctl(
            scene.machines["node2"], "set-property", "--runtime", scene.unit(), "CPUQuota=1%"
        ),
        proof=lambda scene: (
            "USec=10ms" in scene.systemctl(scene.machines["node2"], "show", "-pCPUQuotaPerSecUSec", scene.unit())
        ),
    ),
)
