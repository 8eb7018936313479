"""Choose the packages that are removed together with the NVIDIA driver, and check for conflicts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..verdict.commands import shell
from ..verdict.words import few
from .family import is_part

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from .apt import AptSimulation


def parts(packages: Iterable[str]) -> list[str]:
    """Return the installed packages of the driver. CUDA, NCCL and the container toolkit are not included."""
    return sorted(name for name in packages if is_part(name))


def refusals(answer: AptSimulation) -> list[str]:
    """Return why the driver cannot be removed now."""
    found = list(answer.errors)
    others = [name for name in answer.removes if not is_part(name)]
    if others:
        found.append(
            f"apt would also remove {few(others)}, because they depend on the driver: remove them first with"
            f" {shell('sudo apt-get remove {names}', names=others)}, or do not set wipe_driver"
        )
    return found


def remark(runfile: Sequence[str], *, loaded: bool) -> str:
    """Return the manual steps that remain after the removal; "" if there are none."""
    said = []
    if runfile:
        said.append(
            f"a driver from a runfile is still installed; remove it: {shell('sudo {program}', program=runfile[0])}"
        )
    if loaded:
        said.append("the driver module stays loaded until the next boot: sudo systemctl reboot")
    return "; ".join(said)
