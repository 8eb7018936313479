"""Choose the first PyTorch build that has code for every GPU, supports every Python and has an available driver."""

from __future__ import annotations

from dataclasses import astuple, dataclass, replace
from typing import TYPE_CHECKING

from .driver import choose_branch
from .model import Refusal
from .modules import module_refusals
from .table import numbers

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .nodes import StackCase
    from .table import Branch, Release

UNASKED = ("auto", "cuda")


@dataclass(frozen=True)
class Candidate:
    """A PyTorch build, the driver branch that it needs, and the refusals."""

    release: Release
    variant: str
    branch: Branch | None
    refusals: tuple[Refusal, ...]

    @property
    def cuda(self) -> str:
        return cuda_of(self.variant)


def cuda_of(variant: str) -> str:
    """Return the CUDA version of a build, such as 13.0 for cu130."""
    return f"{variant[2:-1]}.{variant[-1]}"


def choose_build(case: StackCase, release: Release) -> Candidate:
    """Return the build with the fewest refusals; among equal builds, the preferred one."""
    return min(
        (consider(case, release, variant) for variant in _variants(case, release)), key=lambda c: len(c.refusals)
    )


def _variants(case: StackCase, release: Release) -> list[str]:
    """Return the requested build.

    If none is requested, return the default build of the package index, then the others, newest CUDA first.
    """
    if case.request.variant not in UNASKED:
        return [case.request.variant]
    others = [variant for variant in release.variants if variant != release.default]
    others.sort(key=lambda variant: int(variant[2:]), reverse=True)
    return [release.default] if case.request.variant == "cuda" else [release.default, *others]


def consider(case: StackCase, release: Release, variant: str) -> Candidate:
    """Return a build with its driver branch and all refusals."""
    if variant not in release.variants:
        fix = f"Set pytorch_variant to one of {', '.join(release.variants)}, or to auto"
        return Candidate(
            release, variant, None, (Refusal("", f"PyTorch {release.version} has no build {variant}", fix),)
        )
    branch, against = choose_branch(case, case.table.floors[cuda_of(variant).partition(".")[0]])
    return Candidate(release, variant, branch, (*_unfit(case, release, variant), *against))


def _unfit(case: StackCase, release: Release, variant: str) -> Iterator[Refusal]:
    for node in case.nodes:
        arm = " for aarch64" if node.seen.machine == "aarch64" else ""
        for chip in node.chips:
            if not case.table.has_code_for(variant, release.version, chip.capability, node.seen.machine):
                why = f"PyTorch {release.version} built for {variant}{arm} has no code for {node.gpu(chip)}"
                yield Refusal(node.name, why, "")
        if not release.takes(node.python):
            oldest, newest = release.python
            why = f"PyTorch {release.version} supports Python {oldest} to {newest}, but the node has {node.python}"
            yield Refusal(node.name, why, "")


def nearest(case: StackCase, release: Release) -> str:
    """Return the options that give the stack closest to the request; "" if no stack is possible.

    The requested release is tried first, then earlier releases from newest to oldest, then later releases.
    """
    wanted = numbers(release.version)
    rows = sorted(case.table.releases.values(), key=lambda row: numbers(row.version))
    before = [row for row in rows if numbers(row.version) < wanted]
    after = [row for row in rows if numbers(row.version) > wanted]
    for other in (release, *reversed(before), *after):
        for looser in _looser(case):
            found = choose_build(looser, other)
            if not found.refusals:
                return _in_options(case, looser, found, release.version)
    return ""


def _looser(case: StackCase) -> Iterator[StackCase]:
    """Yield less strict requests, starting with the fewest changes: no change, then a change of build, driver or
    source, then several changes.
    """
    request = case.request
    attempts = [
        replace(request, variant=variant, driver=driver, source=source)
        for source in dict.fromkeys((request.source, "auto", "ubuntu", "debian"))
        for driver in dict.fromkeys((request.driver, ""))
        for variant in dict.fromkeys((request.variant, "auto"))
    ]
    # The sort is stable: equal attempts stay in the order above.
    attempts.sort(key=lambda attempt: sum(a != b for a, b in zip(astuple(attempt), astuple(request), strict=True)))
    for attempt in attempts:
        # A kept driver stays kept, because its replacement is a separate suggestion.
        looser = replace(case, request=attempt)
        if not any(refusal for node in looser.given for refusal in module_refusals(looser, node)):
            yield looser


def _in_options(case: StackCase, looser: StackCase, found: Candidate, torch: str) -> str:
    request, options = case.request, []
    if found.release.version != torch:
        options.append(f"cluster_torch_version to {found.release.version}")
    if looser.request.variant != request.variant and not (
        request.variant == "cuda" and found.variant == found.release.default
    ):
        options.append(f"pytorch_variant to {found.variant}")
    if looser.request.driver != request.driver and found.branch:
        options.append(f"gpu_stack_driver to {found.branch.number}")
    if looser.request.source != request.source:
        options.append(f"gpu_stack_source to {looser.request.source}")
    return "Set " + ", and ".join(options)
