"""Whether a folder answers: asked by a process of its own, which is left behind where the kernel holds it."""

from __future__ import annotations

from ..tools.run import run


def silence(path: str, seconds: float) -> tuple[str, bool]:
    """Why a folder is of no use, empty where it answers; and whether it was only late.

    Behind the slash: one that is mounted when it is used is mounted by this.
    """
    said = run("stat", "--file-system", "--format=%T", f"{path}/.", seconds=seconds)
    if said.late:
        return f"it did not answer within {seconds:.0f} s", True
    if said.code == 0:
        return "", False
    return (said.aside.rpartition(": ")[2].strip() or said.why)[:200], False
