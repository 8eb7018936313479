"""Types of the resolver's input and output."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True)
class StackRequest:
    """The request from the inventory (roles/gpu_stack/meta/argument_specs.yml).

    An empty string means that Muster chooses.
    """

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
    """Facts about a node, from its inspection or, before the inspection, from the inventory.

    gpus: PCI device IDs such as `10de:2330`. model, gpu_count: the GPUs declared in the inventory. system: such as
    `ubuntu-24.04`. kernels: flavours of the installed kernels (`generic`, `aws`), the flavour of the running kernel
    first. releases: the kernels for which a module is required. secure_boot: None if unknown. key_enrolled: whether the
    firmware trusts the signing key of dkms. managed: whether Muster may install the driver. dgx: whether DGX OS
    maintains it. container: whether the node is a container, which shares the PCI bus and the driver of its host and
    has the GPUs that the inventory assigns. virtual: whether the node is a virtual machine, whose host may manage the
    NVSwitches. driver: version of the installed driver, whichever packages it came from. works: whether the driver
    works. packages: names of the driver's packages; empty for a driver from a runfile. replaces: the option that
    requests replacing a working driver. looked: whether the node was inspected.
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
    releases: tuple[str, ...] = ()
    secure_boot: bool | None = None
    key_enrolled: bool | None = None
    managed: bool = True
    dgx: bool = False
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
    """A package to install on a node.

    version: an exact version, an apt pattern (`580.159.04-*`), or "" to let apt choose.
    """

    name: str
    version: str = ""

    def __str__(self) -> str:
        return f"{self.name}={self.version}" if self.version else self.name


@dataclass(frozen=True)
class StackChoice:
    """One decision, and the reason for it in one line."""

    what: str
    value: str
    why: str


@dataclass(frozen=True)
class Refusal:
    """A request that cannot be met: the node, the reason and the fix."""

    node: str
    why: str
    fix: str

    def __str__(self) -> str:
        return f"{self.node}: {self.why}. {self.fix}." if self.node else f"{self.why}. {self.fix}."


@dataclass(frozen=True)
class NodeStack:
    """The packages of one node. pins: packages that pin the versions of the other packages and are installed before
    them.

    keeps: whether the node keeps a working driver that Muster did not install. becomes: what happens to the driver.
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
    """The resolved stack. If there are refusals, the other fields must not be used."""

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
