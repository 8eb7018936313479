"""Causes that a printed line suggests and that no check of Muster confirms, so that they are possible at most.

Those of the group "before" failed before the launch: drivers, packages, containers, extensions, logins.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ...launch.tracebacks import FRAME
from ...verdict.commands import OnNode
from ..model import Cause, CausePlace
from ..symptoms import COMMUNICATION

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ..case import LaunchCase
    from ..model import Group, Places, Symptom


def where_met(case: LaunchCase, by: Sequence[Symptom]) -> Iterator[CausePlace]:
    del case
    return (CausePlace(one.node, what=one.about.get("name", "")) for one in by)


# Exceptions of a library that name the setting, the argument or the use that the library rejects.
REJECTED = re.compile(
    r"\b(?:must|should|cannot|can't|only|requires?|needs?|have to|[Pp]lease|[Uu]nsupported|[Ii]nvalid|(?i:unknown)"
    r"|[Ee]xpect(?:s|ed)|mixed|mismatch|conflicts?|exceeds?|larger|greater|smaller|less)\b|n't \w|\bnot (?!found)\w"
)
OF_THE_SYSTEM = re.compile(
    r"(?:OS|IO|Connection\w*|Timeout|FileNotFound|Permission|Memory|Import|ModuleNotFound)Error$"
)
PACKAGE = re.compile(r".*/(?:site|dist)-packages/(?P<name>[A-Za-z]\w*)")


def raised_by_a_package(*, rejected: bool) -> Places:
    """Return a function that yields the last exceptions of a log that a package raised: those that reject something, or
    the names of the packages."""

    def places(case: LaunchCase, by: Sequence[Symptom]) -> Iterator[CausePlace]:
        del by
        for one in case.all_failures if case.is_only_a_log else ():
            kind, _, said = one.summary.partition(": ")
            package = PACKAGE.match((FRAME.findall(one.traceback) or [""])[-1])
            if one.cascade or not package or OF_THE_SYSTEM.search(kind) or COMMUNICATION.search(one.summary):
                continue
            if not rejected or REJECTED.search(said):
                yield CausePlace(one.node, rank=one.rank, what=one.summary if rejected else package["name"])

    return places


def suspected(name: str, group: Group, text: str, command: str, says: str, fix: str, *, become: bool = False) -> Cause:
    return Cause(
        name,
        group=group,
        scope="node",
        says=says,
        fix=fix,
        command=OnNode(command, become=become),
        symptoms=(text,),
        places=where_met,
        confirm=(),
    )


def before(name: str, command: str, says: str, fix: str) -> Cause:
    return suspected(f"before.{name}", "before", f"before.{name}", command, f"before the launch, {says}", fix)


CAUSES = (
    Cause(
        "program.settings",
        scope="code",
        says="a library rejects a setting or argument of the program: {what}",
        fix="Change the setting that the message names. If it is right, compare the installed versions with those that"
        " the program needs",
        command=OnNode("python3 -m torch.utils.collect_env"),
        symptoms=("rank.exception", "agent.ended"),
        places=raised_by_a_package(rejected=True),
        confirm=(),
    ),
    Cause(
        "drift.release",
        scope="code",
        says="the installed release of {what} has a fault, or does not fit the program or the other packages",
        fix="Install the releases that the program was tested with, or the newest ones. Check for conflicts",
        command=OnNode("python3 -m pip check"),
        symptoms=("rank.exception", "agent.ended"),
        places=raised_by_a_package(rejected=False),
        confirm=(),
    ),
    suspected(
        *("drift.build", "drift", "python.built_without", "python3 -m torch.utils.collect_env"),
        "a package on {node} was built without {what}, which the program uses",
        "Install a build that contains it, or do without it (backend gloo instead of nccl, USE_LIBUV=0). Show the"
        " versions",
    ),
    suspected(
        *("absent.resources", "absent", "ray.waiting", "ray status"),
        "Ray or the scheduler has fewer free nodes, GPUs or CPUs than the job requests, or the program joined another"
        " Ray instance (RAY_ADDRESS)",
        "Request no more than is free, and set RAY_ADDRESS to the head node if several instances run. Show the nodes",
    ),
    suspected(
        *("fabric.device_access", "gpu", "nccl.queue_pair", "ls -l /dev/infiniband"),
        "the process on {node} has no access to the RDMA devices, as in a container without /dev/infiniband",
        "Pass the devices to the container (--device=/dev/infiniband --ulimit memlock=-1, or an RDMA resource in"
        " Kubernetes). List the devices",
    ),
    suspected(
        *("address.family", "address", "gloo.family", "getent ahosts localhost"),
        "the ranks advertise addresses of different families (IPv4 and IPv6)",
        "Let the host names of all nodes resolve to the same family, or set GLOO_SOCKET_IFNAME to an interface with one"
        " family. Check what names resolve to",
    ),
    suspected(
        *("drift.nccl_library", "drift", "nccl.other_library", "ldconfig -p"),
        "two NCCL libraries are on {node}: another one is loaded than the one that torch was built with",
        "Unset LD_LIBRARY_PATH and LD_PRELOAD, and remove the other NCCL package. List the libraries",
    ),
    suspected(
        *("fabric.plugin", "gpu", "nccl.plugin", "fi_info -l"),
        "NCCL's network plugin for libfabric (AWS EFA) failed on {node}: versions, access, or the security group",
        "Allow all traffic from and to the security group itself (inbound and outbound), install matching versions of"
        " the EFA driver, libfabric and the plugin, and give the process access to /dev/infiniband. List the providers",
    ),
    suspected(
        *("fabric.gpu_direct", "gpu", "nccl.gpu_direct", "lsmod"),
        "the network card of {node} cannot use GPU memory (GPUDirect RDMA): nvidia-peermem or DMA-BUF is missing",
        "Load nvidia-peermem, or install drivers that support DMA-BUF. NCCL_DMABUF_ENABLE=0 or NCCL_NET_GDR_LEVEL=LOC"
        " avoids it. List the modules",
    ),
    suspected(
        *("program.nccl_algorithm", "program", "nccl.algorithm", "grep -s NCCL_ /etc/nccl.conf"),
        "NCCL_ALGO or NCCL_PROTO forces an algorithm that NCCL cannot use on these nodes",
        "Unset NCCL_ALGO and NCCL_PROTO, also in nccl.conf. Show its settings",
    ),
    suspected(
        *("drift.nccl_release", "drift", "nccl.internal_error", "python3 -m torch.utils.collect_env"),
        "the NCCL release on {node} has a fault, or is older than the GPUs or the driver",
        "Try a newer NCCL release, which the newest build of torch contains. Show the versions",
    ),
    suspected(
        *("program.layout", "program", "program.layout", "nvidia-smi --list-gpus"),
        "the batch sizes or parallel sizes do not fit the number of ranks",
        "Choose sizes whose products match the number of ranks, and check that all ranks were started. List the GPUs",
    ),
    suspected(
        *("program.checkpoint.ranks", "program", "program.checkpoint_ranks", "nvidia-smi --list-gpus"),
        "the checkpoint was saved with another number of ranks, or another data-parallel size, than this launch has",
        "Load it with the same number of ranks, or convert it (DeepSpeed: universal checkpoint). List the GPUs",
    ),
    suspected(
        *("program.same_path", "program", "program.same_path", ""),
        "several ranks create the same path at the same time ({what})",
        "Let one rank of each node create the path while the others wait, or accept an existing path (exist_ok=True)",
    ),
    suspected(
        *("resources.incomplete_file", "resources", "python.file_corrupt", "df -h"),
        "a file that {node} reads is incomplete or corrupt, for example after an interrupted copy or a full disk",
        "Copy or download the file again, and compare its size and checksum between the nodes. Show the free space",
    ),
    suspected(
        *("process.preempted", "process", "system.preempted", "journalctl --lines=50"),
        "the scheduler or the cloud provider ended the job: preemption, eviction or a failed node",
        "Submit the job again, and save checkpoints in the script. Show the journal",
        become=True,
    ),
    suspected(
        *("gpu.profiling", "gpu", "cuda.profiling", "cat /proc/driver/nvidia/params"),
        "the driver on {node} lets only administrators read GPU performance counters, which the profiler needs",
        "Set NVreg_RestrictProfilingToAdminUsers=0 for the nvidia module, or profile without hardware counters. Check"
        " RmProfilingAdminOnly",
    ),
    suspected(
        *("resources.storage", "resources", "system.storage", "journalctl --dmesg --lines=30"),
        "a disk or a network file system of {node} failed",
        "Mount the file system again, and check its server, the network and the kernel log",
        become=True,
    ),
    suspected(
        *("access.download", "access", "python.download", "curl -sSI https://{what}"),
        "{node} cannot download files from a server ({what})",
        "Download the files beforehand to a path that every node has, or let the nodes reach the server and log in to"
        " it. Test it",
    ),
    before(
        *("module", "dkms status"),
        "the kernel module of the NVIDIA driver could not be built or loaded on {node}",
        "Install the kernel headers and a driver for the running kernel, and check Secure Boot. Show its state",
    ),
    before(
        *("packages", "dpkg --audit"),
        "the package manager on {node} could not install a package",
        "Repair the packages and their sources, and wait for other runs of apt. Show what is not completely installed",
    ),
    before(
        *("name", "getent hosts {what}"),
        "the name of another node ({what}) could not be resolved",
        "Let all nodes resolve the names of the others (DNS or /etc/hosts), and wait until new names resolve. Test it",
    ),
    before(
        *("lock", "ps -eo pid,stat,user,lstart,args"),
        "a lock file of a killed build of an extension remained on {node}, and every launch waits for it",
        "Delete the file `lock` in the folder of the extension (~/.cache/torch_extensions) if no process builds it."
        " List the processes",
    ),
    before(
        *("extension", "nvcc --version"),
        "an extension of torch could not be compiled on {node}",
        "Install the CUDA toolkit of torch's CUDA version, a compiler and ninja, and set CUDA_HOME. Show the version",
    ),
    before(
        *("container", "docker info"),
        "a container with GPUs could not be started on {node}",
        "Install the NVIDIA container toolkit and configure the container engine. Show the engine's runtimes",
    ),
    before(
        *("login", "ssh-add -l"),
        "a login by SSH to a node failed",
        "Set up SSH keys without a password and known host keys between the nodes. Show the loaded keys",
    ),
)
