"""What failed before a launch: the driver's module, packages, logins. Muster's own steps check these."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...verdict.commands import OnNode
from ..model import Cause, CausePlace

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ..case import LaunchCase
    from ..model import Symptom


def where_met(case: LaunchCase, by: Sequence[Symptom]) -> Iterator[CausePlace]:
    del case
    return (CausePlace(one.node) for one in by)


def outside(name: str, says: str, fix: str, command: OnNode) -> Cause:
    """Return a cause outside the launch, which only its line suggests."""
    return Cause(
        f"before.{name}",
        scope="node",
        says=f"{says} (before the launch, which did not begin there)",
        fix=fix,
        command=command,
        symptoms=(f"before.{name}",),
        places=where_met,
        confirm=(),
    )


CAUSES = (
    outside(
        "module",
        "the kernel module of the NVIDIA driver could not be built or loaded on {node}",
        "Install the headers of the running kernel and a driver that supports it, and check Secure Boot. Show the state"
        " of the modules",
        OnNode("dkms status"),
    ),
    outside(
        "packages",
        "the package manager on {node} could not install a package",
        "Repair the packages and their sources, and wait for other runs of apt. Show the packages that are not installed"
        " completely",
        OnNode("dpkg --audit"),
    ),
    outside(
        "login",
        "a login by SSH to a node failed",
        "Set up SSH keys without a password and known host keys between the nodes, or launch without SSH. Test the login"
        " in the log with ssh -v. Show the loaded keys",
        OnNode("ssh-add -l"),
    ),
)
