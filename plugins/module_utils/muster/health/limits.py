"""What a launch's own unit lets its ranks have: locked memory, open files, stack, processes, processors.

Looked at from inside such a unit, as the training user (muster_node/look_inside.py).
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

# What Linux gives where nobody has set anything: a rank with data loaders and a dozen peers uses that up.
FEW_FILES = 1024
# A rank with CUDA and NCCL has a hundred threads or two, and each of its data loaders some more.
TASKS_OF_A_RANK = 1000
# What systemd's own exit codes mean (systemd.exec(5), process exit codes).
CODES = {
    "200": "the working directory cannot be entered",
    "203": "the user may not run the program",
    "206": "standard input or output cannot be set up",
    "216": "the user's groups cannot be taken",
    "217": "the user cannot be taken",
    "226": "the name spaces cannot be set up",
}
BASELINE = playbook("site.yml", tags="baseline")

UNIT_FAILED = Check(
    "os.unit.failed",
    seen="recording",
    reads="a transient unit of systemd like a launch's, as the training user, with a small program of ours in it",
    fires="fail: it does not start, or the program fails; unknown: it does not come to an end in time",
    fix="Look at what systemd-run says",
)
MEMLOCK = Check(
    "os.limits.memlock",
    seen="recording",
    reads="RLIMIT_MEMLOCK inside a unit like a launch's, as the training user",
    fires="fail: it is limited, and NCCL will use an RDMA adapter, which needs its buffers locked in memory "
    "(NCCL troubleshooting guide: 'Call to ibv_reg_mr failed'). Skipped without RDMA",
    fix="Set LimitMEMLOCK=infinity for units; a container needs --ulimit memlock=-1 from its host",
)
NOFILE = Check(
    "os.limits.nofile",
    seen="recording",
    reads="RLIMIT_NOFILE inside a unit like a launch's",
    fires=f"warn: the soft limit is {FEW_FILES} or less, as Linux has it by itself. NCCL raises it to the hard one "
    "(src/os/linux.cc); Gloo and data loaders, whose sockets and files grow with the ranks, do not",
    fix="Raise it with",
    command=BASELINE,
)
STACK = Check(
    "os.limits.stack",
    seen="recording",
    reads="RLIMIT_STACK inside a unit like a launch's",
    fires="warn: it is unlimited, which makes glibc give NCCL's threads 2 MB; before NCCL 2.28 they can crash "
    "(NCCL troubleshooting guide, stack size). Skipped where NCCL is not used",
    fix="Set DefaultLimitSTACK=8M:infinity in /etc/systemd/system.conf.d, then type",
    command="sudo systemctl daemon-reexec",
)
TASKS = Check(
    "os.limits.tasks",
    seen="recording",
    reads="RLIMIT_NPROC, and pids.max of the unit's cgroup and those above it",
    fires=f"warn: fewer than {TASKS_OF_A_RANK} threads for each rank may be made; a rule of thumb",
    fix="Raise {name}",
)
PROCESSORS = Check(
    "os.limits.processors",
    seen="recording",
    reads="cpu.max of the unit's cgroup and those above it",
    fires="warn: the quota is less than one processor for each rank",
    fix="Raise the quota of the cgroup, or set cluster_nproc_per_node lower; it is shown by",
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
            f"a launch may have {soft} files and sockets open for each process",
            observed=str(soft),
            expected="65536",
            evidence=evidence("RLIMIT_NOFILE in a unit", f"soft {soft}, hard {hard or 'unlimited'}"),
        )
    yield from _stack(node, seen, request)
    yield from _tasks(node, seen, request)
    quota = seen["cgroup"]["cpus"]
    if not seen["cgroup"]["seen"]:
        yield PROCESSORS.skip("this machine has no cgroups of version 2 to read it from")
    elif quota is not None and quota < request["nproc"]:
        yield PROCESSORS.warn(
            node,
            f"a launch gets {quota:g} processors here, less than one for each of {request['nproc']} ranks",
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
        f"a unit like that of a launch, as {user}, " + ("takes too long" if late else "cannot be started") + f": {why}",
        "Look why; it can be tried with",
        shell("sudo systemd-run --wait --pipe --property=User={user} python3 -c 'print(1)'", user=user),
        evidence=evidence("systemd-run", why),
    )


def _memlock(
    node: str, seen: Mapping[str, Any], facts: Mapping[str, Any], request: Mapping[str, Any]
) -> Iterator[Said]:
    soft, hard = seen["limits"]["memlock"]
    if request["backend"] != "nccl":
        yield MEMLOCK.skip("only RDMA locks memory, and Gloo does not use it")
    elif not facts["rdma"]["active"]:
        yield MEMLOCK.skip("only RDMA locks memory, and the node has no active RDMA port")
    elif soft is not None:
        container = is_container(facts)
        yield MEMLOCK.fail(
            node,
            f"a launch may lock {soft // 1024} kB of memory, and RDMA needs all of its buffers locked",
            "Start the container with --ulimit memlock=-1" if container else "The step baseline lifts the limit",
            "" if container else BASELINE,
            observed=str(soft),
            expected="unlimited",
            evidence=evidence("RLIMIT_MEMLOCK in a unit", f"soft {soft}, hard {hard or 'unlimited'}"),
        )


def _stack(node: str, seen: Mapping[str, Any], request: Mapping[str, Any]) -> Iterator[Said]:
    soft, _ = seen["limits"]["stack"]
    if request["backend"] != "nccl":
        yield STACK.skip("it matters to threads of NCCL alone")
    elif soft is None:
        yield STACK.warn(
            node,
            "the stack of a launch is unlimited, which leaves NCCL's threads with 2 MB; before 2.28 they can crash",
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
            f"a launch may have {least[name]} threads here ({name}), and {request['nproc']} ranks can want {wanted}",
            named={"name": name},
            observed=str(least[name]),
            expected=str(wanted),
        )
    elif not seen["cgroup"]["seen"]:
        yield TASKS.skip("this machine has no cgroups of version 2 to read pids.max from")
