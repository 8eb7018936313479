"""What goes when NVIDIA's driver is taken off a node, and what stands against it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..verdict.commands import shell
from ..verdict.words import few
from .family import is_part

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from .apt import AptSimulation


def parts(packages: Iterable[str]) -> list[str]:
    """Of the packages that are there, those of the driver. CUDA, NCCL and the container toolkit are none of them."""
    return sorted(name for name in packages if is_part(name))


def refusals(answer: AptSimulation) -> list[str]:
    """Why it cannot go now. answer: what apt would do."""
    found = list(answer.errors)
    others = [name for name in answer.removes if not is_part(name)]
    if others:
        found.append(
            f"apt would remove {few(others)} too, which depend on the driver: remove them first, with"
            f" {shell('sudo apt-get remove {names}', names=others)}, or leave wipe_driver out"
        )
    return found


def remark(runfile: Sequence[str], *, loaded: bool) -> str:
    """What a person has to do behind it; empty for nothing."""
    said = []
    if runfile:
        said.append(f"a driver that a runfile installed stays: {shell('sudo {program}', program=runfile[0])}")
    if loaded:
        said.append("its module stays in the kernel until the next start: sudo systemctl reboot")
    return "; ".join(said)
