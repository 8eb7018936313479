"""Causes that a printed line suggests and that no check of Muster confirms, so that they are possible at most.

Those of the group "before" failed before the launch: drivers, packages, containers, extensions, logins.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...verdict.commands import OnNode
from ..model import Cause, CausePlace

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ..case import LaunchCase
    from ..model import Group, Symptom


def where_met(case: LaunchCase, by: Sequence[Symptom]) -> Iterator[CausePlace]:
    del case
    return (CausePlace(one.node, what=one.about.get("name", "")) for one in by)


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
        "NCCL's network plugin for libfabric (AWS EFA) failed on {node}",
        "Install matching versions of the EFA driver, libfabric and the plugin, and give the process access to"
        " /dev/infiniband. List the providers",
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
        "Download the files beforehand to a path that every node has, or let the nodes reach the server. Test it",
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
