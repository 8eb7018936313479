"""A folder of one node that other nodes mount with sshfs: a real network file system with its own server.

The kernel of the test machine has no NFS client.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from machines import Machine

EXPORT, PATH = "/srv/export", "/data"
KEY = "/etc/ssh/muster_test_data"
DEVICES = {
    "/dev/fuse": "which nodes need to mount an export",
    "/dev/autofs": "which automounts need",
}


def skip_if_unsupported(machine: Machine) -> None:
    for device, use in DEVICES.items():
        if machine.inside("test", "-c", device, check=False).returncode:
            pytest.skip(f"this machine has no {device}, {use}")


@contextmanager
def exported(server: Machine, nodes: Sequence[Machine]) -> Iterator[dict[str, Any]]:
    """Yield a shared_data_mounts entry for a folder that root on each node can mount as the training user."""
    server.inside("install", "-d", "-o", "muster", "-g", "muster", EXPORT)
    server.inside("sh", "-ec", f"echo hello > {EXPORT}/readme; chown muster: {EXPORT}/readme")
    for machine in nodes:
        machine.inside("sh", "-ec", f"rm -f {KEY}*; ssh-keygen -q -t ed25519 -N '' -f {KEY}")
        public = machine.inside("cat", f"{KEY}.pub").stdout.strip()
        server.inside("sh", "-ec", f"echo '{public} muster-test-data' >> /home/muster/.ssh/authorized_keys")
        host_key = server.inside("cat", "/etc/ssh/ssh_host_ed25519_key.pub").stdout.split()
        machine.inside("sh", "-ec", f"echo '{server.address} {' '.join(host_key[:2])}' > {KEY}.hosts")
        for kind, option in (("uids", "-u"), ("gids", "-g")):  # by name, as with NFS 4, because the numbers may differ
            there = server.inside("id", option, "muster").stdout.strip()
            machine.inside("sh", "-ec", f"echo muster:{there} > {KEY}.{kind}")
    names = f"idmap=file,uidfile={KEY}.uids,gidfile={KEY}.gids,nomap=ignore"
    options = f"allow_other,{names},IdentityFile={KEY},UserKnownHostsFile={KEY}.hosts,StrictHostKeyChecking=yes"
    try:
        yield {"source": f"muster@{server.address}:{EXPORT}", "path": PATH, "type": "fuse.sshfs", "options": options}
    finally:
        server.inside("sed", "-i", "/muster-test-data$/d", "/home/muster/.ssh/authorized_keys")
        for machine in nodes:
            machine.inside("sh", "-c", f"rm -rf {KEY}* {EXPORT}; rmdir {PATH} 2>/dev/null", check=False)
