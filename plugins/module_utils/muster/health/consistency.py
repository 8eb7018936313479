"""Values that must be the same on all nodes. A finding names the nodes that differ from the majority.

If there is no majority, for example with two nodes, the finding shows the values of all nodes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..inspect.cluster import MODELS_DIFFER, MTU_DIFFERS
from ..verdict.check import Check
from ..verdict.commands import playbook
from ..verdict.majority import vote
from .gpu_peers import ALIKE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ..verdict.check import Seen
    from ..verdict.finding import Finding
    from ..verdict.majority import Vote

READ_BY_ALL = "the values that the nodes report"

PYTORCH = playbook("site.yml", tags="pytorch")
GPU_STACK = playbook("site.yml", tags="gpu_stack")

EQUAL = "GPUs of the same model should be equal"
GPUS_DIFFER = Check(
    "gpu.values.differ",
    seen="stand-in",
    reads=READ_BY_ALL,
    fires="warn: infoROM, memory size, BAR1 size, power limit, highest clock, PCIe generation, ECC mode or number of "
    "active NVLinks of the GPUs differ between nodes with the same GPU models",
    fix="Find out what was changed or replaced. Show the values on both nodes with",
    command="nvidia-smi -q",
)


@dataclass(frozen=True)
class Trait:
    """A value that must be the same on all nodes. name: the key in nccl_health. what: the name in messages. why: the
    effect of a difference."""

    name: str
    check: Check
    breaks: bool  # whether a difference breaks a launch
    what: str
    why: str

    def differs(self, node: str, summary: str, value: str, usual: str = "") -> Finding:
        report = self.check.fail if self.breaks else self.check.warn
        return report(node, summary, observed=value, expected=usual)


def trait(name: str, finding: str, seen: Seen, status: str, what: str, why: str, fix: str, command: str = "") -> Trait:
    """Return a trait with its check. finding: the check's id. status: fail or warn, the status if nodes differ."""
    fires = f"{status}: the {what} differs between nodes; {why}"
    return Trait(name, Check(finding, READ_BY_ALL, fires, fix, command, seen=seen), status == "fail", what, why)


TRAITS = (
    trait(
        "torch",
        "versions.torch.differ",
        "sandbox",
        "fail",
        "version of PyTorch",
        "different versions use different store protocols",
        "Build the same environment on all nodes with",
        PYTORCH,
    ),
    trait(
        "nccl",
        "versions.nccl.differ",
        "stand-in",
        "fail",
        "NCCL version that PyTorch loads",
        "ranks with different NCCL versions cannot connect (Mismatched NCCL version detected)",
        "Remove the source of the other NCCL (LD_LIBRARY_PATH, a separate libnccl2), or rebuild the environment with",
        PYTORCH,
    ),
    trait(
        "cuda",
        "versions.cuda.differ",
        "stand-in",
        "fail",
        "CUDA version that PyTorch is built for",
        "builds for different CUDA versions contain different NCCL versions and kernels",
        "Build the same environment on all nodes with",
        PYTORCH,
    ),
    trait(
        "python",
        "versions.python.differ",
        "stand-in",
        "warn",
        "Python version of the environment",
        "pickled objects and wheels might be incompatible",
        "Set pytorch_python to one version, and rebuild the environments with",
        PYTORCH,
    ),
    trait(
        "driver",
        "versions.driver.differ",
        "stand-in",
        "warn",
        "NVIDIA driver version",
        "a program might work on one node and fail on another",
        "Set gpu_stack_driver to one version and run",
        GPU_STACK,
    ),
    trait(
        "kernel",
        "versions.kernel.differ",
        "stand-in",
        "warn",
        "running kernel version",
        "drivers and the network might behave differently on each node",
        "Reboot the nodes that do not run their newest installed kernel, or upgrade the other nodes",
    ),
    trait(
        "os",
        "versions.os.differ",
        "stand-in",
        "warn",
        "operating system",
        "different releases contain different library versions",
        "Install the same operating system release on all nodes",
    ),
    trait(
        "vbios",
        "versions.vbios.differ",
        "stand-in",
        "warn",
        "VBIOS version of the GPUs",
        "GPUs of the same model with different VBIOS versions can have different limits and bugs",
        "Ask the vendor of the machines for a common VBIOS version for all GPUs",
    ),
    *(Trait(one.trait, GPUS_DIFFER, False, f"{one.what} of the GPUs", EQUAL) for one in ALIKE if one.trait),
    trait(
        "hca_firmware",
        "versions.hca_firmware.differ",
        "stand-in",
        "warn",
        "firmware of the RDMA adapters",
        "links might differ in error rate and speed",
        "Update all adapters to the same firmware version",
    ),
    trait(
        "rdma_ports",
        "rdma.ports.differ",
        "stand-in",
        "warn",
        "set of active RDMA ports that NCCL would use",
        "a launch runs at the speed of the node with the fewest and slowest ports",
        "Find the missing adapter or link (nvidia-smi topo -m, ibstat, rdma link show)",
    ),
    trait(
        "ib_subnets",
        "rdma.subnet.differ",
        "stand-in",
        "warn",
        "InfiniBand subnet of the ports that NCCL would use",
        "ports of different subnets cannot reach each other without a router",
        "Check which switch each port is connected to, and select the adapters of one fabric (nccl_ib_hca)",
    ),
    trait(
        "ib_managers",
        "rdma.manager.differ",
        "stand-in",
        "warn",
        "LID of the subnet manager of the InfiniBand ports",
        "the nodes are on two fabrics, or another subnet manager is taking over",
        "Run the check again in a minute. If the LIDs still differ, show each node's subnet manager with",
        "sudo sminfo",
    ),
    trait(
        "ib_partitions",
        "rdma.pkey.differ",
        "stand-in",
        "warn",
        "InfiniBand partition (P_Key) that NCCL uses",
        "ports of different partitions cannot communicate",
        "Add all ports to one partition (partitions.conf of opensm), or select a common partition (nccl_ib_pkey)",
    ),
    trait(
        "roce_mtu",
        "rdma.mtu.differ",
        "stand-in",
        "warn",
        "MTU of the RoCE interfaces",
        "packets larger than the smaller MTU are dropped (NCCL issue 1524)",
        "Set the same MTU on all nodes and on the switch",
    ),
    Trait("gpu_model", MODELS_DIFFER, False, "model of the GPUs", "a launch runs at the speed of the slowest GPU"),
    Trait(
        "mtu",
        MTU_DIFFERS,
        True,
        "MTU of the training interface",
        "packets larger than the smaller MTU are silently dropped",
    ),
    trait(
        "link_speed",
        "net.speed.differ",
        "stand-in",
        "warn",
        "speed of the training interface",
        "a launch runs at the speed of the slowest link",
        "Check the cable, the switch port and the adapter",
    ),
    trait(
        "environment",
        "env.variables.differ",
        "sandbox",
        "warn",
        "environment inherited by jobs",
        "NCCL, Gloo and PyTorch might behave differently on each node",
        "Set the same variables on all nodes, or remove them (/etc/environment, systemd's DefaultEnvironment)",
    ),
    trait(
        "nccl_conf",
        "env.nccl_conf.differ",
        "stand-in",
        "warn",
        "content of nccl.conf",
        "NCCL uses different settings on each node",
        "Write the same nccl.conf with",
        GPU_STACK,
    ),
    trait(
        "code",
        "versions.code.differ",
        "sandbox",
        "fail",
        "code listed in health_code",
        "ranks that run different code wait for each other forever",
        "Copy the same code to all nodes",
    ),
)
CHECKS = tuple(dict.fromkeys(each.check for each in TRAITS))
# Only compared between nodes with the same GPU models.
OF_MODEL = {"vbios", *(one.trait for one in ALIKE if one.trait)}


def judge(traits: Mapping[str, Mapping[str, str | None]]) -> Iterator[Finding]:
    """Yield a finding for each trait that differs between the checked nodes, and a `pass` for each value that several
    nodes share."""
    for each in TRAITS:
        models = {node: own.get("gpu_model") if each.name in OF_MODEL else "" for node, own in traits.items()}
        for model in dict.fromkeys(models.values()):
            votes = vote({node: own.get(each.name) for node, own in traits.items() if models[node] == model})
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
            summary = f"the {one.what} is {value}, but {votes.usual} on most nodes: {one.why}"
            yield one.differs(node, summary, value, votes.usual)
