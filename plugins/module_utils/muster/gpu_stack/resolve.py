"""One stack for all nodes, with one line of reason per choice; or why there is none, and the nearest that there is."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ..pytorch.pip import PYTORCH_WHEELS
from ..verdict.commands import tool
from . import packages, reasons
from .driver import REPLACE
from .kept import becomes, is_maintained, with_kept
from .model import NodeStack, Refusal, ResolvedStack, StackChoice
from .modules import build_of, module_choices, module_refusals, modules_of, source_of
from .nodes import StackCase, nodes_with_gpus
from .table import numbers
from .torch_build import UNASKED, choose_build, nearest

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import date

    from .model import StackNodeFacts, StackRequest
    from .nodes import GpuNode
    from .table import Branch, Release, VersionsTable

UNTOUCHED = StackChoice("GPU stack", "none", "the node has no GPUs, and is left untouched")
UNUSED = StackChoice("GPU stack", "none", "PyTorch for the CPU uses no GPU: what is there is left as it is")
HOPELESS = "No release that is known here fits: leave the node out, or give it other GPUs"


def resolve(
    table: VersionsTable, request: StackRequest, everybody: Sequence[StackNodeFacts], today: date
) -> ResolvedStack:
    """Return the stack of these nodes. Nodes without GPUs get nothing but PyTorch's build for the CPU."""
    warnings = list(reasons.stale(table, today))
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
            f"PyTorch {request.torch} is newer than the table of {table.seen}, and is taken to be like {newest}: "
            f"run {tool('torch_rows.py')}."
        )
    if release is None:
        fix = f"Set cluster_torch_version to {min(table.releases, key=numbers)} or newer"
        refusals.append(Refusal("", f"nothing is known here of PyTorch {request.torch}", fix))
    if refusals or release is None:
        return ResolvedStack(refusals=tuple(refusals), warnings=tuple(warnings))
    stack = _fit(case, replace(release, version=request.torch), everybody)
    return replace(stack, warnings=(*warnings, *stack.warnings))


def _unknown_toolkits(table: VersionsTable, request: StackRequest) -> Iterator[Refusal]:
    known = table.cuda_toolkits
    fix = f"Correct cuda_toolkit_versions: there are {', '.join(known)}"
    for version in request.cuda_toolkits:
        if version not in known:
            yield Refusal("", f"there is no CUDA toolkit {version}", fix)


def _without_gpus(request: StackRequest, everybody: Sequence[StackNodeFacts]) -> ResolvedStack:
    if request.variant not in (*UNASKED, "cpu"):
        fix = "Set it to auto, or set cluster_gpus on the nodes that have some"
        return ResolvedStack(
            refusals=(Refusal("", f"pytorch_variant is {request.variant}, and no node has GPUs", fix),)
        )
    why = "pytorch_variant asks for it" if request.variant == "cpu" else "no node has GPUs"
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
        choices=tuple(reasons.choices(case, found, found.branch)),
        warnings=tuple(reasons.warnings(case, found, found.branch)),
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


def _node_stack(case: StackCase, node: GpuNode, stack: ResolvedStack, branch: Branch) -> NodeStack:
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
        why = "it is its host's" if node.seen.container else "nvidia_driver_mode is not manage"
        judged = StackChoice("driver", node.seen.driver, f"{why}: it is judged, and left as it is")
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
