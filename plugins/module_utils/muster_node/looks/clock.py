"""Check whether the kernel considers its clock synchronised.

The state is read with adjtimex, as in timedatectl. timedatectl itself would start a service, which data collection must
not do.
"""

from __future__ import annotations

import ctypes
import os
from typing import Any

from ..tools.run import read

# struct timex on a 64-bit Linux, in 8 bytes each: modes, offset, freq, maxerror, and 22 more. Modes 0 only reads.
WORDS = 26
MAXERROR = 3


def look() -> dict[str, Any]:
    timex = (ctypes.c_int64 * WORDS)()
    libc = ctypes.CDLL(None, use_errno=True)
    answered = libc.adjtimex(ctypes.byref(timex)) >= 0
    why = "" if answered else f"adjtimex: {os.strerror(ctypes.get_errno())}"
    return {"max_error": timex[MAXERROR] if answered else None, "why": why, "zone": read("/etc/timezone").text.strip()}
