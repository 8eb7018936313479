"""What must be the same on all nodes, by majority: the odd node is named.

Without a majority, as with two nodes, all are shown and none is blamed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..inspect.cluster import MODELS_DIFFER, MTU_DIFFERS
from ..verdict.entry import Entry
from ..verdict.finding import Finding, fix_with
from ..verdict.majority import Vote, vote

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

READ_BY_ALL = "the looks at all nodes, laid beside each other"


@dataclass(frozen=True)
class Trait:
    """One thing that nodes have in common. name: what nccl_health calls it; what: in a sentence; why: what it does."""

    name: str
    id: str
    status: str
    what: str
    why: str
    fix: str
    command: str = ""

    def entry(self) -> Entry:
        fires = f"the {self.what} is not the same on every node ({self.status}): {self.why}"
        return Entry(READ_BY_ALL, fires, self.fix + (f": {self.command}" if self.command else ""))


AGAIN = "ansible-playbook site.yml --tags "
TRAITS = (
    Trait(
        "torch",
        "versions.torch.differ",
        "fail",
        "version of PyTorch",
        "the ranks then speak different protocols over the store",
        "Build the same environment on all of them with",
        AGAIN + "pytorch",
    ),
    Trait(
        "nccl",
        "versions.nccl.differ",
        "fail",
        "NCCL that PyTorch loads",
        "NCCL refuses to connect different versions (Mismatched NCCL version detected)",
        "Look what brings another one, LD_LIBRARY_PATH or an own libnccl2, or build the environment anew with",
        AGAIN + "pytorch",
    ),
    Trait(
        "cuda",
        "versions.cuda.differ",
        "fail",
        "CUDA that PyTorch is built for",
        "it brings another NCCL and other kernels",
        "Build the same environment on all of them with",
        AGAIN + "pytorch",
    ),
    Trait(
        "python",
        "versions.python.differ",
        "warn",
        "Python of the environment",
        "pickled objects and wheels may not fit",
        "Build the environments with the same Python (pytorch_python)",
        AGAIN + "pytorch",
    ),
    Trait(
        "driver",
        "versions.driver.differ",
        "warn",
        "NVIDIA driver",
        "what works on one node may not on another",
        "Set gpu_stack_driver to one version and run",
        AGAIN + "gpu_stack",
    ),
    Trait(
        "kernel",
        "versions.kernel.differ",
        "warn",
        "running kernel",
        "drivers and networks behave differently",
        "Restart the nodes whose newest kernel does not run yet, or upgrade the others",
    ),
    Trait(
        "os",
        "versions.os.differ",
        "warn",
        "operating system",
        "libraries differ",
        "Bring the nodes to the same release",
    ),
    Trait(
        "vbios",
        "versions.vbios.differ",
        "warn",
        "VBIOS of the GPUs",
        "GPUs of one model then differ in limits and faults",
        "Ask the maker of the machines for one version",
    ),
    Trait(
        "hca_firmware",
        "versions.hca_firmware.differ",
        "warn",
        "firmware of the adapters",
        "links of the fabric then differ in faults and speed",
        "Bring the adapters to one version",
    ),
    Trait(
        "gpu_model",
        "gpu.models.differ",
        "warn",
        "model of the GPUs",
        "a launch goes at the pace of the slowest",
        "Launch on nodes of one kind, with cluster_launch_nodes",
    ),
    Trait(
        "mtu",
        "net.mtu.differ",
        "fail",
        "MTU of the training interface",
        "a packet that fits one node and not the other is lost without a word",
        "Set the same on all of them",
    ),
    Trait(
        "link_speed",
        "net.speed.differ",
        "warn",
        "speed of the training interface",
        "a launch goes at the pace of the slowest link",
        "Look at the cable, the switch port and the adapter",
    ),
    Trait(
        "environment",
        "env.variables.differ",
        "warn",
        "environment that a job inherits",
        "NCCL, Gloo and PyTorch then behave differently on the nodes",
        "Make it the same, or take it away (/etc/environment, systemd's DefaultEnvironment)",
    ),
    Trait(
        "nccl_conf",
        "env.nccl_conf.differ",
        "warn",
        "nccl.conf",
        "NCCL then chooses differently on the nodes",
        "Write the same with",
        AGAIN + "gpu_stack",
    ),
    Trait(
        "code",
        "versions.code.differ",
        "fail",
        "code in health_code",
        "ranks that run different code wait for each other for ever",
        "Copy the same to all of them",
    ),
)
FINDINGS = {
    **{trait.id: trait.entry() for trait in TRAITS},
    **{check.id: check for check in (MODELS_DIFFER, MTU_DIFFERS)},
}


def judge(traits: Mapping[str, Mapping[str, str | None]]) -> Iterator[Finding]:
    """Findings from the traits of each node that was looked at; a `pass` for what is known of several and the same."""
    for trait in TRAITS:
        votes = vote({node: own.get(trait.name) for node, own in traits.items()})
        if not votes.agree:
            yield from differences(trait, votes)
            continue
        for value, nodes in votes.holders.items():
            if len(nodes) > 1:
                yield Finding(trait.id, "pass", nodes[0], f"the {trait.what} is the same on every node", observed=value)


def differences(trait: Trait, votes: Vote) -> Iterator[Finding]:
    fix = fix_with(trait.fix, trait.command)
    for node, value in votes.odd:
        if votes.usual is None:
            summary = f"the {trait.what} differs ({votes.spread()}): {trait.why}"
            yield Finding(trait.id, trait.status, node, summary, observed=value, fix=fix)
        else:
            summary = f"the {trait.what} is {value}, and {votes.usual} on most nodes: {trait.why}"
            yield Finding(trait.id, trait.status, node, summary, value, votes.usual, fix=fix)
