"""Probe whether a folder responds. A separate process does the probe and is abandoned if the kernel blocks it."""

from __future__ import annotations

from ..tools.run import run


def silence(path: str, seconds: float) -> tuple[str, bool]:
    """Return the reason why a folder is unusable ("" if the folder responds), and whether the probe timed out.

    The /. at the end of the path triggers an automount.
    """
    said = run("stat", "--file-system", "--format=%T", f"{path}/.", seconds=seconds)
    if said.late:
        return f"no response within {seconds:.0f} s", True
    if said.code == 0:
        return "", False
    return (said.aside.rpartition(": ")[2].strip() or said.why)[:200], False
