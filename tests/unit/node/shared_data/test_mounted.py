"""Mounts of a node, parsed from the kernel's mount table."""

from __future__ import annotations

from muster_node.shared_data.mounted import parse

# Format: proc(5). A space in a path is written as \040.
TEXT = """\
25 30 0:23 / /proc rw,nosuid,nodev,noexec,relatime shared:12 - proc proc rw
61 30 0:52 / /data rw,relatime shared:31 - autofs systemd-1 rw,fd=53,timeout=0,direct
88 61 0:61 / /data rw,relatime shared:99 - nfs4 files:/export\\040data rw,vers=4.2,hard,timeo=150
a line that is none
"""


def test_mounts_are_parsed_in_order_with_sources() -> None:
    found = parse(TEXT)
    assert [(one.path, one.source, one.type) for one in found] == [
        ("/proc", "proc", "proc"),
        ("/data", "systemd-1", "autofs"),
        ("/data", "files:/export data", "nfs4"),
    ]
    assert found[2].options == "rw,relatime,rw,vers=4.2,hard,timeo=150"
