"""Rows in which a resource of a node is exhausted."""

from __future__ import annotations

from damage import few_inodes, full_disk, limit_open_files, open_files_of, read_only, small_shm
from limits import FEWER_TASKS, LESS_MEMORY, LITTLE_TIME
from row import Row

DATA = "/var/lib/muster-test-disk"

ROWS = (
    Row(
        "resources-disk",
        "a rank's output disk is full",
        right=("resources.disk @ node2",),
        twin="No space left on device",
        arguments=(f"--fault=fill={DATA}",),
        before=full_disk("node2", DATA),
        gates=("node2",),
    ),
    Row(
        "resources-inodes",
        "a rank's output disk has no free inodes",
        right=("resources.inodes @ node2",),
        twin="No space left on device",
        arguments=(f"--fault=many-files={DATA}",),
        before=few_inodes("node2", DATA),
        gates=("node2",),
    ),
    Row(
        "resources-read-only",
        "a rank's output disk is read-only",
        right=("resources.read_only @ node2",),
        arguments=(f"--fault=fill={DATA}",),
        before=read_only("node2", DATA),
        gates=("node2",),
    ),
    Row(
        "resources-shm",
        "/dev/shm is too small for data loader workers",
        right=("resources.shared_memory @ node2",),
        twin="exitcode -9",
        arguments=("--fault=workers",),
        before=small_shm("node2", "8m"),
        gates=("node2",),
    ),
    Row(
        "resources-files",
        "a rank exceeds its limit of open files",
        right=("resources.files @ node2",),
        arguments=("--fault=files=/dev/null",),
        strike=lambda scene: limit_open_files(scene, 1, 400),
        proof=lambda scene: open_files_of(scene, 1) == 400,
        gates=("node2",),
    ),
    Row(
        "resources-tasks",
        "a rank exceeds its node's limit of tasks",
        right=("resources.tasks @ node2",),
        arguments=("--fault=threads",),
        strike=FEWER_TASKS.put,
        proof=FEWER_TASKS.is_on,
        undo=FEWER_TASKS.take_back,
        gates=("node2",),
    ),
    Row(
        "resources-memory",
        "a rank uses more memory than its node has",
        right=("process.memory.machine @ node2",),
        twin="exitcode -9",
        arguments=("--fault=hoard",),
        strike=LESS_MEMORY.put,
        proof=LESS_MEMORY.is_on,
        undo=LESS_MEMORY.take_back,
        gates=("node2",),
    ),
    Row(
        "resources-allocate",
        "a rank allocates more memory than any machine has",
        right=("process.exception @ node2", "resources.memory @ node2"),
        arguments=("--fault=allocate",),
        gates=("node2",),
    ),
    Row(
        "resources-cpu",
        "one node is limited to 1 % of a CPU for a while, and a collective times out",
        right=("resources.processor_time @ node2",),
        twin="Timed out waiting for recv",
        arguments=("--size=12000000", "--timeout=4"),
        strike=LITTLE_TIME.put,
        proof=LITTLE_TIME.is_on,
        undo=LITTLE_TIME.take_back,
    ),
)
