"""Resource limits of a launch's systemd unit: locked memory, open files, stack, processes, processors.

The limits are read as the training user, in a unit with the settings of a launch (muster_node/look_inside.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..verdict.check import Check, skip_all
from ..verdict.commands import playbook, shell
from ..verdict.finding import evidence
from .host import is_container

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ..verdict.check import Said

# The default of Linux: a rank with data loaders and a dozen peers can use that many files.
FEW_FILES = 1024
# A rank with CUDA and NCCL has 100 to 200 threads, and each of its data loaders some more.
TASKS_OF_A_RANK = 1000
# The meaning of systemd's exit codes (systemd.exec(5), process exit codes).
CODES = {
    "200": "the working directory cannot be entered",
    "203": "the user is not allowed to run the program",
    "206": "standard input or output cannot be set up",
    "216": "the user's groups cannot be set",
    "217": "the user cannot be set",
    "226": "the namespaces cannot be set up",
}
BASELINE = playbook("site.yml", tags="baseline")

UNIT_FAILED = Check(
    "os.unit.failed",
    seen="recording",
    reads="a transient systemd unit with a launch's settings, which runs a small test program as the training user",
    fires="fail: the unit does not start, or the program fails. unknown: the unit does not finish before the timeout",
    fix="Check the output of systemd-run",
)
MEMLOCK = Check(
    "os.limits.memlock",
    seen="recording",
    reads="RLIMIT_MEMLOCK of the training user in a unit with a launch's settings",
    fires="fail: the limit is finite, but NCCL will use an RDMA adapter, which requires locked memory for buffers "
    "(NCCL troubleshooting guide: 'Call to ibv_reg_mr failed'). Skipped without RDMA",
    fix="Set LimitMEMLOCK=infinity for systemd units. Start a container with --ulimit memlock=-1",
)
NOFILE = Check(
    "os.limits.nofile",
    seen="recording",
    reads="RLIMIT_NOFILE in a unit with a launch's settings",
    fires=f"warn: the soft limit is {FEW_FILES} (the default of Linux) or less. NCCL raises it to the hard limit "
    "(src/os/linux.cc). Gloo and data loaders do not, although they need more sockets and files for each rank",
    fix="Raise the limit with",
    command=BASELINE,
)
STACK = Check(
    "os.limits.stack",
    seen="recording",
    reads="RLIMIT_STACK in a unit with a launch's settings",
    fires="warn: the stack is unlimited, so glibc gives NCCL's threads only 2 MB. NCCL before 2.28 can then crash "
    "(NCCL troubleshooting guide, stack size). Skipped if NCCL is not used",
    fix="Set DefaultLimitSTACK=8M:infinity in /etc/systemd/system.conf.d, then run",
    command="sudo systemctl daemon-reexec",
)
TASKS = Check(
    "os.limits.tasks",
    seen="recording",
    reads="RLIMIT_NPROC, and pids.max of the unit's cgroup and its parents",
    fires=f"warn: the limit is less than {TASKS_OF_A_RANK} threads per rank (a rule of thumb)",
    fix="Raise {name}",
)
PROCESSORS = Check(
    "os.limits.processors",
    seen="recording",
    reads="cpu.max of the unit's cgroup and its parents",
    fires="warn: the quota is less than one processor per rank",
    fix="Raise the quota of the cgroup, or reduce cluster_nproc_per_node. Show the quota with",
    command="systemctl show --property=CPUQuotaPerSecUSec system.slice",
)
LIMITS = (MEMLOCK, NOFILE, STACK, TASKS, PROCESSORS)
CHECKS = (UNIT_FAILED, *LIMITS)
LOOKS = ("unit",)


def judge(facts: Mapping[str, Any], request: Mapping[str, Any]) -> Iterator[Said]:
    node = request["node"]
    unit = facts["unit"]
    if unit["way"] == "none":
        yield from _no_unit(node, unit["why"], request["user"])
        yield from skip_all(LIMITS, unit["why"])
        return
    if unit["way"] == "self":
        yield from skip_all(CHECKS, unit["why"])
        return
    seen = unit["inside"]
    yield from _memlock(node, seen, facts, request)
    soft, hard = seen["limits"]["nofile"]
    if soft is not None and soft <= FEW_FILES:
        yield NOFILE.warn(
            node,
            f"a launch is limited to {soft} open files and sockets per process",
            observed=str(soft),
            expected="65536",
            evidence=evidence("RLIMIT_NOFILE in a unit", f"soft {soft}, hard {hard or 'unlimited'}"),
        )
    yield from _stack(node, seen, request)
    yield from _tasks(node, seen, request)
    quota = seen["cgroup"]["cpus"]
    if not seen["cgroup"]["seen"]:
        yield PROCESSORS.skip("the node has no cgroup v2, so cpu.max cannot be read")
    elif quota is not None and quota < request["nproc"]:
        yield PROCESSORS.warn(
            node,
            f"a launch is limited to {quota:g} processors, which is less than one per rank ({request['nproc']} ranks)",
            observed=f"{quota:g}",
            expected=str(request["nproc"]),
        )


def _no_unit(node: str, why: str, user: str) -> Iterator[Said]:
    late = "did not answer" in why
    code = why.removeprefix("systemd-run ended with ").partition(":")[0]
    why += f" ({CODES[code]})" if code in CODES else ""
    report = UNIT_FAILED.unknown if late else UNIT_FAILED.fail
    yield report(
        node,
        f"a test unit with a launch's settings, run as {user}, {'did not finish' if late else 'failed'}: {why}",
        "Reproduce the problem with",
        shell("sudo systemd-run --wait --pipe --property=User={user} python3 -c 'print(1)'", user=user),
        evidence=evidence("systemd-run", why),
    )


def _memlock(
    node: str, seen: Mapping[str, Any], facts: Mapping[str, Any], request: Mapping[str, Any]
) -> Iterator[Said]:
    soft, hard = seen["limits"]["memlock"]
    if request["backend"] != "nccl":
        yield MEMLOCK.skip("only RDMA requires locked memory, and Gloo does not use RDMA")
    elif not facts["rdma"]["active"]:
        yield MEMLOCK.skip("only RDMA requires locked memory, and the node has no active RDMA port")
    elif soft is not None:
        container = is_container(facts)
        yield MEMLOCK.fail(
            node,
            f"a launch can lock only {soft // 1024} kB of memory, but RDMA must lock all of its buffers",
            "Start the container with --ulimit memlock=-1" if container else "Remove the limit with",
            "" if container else BASELINE,
            observed=str(soft),
            expected="unlimited",
            evidence=evidence("RLIMIT_MEMLOCK in a unit", f"soft {soft}, hard {hard or 'unlimited'}"),
        )


def _stack(node: str, seen: Mapping[str, Any], request: Mapping[str, Any]) -> Iterator[Said]:
    soft, _ = seen["limits"]["stack"]
    if request["backend"] != "nccl":
        yield STACK.skip("the limit affects NCCL threads only")
    elif soft is None:
        yield STACK.warn(
            node,
            "the stack of a launch is unlimited, so NCCL's threads get only 2 MB. NCCL before 2.28 can then crash",
            observed="unlimited",
            expected="8192 kB",
        )


def _tasks(node: str, seen: Mapping[str, Any], request: Mapping[str, Any]) -> Iterator[Said]:
    limits = {"RLIMIT_NPROC": seen["limits"]["nproc"][0], "pids.max of the cgroup": seen["cgroup"]["pids"]}
    least = {name: value for name, value in limits.items() if value is not None}
    wanted = TASKS_OF_A_RANK * int(request["nproc"])
    if least and min(least.values()) < wanted:
        name = min(least, key=lambda each: least[each])
        yield TASKS.warn(
            node,
            f"a launch is limited to {least[name]} threads ({name}), but {request['nproc']} ranks can require {wanted}",
            named={"name": name},
            observed=str(least[name]),
            expected=str(wanted),
        )
    elif not seen["cgroup"]["seen"]:
        yield TASKS.skip("the node has no cgroup v2, so pids.max cannot be read")
