"""A container image for launches, built without a registry from a node's system and PyTorch environment.

Sandbox nodes run on overlayfs, on which podman cannot mount another overlay. Their image storage is a tmpfs.
"""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from machines import Machine

STORAGE = "/var/lib/containers/storage"
FOUND_OUT = "/run/containers/storage"
MARK = "/etc/muster-test-image"  # exists only in the image
CURRENT = "/opt/muster/pytorch/current"
# The PyTorch environment keeps its path. Of the system, only the files that Python needs are copied, without accounts.
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
    """Mount image storage in memory, and delete podman's cached decision that the storage is unusable."""
    mount = f"mkdir -p {STORAGE}; mount -t tmpfs -o size=4g tmpfs {STORAGE}; rm -rf {FOUND_OUT}"
    machine.inside("sh", "-ec", f"mountpoint -q {STORAGE} || {{ {mount}; }}")


def take_podman(machine: Machine) -> None:
    machine.inside("sh", "-c", f"podman rmi --all --force >/dev/null 2>&1; umount --lazy {STORAGE}; rm -rf {FOUND_OUT}")


def make_archive(machine: Machine, path: Path) -> None:
    """Build the archive with podman on one node and copy it to this machine. Nothing is kept on the node."""
    there = "/var/tmp/muster-test-image.tar"
    machine.inside("sh", "-c", MAKE, "make", there)
    try:
        subprocess.run(["podman", "cp", f"{machine.container}:{there}", str(path)], check=True, capture_output=True)
    finally:
        machine.inside("rm", "-f", there)


def containers(machine: Machine) -> str:
    return machine.inside("podman", "ps", "--all", "--quiet").stdout


REGISTRIES = "/etc/containers/registries.conf.d/muster-test.conf"


def give_registry(nodes: list[Machine], archive: Path) -> str:
    """Start an unencrypted registry on the first node and push the image of the archive. Return the image name with its
    digest.

    The image storage of the nodes does not keep the image.
    """
    first = nodes[0]
    place = f"{first.address}:5000"
    for machine in nodes:
        text = f'[[registry]]\\nlocation = "{place}"\\ninsecure = true\\n'
        machine.inside("sh", "-ec", f"mkdir -p $(dirname {REGISTRIES}); printf '{text}' >{REGISTRIES}")
    install = "DEBIAN_FRONTEND=noninteractive apt-get install --yes --quiet docker-registry"
    storage = "storage:\\n  filesystem:\\n    rootdirectory: /var/lib/docker-registry\\n"
    config = f"version: 0.1\\n{storage}http:\\n  addr: :5000\\n"
    listening = "timeout 60 sh -c 'until ss -ltn | grep -q :5000; do sleep 0.1; done'"
    configure = f"printf '{config}' >/etc/docker/registry/config.yml; systemctl restart docker-registry"
    first.inside("sh", "-ec", f"{install}; {configure}; {listening}")
    first.podman_copy(archive, "/var/tmp/muster-test.tar")
    name = f"{place}/muster-test"
    push = (
        f"podman load --quiet --input $1 && podman tag localhost/muster-test:1 {name}:1 && podman push --quiet {name}:1"
    )
    digest = "podman image inspect --format '{{.Digest}}' " + f"{name}:1"
    try:
        first.inside("sh", "-ec", push, "push", "/var/tmp/muster-test.tar")
        # The digest is that of the image in the registry, which a new pull reports.
        for machine in nodes:
            machine.inside("podman", "rmi", "--all", "--force")
        first.inside("podman", "pull", "--quiet", f"{name}:1")
        found = first.inside("sh", "-ec", digest).stdout.strip()
        first.inside("podman", "rmi", "--all", "--force")
    finally:
        first.inside("rm", "-f", "/var/tmp/muster-test.tar")
    return f"{name}@{found}"


def take_registry(nodes: list[Machine]) -> None:
    for machine in nodes:
        machine.inside("rm", "-f", REGISTRIES)
    nodes[0].inside("sh", "-c", "apt-get purge --yes docker-registry; rm -rf /var/lib/docker-registry")
