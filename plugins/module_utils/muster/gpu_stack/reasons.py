"""One line of reason for every choice that belongs to all nodes, and what is worth a warning."""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING

from ..verdict.commands import tool
from ..verdict.words import few
from .driver import ended
from .model import StackChoice
from .modules import build_of
from .table import numbers
from .torch_build import Candidate, consider

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .nodes import StackCase
    from .table import Branch, VersionsTable

# PyTorch comes out every two months: a table that is older than two of those misses releases.
STALE_DAYS = 120


def choices(case: StackCase, found: Candidate, branch: Branch) -> Iterator[StackChoice]:
    release, variant = found.release, found.variant
    yield StackChoice("PyTorch", f"{release.version}+{variant}", _why_variant(case, found))
    nccl, cudnn = release.variants[variant]
    if nccl:
        yield StackChoice("NCCL", nccl, "comes with that build, and is the one that a training loads")
    if cudnn:
        yield StackChoice("cuDNN", cudnn, "comes with that build")
    if case.given:
        floor = case.table.floors[found.cuda.partition(".")[0]]
        yield StackChoice("driver", case.request.driver or str(branch.number), _why_branch(case, branch, floor))


def _why_variant(case: StackCase, found: Candidate) -> str:
    default = found.release.default
    if case.request.variant == found.variant:
        return "pytorch_variant asks for it"
    if found.variant == default:
        return "what the package index gives for that release; it has code for every GPU"
    return f"instead of {default}, because {consider(case, found.release, default).refusals[0].why}"


def _why_branch(case: StackCase, branch: Branch, floor: str) -> str:
    about = f"{branch.kind}, {f'supported until {branch.until}' if branch.until else 'end of support not known'}"
    if case.request.driver:
        why = "gpu_stack_driver asks for it"
    elif any(node.installed_branch == branch.number for node in case.managed):
        why = "it is installed already"
    else:
        why = f"the first that {case.given[0].system.name} is given"
    return f"{why} ({about}); CUDA needs {floor} or newer"


def warnings(case: StackCase, found: Candidate, branch: Branch) -> Iterator[str]:
    if ended(branch, case.month):
        yield f"Driver {branch.number} has been without security fixes since {branch.until}."
    native = case.table.natives.get(found.cuda)
    if native and numbers(branch.newest) < numbers(native):
        yield (
            f"CUDA {found.cuda} came with driver {native}. It runs on {branch.number} too, "
            "without what only the newer driver can do."
        )
    assumed: dict[str, list[str]] = {}
    for node in case.nodes:
        if not node.seen.looked:
            assumed.setdefault(node.system.name, []).append(node.name)
    for system, names in assumed.items():
        yield (
            f"{few(names)}: nobody looked at {'it' if len(names) == 1 else 'them'} yet. "
            f"Taken for {system} (gpu_stack_system), without Secure Boot and without a driver."
        )
    blind = [
        node.name
        for node in case.given
        if node.seen.looked and node.seen.secure_boot is None and build_of(case, node) == "dkms"
    ]
    if blind:
        yield (
            f"{few(blind)}: whether Secure Boot is on could not be seen. "
            "Where it is, the key that dkms signs with has to be enrolled first."
        )


def stale(table: VersionsTable, today: date) -> Iterator[str]:
    age = (today - date.fromisoformat(table.seen)).days
    if age > STALE_DAYS:
        yield f"The table of versions is {age} days old and misses newer releases: run {tool('torch_rows.py')}."
