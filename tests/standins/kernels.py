"""Install stub kernels from packages on machines, and create a stub security pocket with a newer kernel.

The packages are the kernel packages from packages.yml, almost without content. The pocket is a folder on the machine
with a matching Release file. The GRUB stub consists of a menu and a grub-reboot command. They select the kernel that
the kernel stub (node/standin_gpu.py) reports after the next boot.
"""

from __future__ import annotations

import subprocess
import tarfile
from io import BytesIO
from typing import TYPE_CHECKING

from deb_repositories import build
from gpu_node import ANNOUNCEMENT, OWN_SOURCES_LAST, UNIT, inside, put, put_kernel
from package_list import file_name, read_packages, renamed, write_index

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

OLD, NEW = "6.8.0-90-generic", "6.8.0-94-generic"
PARTS = ("linux-image-generic", f"linux-image-{OLD}", "initramfs-tools")
HEADERS = ("linux-headers-generic", f"linux-headers-{OLD}")
POCKET, SUITE = "/srv/standin-security", "noble-security"
SOURCE, PREFERENCES = "/etc/apt/sources.list.d/standin-security.list", "/etc/apt/preferences.d/standin-security"
PINNED, REBOOT = "/boot/grub/standin-pinned", "/usr/sbin/grub-reboot"
ENTRY = "menuentry 'Linux {0}' --class os $menuentry_id_option 'gnulinux-{0}-advanced-standin' {{\n"
MENU = "submenu 'Advanced' $menuentry_id_option 'gnulinux-advanced-standin' {\n\t" + ENTRY.format(OLD)
ONLY_IT = f"-o Dir::Etc::SourceParts=/etc/none -o Dir::Etc::SourceList={SOURCE} -o APT::Get::List-Cleanup=0"


def make_pocket(folder: Path, *, newer: bool, parts: Sequence[str] = PARTS) -> Path:
    """Create a folder with the kernel packages and their index. newer: whether to include the newer kernel."""
    folder.mkdir()
    packages = [package for package in read_packages() if package["name"] in parts]
    if newer:
        packages += renamed(packages, "6.8.0-90", "6.8.0-94")
    debs = {file_name(package): folder / file_name(package) for package in packages}
    for package in packages:
        build(package, debs[file_name(package)])
    write_index(folder, "Ubuntu", packages, debs, suite=SUITE)
    return folder


def put_pocket(container: str, pocket: Path) -> None:
    packed = BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        archive.add(pocket, ".")
    unpack = f"rm -rf {POCKET}; mkdir {POCKET}; tar -C {POCKET} -x"
    argv = ["podman", "exec", "--interactive", container, "sh", "-euc", unpack]
    subprocess.run(argv, check=True, capture_output=True, input=packed.getvalue())
    put(container, SOURCE, f"{ANNOUNCEMENT}deb [trusted=yes] file:{POCKET} ./\n")
    put(container, PREFERENCES, OWN_SOURCES_LAST)
    inside(container, f"apt-get -qq {ONLY_IT} update")


def put_old_kernel(container: str, pocket: Path) -> None:
    """Install the older kernel, make the machine report it as running, and install the GRUB stub."""
    put_pocket(container, pocket)
    put(container, "/boot/grub/grub.cfg", f"{ANNOUNCEMENT}{MENU}")
    put(container, REBOOT, f'#!/bin/sh\n{ANNOUNCEMENT}echo "$1" >/boot/grub/standin-once\n', "0755")
    install = "DEBIAN_FRONTEND=noninteractive apt-get -qq --no-install-recommends install linux-image-generic"
    inside(container, f"{install} >/dev/null")
    put_kernel(container)


def remove_all(container: str) -> None:
    """Remove the stub kernels. The reported kernel changes at the next boot."""
    inside(
        container,
        f"""
        systemctl -q disable {UNIT}
        DEBIAN_FRONTEND=noninteractive apt-get -qq purge 'linux-image-*' initramfs-tools >/dev/null
        rm -rf {POCKET} {SOURCE} {PREFERENCES} {REBOOT} /boot/grub /etc/standin-gpu.json /usr/local/sbin/standin-gpu
        rm -rf /etc/systemd/system/{UNIT} /run/reboot-required* /lib/modules/6.8.0-9*
        """,
    )
