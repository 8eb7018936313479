"""Resolve one stack for all nodes.

The result has a reason for each choice, or the refusals and the closest alternative.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from typing import TYPE_CHECKING

from ..pytorch.pip import PYTORCH_WHEELS
from ..verdict.commands import tool
from ..verdict.words import few
from . import packages
from .driver import REPLACE, becomes, ended, is_maintained, with_kept
from .model import NodeStack, Refusal, ResolvedStack, StackChoice
from .modules import build_of, module_choices, module_refusals, modules_of, source_of
from .nodes import StackCase, nodes_with_gpus
from .table import numbers
from .torch_build import UNASKED, Candidate, choose_build, consider, nearest

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from .model import StackNodeFacts, StackRequest
    from .nodes import StackNode
    from .table import Branch, Release, VersionsTable

UNTOUCHED = StackChoice("GPU stack", "none", "the node has no GPUs and is left unchanged")
UNUSED = StackChoice(
    "GPU stack", "none", "the CPU build of PyTorch uses no GPUs, so installed software is left unchanged"
)
HOPELESS = "No known PyTorch release is compatible: remove the node, or install other GPUs"
# PyTorch is released every two months: a table that is older than two periods misses releases.
STALE_DAYS = 120


def resolve(
    table: VersionsTable, request: StackRequest, everybody: Sequence[StackNodeFacts], today: date
) -> ResolvedStack:
    """Return the stack of these nodes. Nodes without GPUs get only the CPU build of PyTorch."""
    warnings = list(stale(table, today))
    nodes, refusals = nodes_with_gpus(table, everybody)
    case = with_kept(StackCase(table, request, nodes, today.isoformat()[:7]))
    if request.variant == "cpu" or (not nodes and not refusals):
        return replace(_without_gpus(request, everybody), warnings=tuple(warnings))
    for node in case.given:
        refusals += module_refusals(case, node)
    refusals += _unknown_toolkits(table, request)
    release = table.release(request.torch)
    newest = max(table.releases, key=numbers)
    if release is None and numbers(request.torch) > numbers(newest):
        release = table.releases[newest]
        warnings.append(
            f"PyTorch {request.torch} is newer than the table of versions ({table.seen}) and is treated like {newest}. "
            f"To update the table, run {tool('torch_rows.py')}."
        )
    if release is None:
        fix = f"Set cluster_torch_version to {min(table.releases, key=numbers)} or newer"
        refusals.append(Refusal("", f"PyTorch {request.torch} is not in the table of versions", fix))
    if refusals or release is None:
        return ResolvedStack(refusals=tuple(refusals), warnings=tuple(warnings))
    stack = _fit(case, replace(release, version=request.torch), everybody)
    return replace(stack, warnings=(*warnings, *stack.warnings))


def _unknown_toolkits(table: VersionsTable, request: StackRequest) -> Iterator[Refusal]:
    known = table.cuda_toolkits
    fix = f"Correct cuda_toolkit_versions; the available versions are {', '.join(known)}"
    for version in request.cuda_toolkits:
        if version not in known:
            yield Refusal("", f"the CUDA toolkit {version} is not in the table of versions", fix)


def _without_gpus(request: StackRequest, everybody: Sequence[StackNodeFacts]) -> ResolvedStack:
    if request.variant not in (*UNASKED, "cpu"):
        fix = "Set pytorch_variant to auto, or set cluster_gpus for the nodes with GPUs"
        return ResolvedStack(
            refusals=(Refusal("", f"pytorch_variant is {request.variant}, but no node has GPUs", fix),)
        )
    why = "requested by pytorch_variant" if request.variant == "cpu" else "no node has GPUs"
    return ResolvedStack(
        torch=request.torch,
        variant="cpu",
        index=f"{PYTORCH_WHEELS}/cpu",
        choices=(StackChoice("PyTorch", f"{request.torch}+cpu", why),),
        nodes={
            seen.node: NodeStack(seen.node, choices=(UNUSED if seen.has_gpus else UNTOUCHED,)) for seen in everybody
        },
    )


def _fit(case: StackCase, release: Release, everybody: Sequence[StackNodeFacts]) -> ResolvedStack:
    found = choose_build(case, release)
    if found.refusals or found.branch is None:
        near = nearest(case, release)
        refusals = dict.fromkeys(found.refusals)
        return ResolvedStack(refusals=tuple(replace(one, fix=_ways_out(case, release, one, near)) for one in refusals))
    nccl, _ = release.variants[found.variant]
    stack = ResolvedStack(
        torch=release.version,
        variant=found.variant,
        index="" if found.variant == release.default else f"{PYTORCH_WHEELS}/{found.variant}",
        cuda=found.cuda,
        nccl=nccl,
        branch=found.branch.number,
        driver=case.request.driver if "." in case.request.driver else "",
        choices=tuple(choices(case, found, found.branch)),
        warnings=tuple(warnings(case, found, found.branch)),
    )
    instead = choose_build(replace(case, kept=frozenset()), release).branch if case.kept else None
    of_nodes = {
        node.name: replace(
            _node_stack(case, node, stack, found.branch), becomes=becomes(case, node, found.branch, instead)
        )
        for node in case.nodes
    }
    untouched = {seen.node: NodeStack(seen.node, choices=(UNTOUCHED,)) for seen in everybody}
    return replace(stack, nodes={**untouched, **of_nodes})


def _ways_out(case: StackCase, release: Release, refusal: Refusal, near: str) -> str:
    if refusal.fix != REPLACE:
        return near or refusal.fix or HOPELESS
    if choose_build(replace(case, kept=frozenset()), release).refusals:
        return near or HOPELESS
    return f"{REPLACE}, or {near[0].lower()}{near[1:]}" if near else REPLACE


def _node_stack(case: StackCase, node: StackNode, stack: ResolvedStack, branch: Branch) -> NodeStack:
    table, request = case.table, case.request
    number = branch.number if is_maintained(case, node, branch) else node.installed_branch
    beside = NodeStack(
        node=node.name,
        cuda=packages.cuda_toolkits(request.cuda_toolkits),
        nccl=packages.nccl(table, stack.nccl, stack.cuda) if request.nccl else (),
        containers=packages.containers(table) if request.container_toolkit else (),
        dcgm=packages.dcgm(table, node, number) if request.dcgm else (),
    )
    if not node.seen.managed:
        why = "maintained by DGX OS" if node.seen.dgx else "nvidia_driver_mode is not manage"
        why = "installed on the host" if node.seen.container else why
        judged = StackChoice("driver", node.seen.driver, f"{why}: checked, but not changed")
        return replace(beside, choices=(judged,))
    if not is_maintained(case, node, branch):
        return replace(beside, keeps=True)
    source, modules, build = source_of(case, node), modules_of(case, node), build_of(case, node)
    return replace(
        beside,
        source=source,
        modules=modules,
        build=build,
        pins=packages.pins(source, branch, stack.driver),
        driver=packages.driver(node, source, branch, modules, build),
        fabric=packages.fabric(node, source, branch),
        headers=packages.headers(node, build),
        choices=tuple(module_choices(case, node)),
    )


def choices(case: StackCase, found: Candidate, branch: Branch) -> Iterator[StackChoice]:
    release, variant = found.release, found.variant
    yield StackChoice("PyTorch", f"{release.version}+{variant}", _why_variant(case, found))
    nccl, cudnn = release.variants[variant]
    if nccl:
        yield StackChoice("NCCL", nccl, "included in this build and used for training")
    if cudnn:
        yield StackChoice("cuDNN", cudnn, "included in this build")
    if case.given:
        floor = case.table.floors[found.cuda.partition(".")[0]]
        yield StackChoice("driver", case.request.driver or str(branch.number), _why_branch(case, branch, floor))


def _why_variant(case: StackCase, found: Candidate) -> str:
    default = found.release.default
    if case.request.variant == found.variant:
        return "requested by pytorch_variant"
    if found.variant == default:
        return "the default build of this release; it has code for every GPU of the cluster"
    return f"instead of {default}, because {consider(case, found.release, default).refusals[0].why}"


def _why_branch(case: StackCase, branch: Branch, floor: str) -> str:
    about = f"{branch.kind}, {f'supported until {branch.until}' if branch.until else 'end of support unknown'}"
    if case.request.driver:
        why = "requested by gpu_stack_driver"
    elif any(node.installed_branch == branch.number for node in case.managed):
        why = "already installed"
    else:
        why = f"first choice for {case.given[0].system.name}"
    return f"{why} ({about}); CUDA requires {floor} or newer"


def warnings(case: StackCase, found: Candidate, branch: Branch) -> Iterator[str]:
    if ended(branch, case.month):
        yield f"NVIDIA's security support for driver {branch.number} ended in {branch.until}."
    native = case.table.natives.get(found.cuda)
    if native and numbers(branch.newest) < numbers(native):
        yield (
            f"CUDA {found.cuda} was released with driver {native}. It also runs with driver {branch.number}, "
            "but without features that require the newer driver."
        )
    assumed: dict[str, list[str]] = {}
    for node in case.nodes:
        if not node.seen.looked:
            assumed.setdefault(node.system.name, []).append(node.name)
    for system, names in assumed.items():
        yield (f"{few(names)}: not inspected yet. Assumptions: {system} (gpu_stack_system), no Secure Boot, no driver.")
    blind = [
        node.name
        for node in case.given
        if node.seen.looked and node.seen.secure_boot is None and build_of(case, node) == "dkms"
    ]
    if blind:
        yield (
            f"{few(blind)}: the state of Secure Boot is unknown. "
            "If Secure Boot is enabled, enroll the signing key of dkms first."
        )


def stale(table: VersionsTable, today: date) -> Iterator[str]:
    age = (today - date.fromisoformat(table.seen)).days
    if age > STALE_DAYS:
        yield f"The table of versions is {age} days old. To add newer releases, run {tool('torch_rows.py')}."
