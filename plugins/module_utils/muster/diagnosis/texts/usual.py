"""The usual causes of a line, most frequent first. The order counts only while no check has confirmed a cause.

The sources are the resolutions of the public reports that the texts name, and the documentation of NCCL and PyTorch.
"""

from __future__ import annotations

# Lines that only name the library that failed. Any other line of the same output tells more.
VAGUE = frozenset(
    {
        *("nccl.system_error", "nccl.cuda_error", "nccl.internal_error", "nccl.remote", "nccl.heartbeat"),
        "nccl.invalid_usage",
        *("rendezvous.connection", "rendezvous.timeout", "store.connect.timeout", "store.timeout", "store.closed"),
        *("system.actor_died", "system.crashed", "system.killed"),
    }
)
# Ordinary lines that show where a launch hangs. They tell nothing if another line names an error.
WHERE_IT_HANGS = frozenset({"store.members", "nccl.starting", "nccl.peer_to_peer", "nccl.ready", "before.lock"})
UNREACHED = ("head.filtered", "head.nobody_listens", "head.no_host", "head.rejected", "head.no_route")
SLOW_OR_OTHER = (
    "program.straggler",
    "program.alone",
    "program.other_operation",
    "program.other_sizes",
    "program.uneven_steps",
)
MEMORY = ("process.memory.machine", "process.memory.limit", "process.killed")
ABSENT = ("absent.node", "agreement.two_heads", "agreement.rank", "agreement.no_head", "agreement.count", "absent.late")

USUAL: dict[str, tuple[str, ...]] = {
    "store.connect.timeout": UNREACHED,
    "store.connect.refused": ("head.nobody_listens", "head.rejected", "absent.late", "agreement.port"),
    "store.connect.unanswered": UNREACHED,
    "store.connect.no_host": ("head.no_host", "head.forbidden", "head.no_route"),
    "store.connect.no_route": ("head.no_route", "head.other_route"),
    "store.connect.none": ("head.no_route", "head.no_host"),
    "store.name": ("head.name_unknown", "head.name_foreign", "head.name_loopback"),
    "rendezvous.connection": UNREACHED,
    "rendezvous.timeout": (*ABSENT, "head.filtered"),
    "store.clients": (*ABSENT, "head.filtered"),
    "store.barrier": ABSENT,
    "store.timeout": ABSENT,
    "store.members": ABSENT,
    "store.key": ("absent.rank", "absent.busy", "absent.node", "head.stale_store"),
    "store.in_use": ("head.stale_store", "head.other_program"),
    "store.closed": ("head.nobody_listens", "head.other_program", "head.stale_store"),
    "gloo.connect.refused": ("address.loopback", "address.bridge", "address.other", "network.ports_rejected"),
    "gloo.connect.no_host": ("network.ports_rejected", "address.other", "address.bridge"),
    "gloo.connect.timeout": ("network.ports_filtered", "address.bridge", "address.other", "address.interface_other"),
    "gloo.mesh": ("address.loopback", "address.interface_other", "network.ports_filtered", "network.ports_rejected"),
    "gloo.timeout": SLOW_OR_OTHER,
    "gloo.barrier": ("program.straggler", "program.barrier", "absent.rank"),
    "nccl.timeout": SLOW_OR_OTHER,
    "nccl.timeout 1": ("program.straggler", "fabric.peer_to_peer", "program.other_operation"),  # the first collective
    "nccl.heartbeat": SLOW_OR_OTHER,
    "nccl.connect": ("network.ports_rejected", "network.ports_filtered", "address.bridge", "interference.container"),
    "nccl.system_error": ("resources.shared_memory", "network.ports_rejected", "network.ports_filtered"),
    "nccl.cuda_error": ("fabric.manager", "gpu.driver.old", "gpu.fault", "gpu.absent"),
    "nccl.internal_error": ("drift.nccl", "drift.nccl_release", "drift.torch"),
    "nccl.truncated": ("drift.nccl", "drift.environment", "program.other_sizes"),
    "nccl.unique_id": ("absent.nccl_id", "address.nccl_interface"),
    "nccl.closed": ("network.link_lost", "network.loss"),
    "nccl.invalid_usage": ("program.device_twice",),
    "python.built_without": ("drift.build", "program.torch_for_cpus"),
    "nccl.queue_pair": ("fabric.address", "fabric.port"),
    "nccl.completion": ("fabric.port", "fabric.address"),
    "nccl.shared_memory": ("resources.shared_memory",),
    "nccl.locked_memory": ("resources.locked_memory", "gpu.memory.unified"),
    "cuda.invalid_device": ("gpu.fewer_than_ranks", "gpu.hidden", "gpu.number"),
    "cuda.no_gpu": ("gpu.hidden", "gpu.absent", "gpu.driver.mismatch", "gpu.none_seen"),
    "cuda.not_ready": ("fabric.manager",),
    "cuda.too_few": ("gpu.fewer_than_ranks", "gpu.hidden"),
    "cuda.driver_mismatch": ("gpu.driver.mismatch", "gpu.driver.old"),
    "nccl.starting": ("address.interface_other", "network.ports_filtered", "fabric.peer_to_peer"),
    "cuda.out_of_memory": ("gpu.memory.own", "gpu.memory.others"),
    "cuda.not_enough_memory": ("gpu.memory.others",),
    "cuda.failed": ("gpu.fault", "program.illegal_access", "gpu.driver.mismatch"),
    "cuda.illegal_access": ("program.illegal_access", "gpu.fault"),
    "cuda.driver_old": ("gpu.driver.old", "gpu.driver.mismatch", "drift.driver"),
    "program.sizes_differ": ("program.bytes", "program.other_operation", "program.other_sizes"),
    "program.checkpoint_keys": ("program.checkpoint.keys", "drift.code", "drift.data"),
    "program.checkpoint_sizes": ("program.checkpoint.sizes", "drift.code", "drift.data"),
    "python.attribute_missing": ("drift.packages", "drift.torch", "drift.code"),
    "python.file_missing": ("process.missing.file", "drift.data"),
    "python.file_corrupt": ("resources.incomplete_file", "drift.data", "resources.disk"),
    "ray.address": ("address.other", "address.interface_other"),
    "ray.version": ("drift.packages", "drift.python"),
    "ray.waiting": ("absent.resources", "absent.node", "absent.late"),
    "ray.connect": ("network.ports_filtered", "address.interface_other", "interference.proxy"),
    "system.no_space": ("resources.disk", "resources.inodes"),
    "system.write_failed": ("resources.disk", "resources.inodes"),
    "system.worker_killed": (*MEMORY[:2], "resources.shared_memory"),
    "system.killed": MEMORY,
    "system.actor_died": MEMORY,
    "system.tasks": ("resources.tasks",),
    "rank.signal": MEMORY,
}
