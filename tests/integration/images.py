"""A container image for launches, as no registry is in reach: a copy of a node's own system and PyTorch environment.

A node of the sandbox lies on an overlay, on which podman makes none of its own: its storage is a stand-in in memory.
"""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from machines import Machine

STORAGE = "/var/lib/containers/storage"
MARK = "/etc/muster-test-image"  # what is in the image alone
CURRENT = "/opt/muster/pytorch/current"
# What a node has of PyTorch lies where it lay; of the system comes what Python needs, and none of its accounts.
MAKE = f"""
set -eu
root=$(mktemp -d /var/tmp/muster-test-image.XXXXXX)
trap 'rm -rf $root' EXIT
env=$(readlink -f {CURRENT})
cd /
tar --create --one-file-system --exclude=./usr/share --exclude=./usr/lib/modules --exclude=./usr/lib/firmware \
    --exclude='./etc/ssh*' --exclude=./etc/shadow --exclude=./etc/passwd --file=- \
    ./usr ./etc ./bin ./lib ./lib64 ./sbin | tar --extract --directory=$root --file=-
mkdir -p $root/tmp $root/root $root$(dirname $env)
tar --create --exclude=torch/include --exclude=torch/test --exclude='*.a' --directory=$(dirname $env) --file=- \
    $(basename $env) | tar --extract --directory=$root$(dirname $env) --file=-
ln -s $env $root{CURRENT}
echo "root:x:0:0::/root:/bin/sh" > $root/etc/passwd
echo in the image > $root{MARK}
tar --create --directory=$root --file=- . | podman import --quiet \
    --change 'ENV PATH={CURRENT}/bin:/usr/bin:/bin' --change 'ENV OF_THE_IMAGE=yes' - localhost/muster-test:1
podman save --quiet --format docker-archive --output $1 localhost/muster-test:1
podman rmi --all --force >/dev/null
"""


def give_podman(machine: Machine) -> None:
    """Storage in memory."""
    mount = f"mountpoint -q {STORAGE} || {{ mkdir -p {STORAGE}; mount -t tmpfs -o size=4g tmpfs {STORAGE}; }}"
    machine.inside("sh", "-ec", mount)


def take_podman(machine: Machine) -> None:
    machine.inside("sh", "-c", f"podman rmi --all --force >/dev/null 2>&1; umount --lazy {STORAGE}; true")


def make_archive(machine: Machine, path: Path) -> None:
    """Made by one node's podman, which forgets it again."""
    there = "/var/tmp/muster-test-image.tar"
    machine.inside("sh", "-c", MAKE, "make", there)
    try:
        subprocess.run(["podman", "cp", f"{machine.container}:{there}", str(path)], check=True, capture_output=True)
    finally:
        machine.inside("rm", "-f", there)


def containers(machine: Machine) -> str:
    return machine.inside("podman", "ps", "--all", "--quiet").stdout
