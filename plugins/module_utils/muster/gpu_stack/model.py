"""What the resolver is asked, and what it answers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True)
class StackRequest:
    """What the inventory asks for (roles/gpu_stack/meta/argument_specs.yml). An empty text leaves the choice open."""

    torch: str
    variant: str = "auto"
    driver: str = ""
    source: str = "auto"
    modules: str = "auto"
    build: str = "auto"
    cuda_toolkits: tuple[str, ...] = ()
    nccl: bool = False
    container_toolkit: bool = False
    dcgm: bool = False


@dataclass(frozen=True)
class StackNodeFacts:
    """What is known of a node. A look fills all of it; before one, the inventory names the GPUs.

    gpus: PCI device ids as `10de:2330`. model: as the inventory declares it. gpu_count: how many it declares. system:
    `ubuntu-24.04`. kernels: flavours of the installed kernels (`generic`, `aws`), with that of the running one first.
    secure_boot: None where nobody knows. key_enrolled: whether the firmware trusts the key that dkms signs with.
    managed: whether the driver may be installed; otherwise it is taken as it is. container: whether it is one, which
    sees its host's bus, uses its host's driver, and has the GPUs that the inventory gives it. virtual: whether it is a
    virtual machine, whose host may keep the NVSwitches. driver: version of the one that is installed, with whatever
    packages. works: whether it runs. packages: the names of its packages; none for a driver of a runfile. replaces:
    the option that asks for another one in place of one that works.
    """

    node: str
    system: str = ""
    machine: str = "x86_64"
    python: str = ""
    gpus: tuple[str, ...] = ()
    model: str = ""
    gpu_count: int = 0
    nvswitches: int = 0
    kernels: tuple[str, ...] = ()
    secure_boot: bool | None = None
    key_enrolled: bool | None = None
    managed: bool = True
    container: bool = False
    virtual: bool = False
    driver: str = ""
    works: bool = False
    packages: tuple[str, ...] = ()
    replaces: str = ""
    looked: bool = True

    @property
    def has_gpus(self) -> bool:
        return bool(self.gpu_count or (not self.container and (self.gpus or self.model)))


@dataclass(frozen=True)
class StackPackage:
    """A package of a node: its version is exact, a pattern of apt's (`580.159.04-*`), or left to apt when empty."""

    name: str
    version: str = ""

    def __str__(self) -> str:
        return f"{self.name}={self.version}" if self.version else self.name


@dataclass(frozen=True)
class StackChoice:
    """One decision and the one line that says why."""

    what: str
    value: str
    why: str


@dataclass(frozen=True)
class Refusal:
    """A request that cannot be had: whose, why, and what to write instead."""

    node: str
    why: str
    fix: str

    def __str__(self) -> str:
        return f"{self.node}: {self.why}. {self.fix}." if self.node else f"{self.why}. {self.fix}."


@dataclass(frozen=True)
class NodeStack:
    """What one node is given. pins: the packages that keep the others where they are, to be installed before them.

    keeps: whether it keeps a driver that works and that is none of ours. becomes: what happens to its driver.
    """

    node: str
    source: str = ""
    modules: str = ""
    build: str = ""
    pins: tuple[StackPackage, ...] = ()
    driver: tuple[StackPackage, ...] = ()
    fabric: tuple[StackPackage, ...] = ()
    headers: tuple[StackPackage, ...] = ()
    cuda: tuple[StackPackage, ...] = ()
    nccl: tuple[StackPackage, ...] = ()
    containers: tuple[StackPackage, ...] = ()
    dcgm: tuple[StackPackage, ...] = ()
    choices: tuple[StackChoice, ...] = ()
    keeps: bool = False
    becomes: str = ""


@dataclass(frozen=True)
class ResolvedStack:
    """The answer. Either refusals are empty and the rest is whole, or nothing of the rest is to be used."""

    torch: str = ""
    variant: str = ""
    index: str = ""
    cuda: str = ""
    nccl: str = ""
    branch: int = 0
    driver: str = ""
    choices: tuple[StackChoice, ...] = ()
    nodes: Mapping[str, NodeStack] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    refusals: tuple[Refusal, ...] = ()
