"""What joins GPUs: NVLink and its manager, RDMA, and the bus. None of it was run here; checks and texts are read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...verdict.commands import OnNode
from .. import progress
from ..model import Cause, CausePlace, Question, no, not_looked, yes
from .gpu import OWN, found, where_met
from .program import others_waited, own_end

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ..case import LaunchCase
    from ..model import CauseAnswer, Symptom

GROWS = ("link_downed", "link_error_recovery")


def port_went_down(case: LaunchCase, place: CausePlace) -> CauseAnswer:
    pair = case.both(place.node)
    if pair is None or pair[0]["fabric"] is None or pair[1]["fabric"] is None:
        return not_looked(case.why_not(place.node, "fabric"))
    for port, after in pair[1]["fabric"].items():
        before = pair[0]["fabric"].get(port, {})
        if "ACTIVE" in before.get("state", "").upper() and "ACTIVE" not in after.get("state", "").upper():
            return yes(f"{port} was up, and is {after.get('state', 'gone')}", f"ports of {place.node}")
        for name in GROWS:
            was, now = before.get(name, ""), after.get(name, "")
            if was.isdigit() and now.isdigit() and int(now) > int(was):
                return yes(f"{name} of {port} grew by {int(now) - int(was)}", f"counters of {place.node}")
    return no("no port went down")


def within_one_call(case: LaunchCase, place: CausePlace) -> CauseAnswer:
    """All ranks wait in the same call: the program agrees, and what carries the data does not."""
    del place
    if own_end(case) or not others_waited(case):
        return no("a rank ended by itself, or none waited")
    known = progress.progress(case)
    if len(known) < case.launch["world_size"]:
        return not_looked("not all ranks said how far they had come")
    if len({one.enqueued for one in known}) == 1 and all(one.within for one in known):
        return yes(f"all ranks wait in call {known[0].enqueued}", known[0].source)
    return no("the ranks are not in the same call")


def with_several_gpus(case: LaunchCase, by: Sequence[Symptom]) -> Iterator[CausePlace]:
    del by
    if case.launch["backend"] == "nccl":
        yield from (CausePlace(node) for node in case.nodes if len(case.ranks_of(node)) > 1)


PORT = Question("rdma.port", "did a port for RDMA of {node} go down?", port_went_down, OnNode("rdma link show"))
SAME_CALL = Question("calls.same", "do all ranks wait in the same call?", within_one_call)
RDMA = ("nccl.completion", "nccl.queue_pair", "nccl.system_error", "nccl.remote")

CAUSES = (
    Cause(
        "fabric.manager",
        group="gpu",
        scope="node",
        says="the fabric manager on {node} does not run, or is of another version than the driver",
        fix="Start nvidia-fabricmanager there, of the driver's own version",
        command=OnNode("systemctl status nvidia-fabricmanager", become=True),
        symptoms=("cuda.not_ready", "nccl.cuda_error"),
        places=where_met,
        confirm=(
            found("fabric_manager.inactive", "a fabric manager that does not run"),
            found("fabric_manager.version", "a fabric manager of another version"),
            found("fabric_manager.state", "a fabric that is not ready"),
        ),
        instead_of=(*OWN, "gpu.absent"),
    ),
    Cause(
        "fabric.nvlink",
        group="gpu",
        scope="node",
        says="a link between GPUs of {node} failed",
        fix="Reset the GPUs while nothing uses them; look at the kernel log",
        command=OnNode("nvidia-smi nvlink --status"),
        symptoms=("cuda.nvlink", "nccl.cuda_error"),
        places=where_met,
        confirm=(
            found("nvlink.inactive", "a link that is down"),
            found("nvlink.errors", "an error of a link"),
            found("nvlink.sxid", "an error of a switch"),
        ),
        decisive=("cuda.nvlink",),
        instead_of=(*OWN, "gpu.fault"),
    ),
    Cause(
        "fabric.port",
        group="gpu",
        scope="node",
        says="a port for RDMA of {node} is down, or was for a moment",
        fix="Look at its cable and at the switch",
        command=OnNode("rdma link show"),
        symptoms=RDMA,
        places=where_met,
        confirm=(PORT, found("rdma.port.down", "a port that is down")),
        instead_of=OWN,
    ),
    Cause(
        "fabric.address",
        group="gpu",
        scope="node",
        says="the RDMA of {node} has not the address, subnet or partition that its peers expect",
        fix="Correct NCCL_IB_GID_INDEX, the addresses or the partitions as the finding says",
        command=OnNode("rdma link show"),
        symptoms=("nccl.completion", "nccl.queue_pair"),
        places=where_met,
        confirm=(
            *(found("rdma.gid.missing", "no GID"), found("rdma.gid.index", "a GID index that leads nowhere")),
            *(found("rdma.subnet.differ", "another subnet"), found("rdma.pkey.differ", "another partition")),
        ),
        instead_of=OWN,
    ),
    Cause(
        "fabric.peer_to_peer",
        group="gpu",
        scope="node",
        says="GPUs of {node} cannot reach each other's memory: the bus sends it another way",
        fix="Switch ACS and the IOMMU's translation off, or launch with NCCL_P2P_DISABLE=1 in launch_env",
        symptoms=("launch.stalled", "nccl.timeout", "nccl.heartbeat"),
        places=with_several_gpus,
        confirm=(),
        support=(
            *(found("pci.acs.redirects", "ACS that redirects"), found("pci.iommu.translates", "a translating IOMMU")),
            SAME_CALL,
        ),
    ),
)
