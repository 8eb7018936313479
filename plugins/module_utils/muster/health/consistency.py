"""What must be the same on all nodes, by majority: the odd node is named.

Without a majority, as with two nodes, all are shown and none is blamed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..inspect.cluster import MODELS_DIFFER, MTU_DIFFERS
from ..verdict.check import Check
from ..verdict.commands import playbook
from ..verdict.majority import vote

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ..verdict.check import Seen
    from ..verdict.finding import Finding
    from ..verdict.majority import Vote

READ_BY_ALL = "the looks at all nodes, laid beside each other"

PYTORCH = playbook("site.yml", tags="pytorch")
GPU_STACK = playbook("site.yml", tags="gpu_stack")


@dataclass(frozen=True)
class Trait:
    """One thing that nodes have in common. name: what nccl_health calls it; what: in a sentence; why: what it does."""

    name: str
    check: Check
    breaks: bool  # a launch, where nodes differ
    what: str
    why: str

    def differs(self, node: str, summary: str, value: str, usual: str = "") -> Finding:
        report = self.check.fail if self.breaks else self.check.warn
        return report(node, summary, observed=value, expected=usual)


def trait(name: str, finding: str, seen: Seen, status: str, what: str, why: str, fix: str, command: str = "") -> Trait:
    """Return a row with a check of its own. finding: its id; status: fail or warn, where nodes differ."""
    fires = f"the {what} is not the same on every node ({status}): {why}"
    return Trait(name, Check(finding, READ_BY_ALL, fires, fix, command, seen=seen), status == "fail", what, why)


TRAITS = (
    trait(
        "torch",
        "versions.torch.differ",
        "sandbox",
        "fail",
        "version of PyTorch",
        "the ranks then speak different protocols over the store",
        "Build the same environment on all of them with",
        PYTORCH,
    ),
    trait(
        "nccl",
        "versions.nccl.differ",
        "stand-in",
        "fail",
        "NCCL that PyTorch loads",
        "NCCL refuses to connect different versions (Mismatched NCCL version detected)",
        "Look what brings another one, LD_LIBRARY_PATH or an own libnccl2, or build the environment anew with",
        PYTORCH,
    ),
    trait(
        "cuda",
        "versions.cuda.differ",
        "stand-in",
        "fail",
        "CUDA that PyTorch is built for",
        "it brings another NCCL and other kernels",
        "Build the same environment on all of them with",
        PYTORCH,
    ),
    trait(
        "python",
        "versions.python.differ",
        "stand-in",
        "warn",
        "Python of the environment",
        "pickled objects and wheels may not fit",
        "Build the environments with the same Python (pytorch_python)",
        PYTORCH,
    ),
    trait(
        "driver",
        "versions.driver.differ",
        "stand-in",
        "warn",
        "NVIDIA driver",
        "what works on one node may not on another",
        "Set gpu_stack_driver to one version and run",
        GPU_STACK,
    ),
    trait(
        "kernel",
        "versions.kernel.differ",
        "stand-in",
        "warn",
        "running kernel",
        "drivers and networks behave differently",
        "Restart the nodes whose newest kernel does not run yet, or upgrade the others",
    ),
    trait(
        "os",
        "versions.os.differ",
        "stand-in",
        "warn",
        "operating system",
        "libraries differ",
        "Bring the nodes to the same release",
    ),
    trait(
        "vbios",
        "versions.vbios.differ",
        "stand-in",
        "warn",
        "VBIOS of the GPUs",
        "GPUs of one model then differ in limits and faults",
        "Ask the maker of the machines for one version",
    ),
    trait(
        "hca_firmware",
        "versions.hca_firmware.differ",
        "stand-in",
        "warn",
        "firmware of the adapters",
        "links of the fabric then differ in faults and speed",
        "Bring the adapters to one version",
    ),
    trait(
        "rdma_ports",
        "rdma.ports.differ",
        "stand-in",
        "warn",
        "set of active RDMA ports that NCCL would use",
        "a launch goes at the pace of the node with the fewest and slowest",
        "Look for the adapter or link that is missing there (nvidia-smi topo -m, ibstat, rdma link show)",
    ),
    trait(
        "ib_subnets",
        "rdma.subnet.differ",
        "stand-in",
        "warn",
        "InfiniBand subnet of the ports that NCCL would use",
        "ports of different subnets cannot reach each other without a router",
        "Look at which switch each port is cabled to, and name the adapters of one fabric (nccl_ib_hca)",
    ),
    trait(
        "ib_managers",
        "rdma.manager.differ",
        "stand-in",
        "warn",
        "subnet manager (its LID) of the InfiniBand ports",
        "two managers are two fabrics, or one takes over from the other right now",
        "Look again in a minute; if it stays, see which manager each node has with",
        "sudo sminfo",
    ),
    trait(
        "ib_partitions",
        "rdma.pkey.differ",
        "stand-in",
        "warn",
        "InfiniBand partition (P_Key) that NCCL uses",
        "ports of different partitions cannot talk to each other",
        "Have the subnet manager put all of them into one (partitions.conf), or name the one to use (nccl_ib_pkey)",
    ),
    trait(
        "roce_mtu",
        "rdma.mtu.differ",
        "stand-in",
        "warn",
        "MTU of the interfaces below RoCE",
        "packets of the larger one are lost at the smaller (NCCL's issue 1524)",
        "Set the same on all of them, and on the switch",
    ),
    Trait("gpu_model", MODELS_DIFFER, False, "model of the GPUs", "a launch goes at the pace of the slowest"),
    Trait(
        "mtu",
        MTU_DIFFERS,
        True,
        "MTU of the training interface",
        "a packet that fits one node and not the other is lost without a word",
    ),
    trait(
        "link_speed",
        "net.speed.differ",
        "stand-in",
        "warn",
        "speed of the training interface",
        "a launch goes at the pace of the slowest link",
        "Look at the cable, the switch port and the adapter",
    ),
    trait(
        "environment",
        "env.variables.differ",
        "sandbox",
        "warn",
        "environment that a job inherits",
        "NCCL, Gloo and PyTorch then behave differently on the nodes",
        "Make it the same, or take it away (/etc/environment, systemd's DefaultEnvironment)",
    ),
    trait(
        "nccl_conf",
        "env.nccl_conf.differ",
        "stand-in",
        "warn",
        "nccl.conf",
        "NCCL then chooses differently on the nodes",
        "Write the same with",
        GPU_STACK,
    ),
    trait(
        "code",
        "versions.code.differ",
        "sandbox",
        "fail",
        "code in health_code",
        "ranks that run different code wait for each other for ever",
        "Copy the same to all of them",
    ),
)
CHECKS = tuple(each.check for each in TRAITS)


def judge(traits: Mapping[str, Mapping[str, str | None]]) -> Iterator[Finding]:
    """Findings from the traits of each node that was looked at; a `pass` for what is known of several and the same."""
    for each in TRAITS:
        votes = vote({node: own.get(each.name) for node, own in traits.items()})
        if not votes.agree:
            yield from differences(each, votes)
            continue
        for value, nodes in votes.holders.items():
            if len(nodes) > 1:
                yield each.check.passed(nodes[0], f"the {each.what} is the same on every node", observed=value)


def differences(one: Trait, votes: Vote) -> Iterator[Finding]:
    for node, value in votes.odd:
        if votes.usual is None:
            yield one.differs(node, f"the {one.what} differs ({votes.spread()}): {one.why}", value)
        else:
            summary = f"the {one.what} is {value}, and {votes.usual} on most nodes: {one.why}"
            yield one.differs(node, summary, value, votes.usual)
