"""Rows in which a process exits, or is killed, stopped or frozen."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

from damage import closed_on, freeze, is_frozen, library_on, missing_on, module_on, thaw
from drill import fields, hit, processes
from row import Row

if TYPE_CHECKING:
    from scene import Scene

STALL = {"launch_stall_timeout": 15}


def stopped(scene: Scene) -> bool:
    return fields(scene.pid(1))[:1] == ["T"]


def gone(scene: Scene) -> bool:
    return not any(env.get("RANK") == "1" for env in processes(scene.launch_id).values())


ROWS = (
    Row(
        "process-raise",
        "a rank raises an exception",
        right=("process.exception @ node2",),
        arguments=("--fault=raise",),
        gates=("node2",),
        in_ci=True,
    ),
    Row(
        "process-raise-everywhere",
        "every rank raises the same exception",
        right=("process.exception.everywhere @ no node",),
        arguments=("--fault=key", "--rank=all"),
        gates=("node2",),
    ),
    Row(
        "process-raise-before",
        "a rank raises an exception before the rendezvous",
        right=("process.exception @ node3",),
        arguments=("--fault=key", "--rank=2", "--before", "--timeout=30"),
    ),
    Row(
        "process-exit",
        "a rank exits with code 3",
        right=("process.exit @ node2",),
        arguments=("--fault=exit",),
        gates=("node2",),
    ),
    Row(
        "process-exit-words",
        "a rank exits with a message",
        right=("process.exit @ node3",),
        arguments=("--fault=exit-words", "--rank=2"),
        gates=("node3",),
    ),
    Row(
        "process-segv",
        "a rank has a segmentation fault",
        right=("process.crash @ node2",),
        arguments=("--fault=segv",),
        gates=("node2",),
    ),
    Row(
        "process-abort",
        "native code of a rank aborts",
        right=("process.crash @ node1",),
        arguments=("--fault=abort", "--rank=0"),
        gates=("node1",),
    ),
    Row(
        "process-killed",
        "a rank is killed with SIGKILL",
        right=("process.killed @ node2",),
        twin="exitcode -9",
        strike=lambda scene: hit(scene.pid(1), signal.SIGKILL),
        proof=gone,
    ),
    Row(
        "process-term",
        "a rank is terminated with SIGTERM",
        right=("process.rank_terminated @ node2",),
        strike=lambda scene: hit(scene.pid(1), signal.SIGTERM),
        proof=gone,
    ),
    Row(
        "process-worker-killed",
        "a data loader worker is killed",
        right=("process.worker @ node2",),
        twin="exitcode -9",
        arguments=("--fault=worker-killed",),
        gates=("node2",),
    ),
    Row(
        "process-stopped",
        "a rank is stopped with SIGSTOP, and the launch stalls",
        right=("process.stopped @ node2",),
        twin="no line is written any more",
        variables=STALL,
        strike=lambda scene: hit(scene.pid(1), signal.SIGSTOP),
        proof=stopped,
        in_ci=True,
    ),
    Row(
        "process-stopped-timeout",
        "a rank is stopped with SIGSTOP, and the other ranks' collective times out",
        right=("process.stopped @ node2",),
        twin="Timed out waiting for recv",
        arguments=("--timeout=15",),
        strike=lambda scene: hit(scene.pid(1), signal.SIGSTOP),
        proof=stopped,
    ),
    Row(
        "process-frozen",
        "the launch's cgroup is frozen on a node, and the launch stalls",
        right=("process.frozen @ node2",),
        twin="no line is written any more",
        variables=STALL,
        strike=freeze,
        proof=is_frozen,
        undo=thaw,
    ),
    Row(
        "process-launcher",
        "torchrun is killed on a node",
        right=("process.launcher @ node2",),
        strike=lambda scene: hit(scene.agent("node2"), signal.SIGKILL),
        proof=gone,
    ),
    Row(
        "process-unit",
        "the launch's unit is stopped on a node",
        right=("process.unit @ node2",),
        strike=lambda scene: scene.systemctl(scene.machines["node2"], "stop", "--no-block", scene.unit()),
        proof=gone,
    ),
    Row(
        "process-file",
        "a file is missing on one node",
        right=("process.missing.file @ node2",),
        arguments=("--fault=open=/var/lib/muster-test-data/labels", "--rank=all"),
        before=missing_on("node2", "/var/lib/muster-test-data/labels"),
        gates=("node2",),
    ),
    Row(
        "process-permission",
        "a file on one node is not readable for the launch user",
        right=("process.missing.permission @ node2",),
        arguments=("--fault=open=/var/lib/muster-test-data/labels", "--rank=all"),
        before=closed_on("node2", "/var/lib/muster-test-data/labels"),
        gates=("node2",),
    ),
    Row(
        "process-library",
        "a shared library is missing on one node",
        right=("process.missing.library @ node2",),
        arguments=("--fault=library=/var/lib/muster-test-libraries/libmuster_test.so", "--rank=all"),
        before=library_on(("node1", "node3"), "/var/lib/muster-test-libraries/libmuster_test.so"),
        gates=("node2",),
    ),
    Row(
        "process-launcher-told",
        "torchrun is terminated with SIGTERM on a node",
        right=("process.terminated @ node2",),
        strike=lambda scene: hit(scene.agent("node2"), signal.SIGTERM),
        proof=gone,
    ),
    Row(
        "process-hangup",
        "torchrun gets SIGHUP on a node, as when the login that started it ends",
        right=("process.hangup @ node2",),
        strike=lambda scene: hit(scene.agent("node2"), signal.SIGHUP),
        proof=gone,
    ),
    Row(
        "process-time-limit",
        "the launch reaches its time limit",
        right=("process.time_limit @ no node",),
        variables={"launch_time_limit": 15},
    ),
    Row(
        "process-module",
        "a module is missing on one node",
        right=("process.missing.package @ node2",),
        arguments=("--fault=import=muster_test_module", "--rank=all", "--before", "--timeout=30"),
        variables={"launch_env": {"PYTHONPATH": "/var/lib/muster-test-modules"}},
        before=module_on(("node1", "node3"), "/var/lib/muster-test-modules", "muster_test_module"),
    ),
)
