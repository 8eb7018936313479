"""Make a sandbox machine look like a machine with RDMA adapters, as far as files and programs allow.

/sys/class is a copy of the real folder with added adapters (rdma_sysfs.py). The tools communicate over TCP
(programs/rdma_tool.py).
"""

from __future__ import annotations

import io
import json
import subprocess
import tarfile
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import rdma_sysfs

if TYPE_CHECKING:
    from collections.abc import Mapping

TOOL = Path(__file__).with_name("programs") / "rdma_tool.py"
TOOLS = ("ibv_rc_pingpong", "ib_write_bw", "ib_write_lat")
SETTINGS = "/etc/standin-rdma.json"
LOG = "/var/tmp/standin-rdma.log"
LIBRARY = "/usr/local/lib/standin-rdma"
COVER = """
mkdir -p /run/standin-class
cp -a /sys/class/. /run/standin-class/ 2>/run/standin-class.log || true
mount -t tmpfs -o mode=0755 standin /sys/class
cp -a /run/standin-class/. /sys/class/
rm -r /run/standin-class
tar -x -C /
mkdir -p /dev/infiniband
touch /dev/infiniband/uverbs0
"""
UNCOVER = f"""
if test -d /sys/class/infiniband; then umount --lazy /sys/class; fi
rm -rf /dev/infiniband {LIBRARY} {SETTINGS} {LOG} /usr/local/bin/ldconfig
cd /usr/local/bin && rm -f {" ".join(TOOLS)}
"""


def inside(container: str, script: str, given: bytes = b"") -> None:
    argv = ["podman", "exec", "--interactive", container, "sh", "-euc", script]
    done = subprocess.run(argv, check=False, capture_output=True, input=given)
    assert done.returncode == 0, f"{container}: {done.stdout!r}{done.stderr!r}"


def make(container: str, adapters: Mapping[str, Mapping[str, str]], faults: Mapping[str, Any]) -> None:
    """Add adapters to a machine. faults: faults that the tools simulate (see programs/rdma_tool.py)."""
    programs = {f"usr/local/bin/{name}": TOOL.read_bytes() for name in TOOLS}
    listed = f"#!/bin/sh\necho '\tlibibverbs.so.1 (libc6,x86-64) => {LIBRARY}/libibverbs.so.1'\n"
    programs["usr/local/bin/ldconfig"] = listed.encode()
    files = {
        SETTINGS[1:]: json.dumps({**faults, "log": LOG}).encode(),
        LOG[1:]: b"",
        f"{LIBRARY[1:]}/libibverbs.so.1": b"",
        f"{LIBRARY[1:]}/libibverbs/libmlx5-rdmav34.so": b"",
    }
    packed = io.BytesIO()
    with tempfile.TemporaryDirectory() as folder, tarfile.open(fileobj=packed, mode="w") as tar:
        rdma_sysfs.write(Path(folder) / "infiniband", adapters)
        tar.add(Path(folder) / "infiniband", "sys/class/infiniband")
        for mode, those in ((0o755, programs), (0o666, files)):
            for name, content in those.items():
                entry = tarfile.TarInfo(name)
                entry.size, entry.mode = len(content), mode
                tar.addfile(entry, io.BytesIO(content))
    inside(container, COVER, packed.getvalue())


def undo(container: str) -> None:
    inside(container, UNCOVER)
