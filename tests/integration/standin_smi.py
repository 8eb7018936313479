"""Two simulated GPUs: device files, and a stub of nvidia-smi that lists the processes on them."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from machines import Machine

COMPUTING = "/run/muster-test-computing"  # lines of "GPU-aa, PID"
PROGRAM = "/usr/local/bin/nvidia-smi"
NVIDIA_SMI = f"""#!/bin/sh
# Stub of nvidia-smi for Muster's tests: two GPUs, and the processes listed in a file.
case $1 in
--query-gpu=index,uuid,name,*) printf '0, GPU-aa, Stand-in, 4, 0\\n1, GPU-bb, Stand-in, 0, 0\\n' ;;
--query-gpu=*) printf '0, GPU-aa\\n1, GPU-bb\\n' ;;
*) cat {COMPUTING} ;;
esac
"""


@contextmanager
def two_gpus(machines: Iterable[Machine]) -> Iterator[None]:
    """Provide two GPUs without processes."""
    there = list(machines)
    for machine in there:
        machine.inside("touch", "/dev/nvidia0", "/dev/nvidia1", COMPUTING)
        machine.inside("sh", "-ec", f"cat >{PROGRAM} <<'END'\n{NVIDIA_SMI}END\nchmod 755 {PROGRAM}")
    try:
        yield
    finally:
        for machine in there:
            machine.inside("rm", "/dev/nvidia0", "/dev/nvidia1", COMPUTING, PROGRAM)
