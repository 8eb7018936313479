"""Whether the firmware lets the kernel load only signed modules, and trusts the key that dkms signs with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..tools import files
from ..tools.run import run

EFI = "/sys/firmware/efi"
# The variable's name is the same on every machine: its second half is the UEFI's own vendor id.
# Where dkms keeps the certificate of its key: Ubuntu's, and Debian's.
CERTIFICATES = ("/var/lib/shim-signed/mok/MOK.der", "/var/lib/dkms/mok.pub")
VARIABLE = f"{EFI}/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"


def look() -> dict[str, Any]:
    try:
        variable = list(files.read(VARIABLE))
    except OSError:
        variable = []
    efi = Path(EFI).is_dir()
    mokutil = run("mokutil", "--sb-state").text if efi and not variable else ""
    there = [path for path in CERTIFICATES if efi and Path(path).exists()]
    tests = {path: run("mokutil", "--test-key", path) for path in there}
    return {
        "efi": efi,
        "variable": variable,
        "mokutil": mokutil,
        # It ends with 1 for a key that is enrolled.
        "keys": {path: test.text or test.why for path, test in tests.items()},
    }
