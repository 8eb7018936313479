"""Causes in the connections between GPUs: NVLink, fabric manager, RDMA, PCIe. The causes have not been
tested on such connections. Their checks and texts are based on documentation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...verdict.commands import OnNode
from .. import progress
from ..model import Cause, CausePlace, Question, no, not_looked, yes
from .gpu import found, where_met
from .program import others_waited, own_end

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ..case import LaunchCase
    from ..model import CauseAnswer, Symptom

AMONG_GPUS = ("nccl.peer_to_peer", "nccl.peer_access", "nccl.starting")
GROWS = ("link_downed", "link_error_recovery")


def port_went_down(case: LaunchCase, place: CausePlace) -> CauseAnswer:
    pair = case.both(place.node)
    if pair is None or pair[0]["fabric"] is None or pair[1]["fabric"] is None:
        return not_looked(case.why_not(place.node, "fabric"))
    for port, after in pair[1]["fabric"].items():
        before = pair[0]["fabric"].get(port, {})
        if "ACTIVE" in before.get("state", "").upper() and "ACTIVE" not in after.get("state", "").upper():
            return yes(f"{port} was up and is now {after.get('state', 'missing')}", f"ports of {place.node}")
        for name in GROWS:
            was, now = before.get(name, ""), after.get(name, "")
            if was.isdigit() and now.isdigit() and int(now) > int(was):
                return yes(f"{name} of {port} increased by {int(now) - int(was)}", f"counters of {place.node}")
    return no("no port went down")


def within_one_call(case: LaunchCase, place: CausePlace) -> CauseAnswer:
    """Check whether all ranks wait in the same collective. If so, the transport is at fault, not the program."""
    del place
    if own_end(case) or not others_waited(case):
        return no("a rank had already failed, or no rank timed out")
    known = progress.progress(case)
    if len(known) < case.launch["world_size"]:
        return not_looked("the progress of some ranks is unknown")
    if len({one.enqueued for one in known}) == 1 and all(one.within for one in known):
        return yes(f"all ranks wait in collective number {known[0].enqueued}", known[0].source)
    return no("the ranks are not in the same collective")


def with_several_gpus(case: LaunchCase, by: Sequence[Symptom]) -> Iterator[CausePlace]:
    yield from (CausePlace(one.node) for one in by if one.id in AMONG_GPUS)
    if case.launch["backend"] == "nccl":
        yield from (CausePlace(node) for node in case.nodes if len(case.ranks_of(node)) > 1)


def with_multi_node_nvlink(case: LaunchCase, by: Sequence[Symptom]) -> Iterator[CausePlace]:
    """Yield the nodes where multi-node NVLink failed, or where a process failed in another way while NCCL used it."""
    return where_met(case, [one for one in by if one.id in ("nccl.imex", "nccl.mnnvl")])


PORT = Question("rdma.port", "did an RDMA port of {node} go down?", port_went_down, OnNode("rdma link show"))
SAME_CALL = Question("calls.same", "do all ranks wait in the same collective?", within_one_call)
RDMA = ("nccl.completion", "nccl.queue_pair", "nccl.system_error", "nccl.remote")

CAUSES = (
    Cause(
        "fabric.manager",
        group="gpu",
        scope="node",
        says="the fabric manager on {node} is not running, or its version differs from the driver version",
        fix="Install the nvidia-fabricmanager version of the driver, start the service, and check its status",
        command=OnNode("systemctl status nvidia-fabricmanager", become=True),
        symptoms=("cuda.not_ready", "nccl.cuda_error", "nccl.nvls", "system.fabric_manager"),
        places=where_met,
        confirm=(
            found("fabric_manager.inactive", "an inactive fabric manager"),
            found("fabric_manager.version", "a fabric manager version mismatch"),
            found("fabric_manager.state", "an NVLink fabric that is not ready"),
        ),
        instead_of=("gpu.absent",),
    ),
    Cause(
        "fabric.nvlink",
        group="gpu",
        scope="node",
        says="an NVLink connection on {node} failed",
        fix="Reset the GPUs while they are idle, and check the kernel log and the link status",
        command=OnNode("nvidia-smi nvlink --status"),
        symptoms=("cuda.nvlink", "nccl.cuda_error"),
        places=where_met,
        confirm=(
            found("nvlink.inactive", "an inactive NVLink"),
            found("nvlink.errors", "an NVLink error"),
            found("nvlink.sxid", "an NVSwitch error"),
        ),
        decisive=("cuda.nvlink",),
        instead_of=("gpu.fault",),
    ),
    Cause(
        "fabric.multi_node",
        group="gpu",
        scope="node",
        says="multi-node NVLink (MNNVL) does not work on {node}: the IMEX service or its channel, or NCCL's use of it",
        fix="Check the IMEX service and /dev/nvidia-caps-imex-channels (also in the container), or launch with"
        " NCCL_MNNVL_ENABLE=0 in launch_env",
        command=OnNode("systemctl status nvidia-imex", become=True),
        symptoms=("nccl.imex", "nccl.cuda_error", "system.crashed", "nccl.mnnvl"),
        places=with_multi_node_nvlink,
        confirm=(),
    ),
    Cause(
        "fabric.port",
        group="gpu",
        scope="node",
        says="an RDMA port of {node} is down, or was down during the launch",
        fix="Check the cable, the switch port and the RDMA link state",
        command=OnNode("rdma link show"),
        symptoms=RDMA,
        places=where_met,
        confirm=(PORT, found("rdma.port.down", "an RDMA port that is down")),
    ),
    Cause(
        "fabric.address",
        group="gpu",
        scope="node",
        says="the GID, subnet or partition of an RDMA port on {node} does not match the other nodes",
        fix="Correct NCCL_IB_GID_INDEX, the addresses or the partitions as the finding describes. List the RDMA links",
        command=OnNode("rdma link show"),
        symptoms=("nccl.completion", "nccl.queue_pair"),
        places=where_met,
        confirm=(
            *(found("rdma.gid.missing", "a missing GID"), found("rdma.gid.index", "an invalid GID index")),
            *(found("rdma.subnet.differ", "a subnet mismatch"), found("rdma.pkey.differ", "a partition mismatch")),
        ),
    ),
    Cause(
        "fabric.peer_to_peer",
        group="gpu",
        scope="node",
        says="GPUs of {node} cannot access each other's memory: ACS or the IOMMU redirects PCIe transfers",
        fix="Disable ACS and IOMMU translation, or launch with NCCL_P2P_DISABLE=1 in launch_env",
        symptoms=(
            "launch.stalled",
            "nccl.timeout",
            "nccl.heartbeat",
            *AMONG_GPUS,
        ),
        places=with_several_gpus,
        confirm=(),
        support=(
            found("pci.acs.redirects", "PCIe redirection by ACS"),
            found("pci.iommu.translates", "IOMMU translation"),
            SAME_CALL,
        ),
    ),
)
