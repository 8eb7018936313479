"""Whether the firmware lets the kernel load only signed modules."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .look_run import run

EFI = "/sys/firmware/efi"
# The variable's name is the same on every machine: its second half is the UEFI's own vendor id.
VARIABLE = f"{EFI}/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"


def look() -> dict[str, Any]:
    try:
        variable = list(Path(VARIABLE).read_bytes())
    except OSError:
        variable = []
    efi = Path(EFI).is_dir()
    mokutil = run("mokutil", "--sb-state").text if efi and not variable else ""
    return {"efi": efi, "variable": variable, "mokutil": mokutil}
