"""Contents of the stub packages: the few files that roles check, and a note that the package is a stub."""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from package_list import ANNOUNCEMENT, PINNING, preferences, upstream

if TYPE_CHECKING:
    from package_list import Package

PROGRAMS = Path(__file__).with_name("programs")
KERNEL = r"(\d+\.\d+\.\d+-\d+-[a-z]+)"
# Like Ubuntu's unit: persistence mode off, and stopped when unneeded.
PERSISTENCED = f"""\
# {ANNOUNCEMENT}
[Unit]
Description=NVIDIA Persistence Daemon (stub)
StopWhenUnneeded=true

[Service]
Type=forking
PIDFile=/run/nvidia-persistenced/nvidia-persistenced.pid
ExecStart=/usr/bin/nvidia-persistenced --user nvidia-persistenced --no-persistence-mode --verbose
ExecStopPost=/bin/rm -rf /run/nvidia-persistenced
"""
FABRIC_MANAGER = f"""\
# {ANNOUNCEMENT}
[Unit]
Description=NVIDIA fabric manager service (stub)
After=network-online.target

[Service]
Type=forking
PIDFile=/run/nv-fabricmanager/nv-fabricmanager.pid
ExecStart=/usr/bin/nv-fabricmanager

[Install]
WantedBy=multi-user.target
"""
DCGM = f"""\
# {ANNOUNCEMENT}
[Unit]
Description=NVIDIA DCGM service (stub)

[Service]
ExecStart=/usr/bin/sleep infinity

[Install]
WantedBy=multi-user.target
"""
# Actions after a kernel installation: hooks of dkms and initramfs, and the reboot request of update-notifier.
KERNEL_COMES = """\
depmod {kernel}
run-parts --arg={kernel} --arg=/boot/vmlinuz-{kernel} /etc/kernel/postinst.d
if [ -e /run/standin/booted ]; then
    echo '*** System restart required ***' >/run/reboot-required
    echo linux-image-{kernel} >>/run/reboot-required.pkgs
fi
"""


@dataclass
class Contents:
    """The content of a package. files: data by path. programs: paths of executables. scripts: maintainer scripts by
    name, which dpkg runs as root."""

    files: dict[str, bytes] = field(default_factory=dict)
    programs: set[str] = field(default_factory=set)
    scripts: dict[str, str] = field(default_factory=dict)

    def write(self, path: str, text: str | bytes) -> None:
        self.files[path] = text.encode() if isinstance(text, str) else text

    def program(self, path: str, source: str, version: str) -> None:
        text = (PROGRAMS / source).read_text()
        self.write(path, text.replace("@VERSION@", version).replace("@NAME@", Path(path).name))
        self.programs.add(path)

    def unit(self, name: str, text: str) -> None:
        self.write(f"lib/systemd/system/{name}", text)
        self.script("postinst", "if [ -d /run/systemd/system ]; then systemctl daemon-reload; fi")
        # Like deb-systemd-invoke: removing the package stops the daemon, and an upgrade restarts it.
        self.script("prerm", f'if [ "$1" = remove ]; then systemctl stop {name} || true; fi')

    def script(self, name: str, text: str) -> None:
        self.scripts[name] = self.scripts.get(name, "") + text.strip() + "\n"


def contents(package: Package) -> Contents:
    """Return the content of this package."""
    name, version = package["name"], upstream(package["version"])
    made = Contents()
    made.write(f"usr/share/doc/{name}/STAND-IN", ANNOUNCEMENT + "\n")
    for part in (_kernel, _modules, _driver, _around):
        part(made, package, name, version)
    return made


def _kernel(made: Contents, _: Package, name: str, __: str) -> None:
    image = re.fullmatch(f"linux-image-{KERNEL}", name)
    headers = re.fullmatch(f"linux-headers-{KERNEL}", name)
    if image:
        made.write(f"boot/vmlinuz-{image[1]}", ANNOUNCEMENT + "\n")
        for listing in ("modules.order", "modules.builtin", "modules.builtin.modinfo"):
            made.write(f"lib/modules/{image[1]}/{listing}", "")
        made.script("postinst", KERNEL_COMES.format(kernel=image[1]))
        made.script("postrm", f"rm -f /boot/initrd.img-{image[1]}")
    elif headers:
        made.write(f"lib/modules/{headers[1]}/build/Makefile", f"# {ANNOUNCEMENT}\n")
        hooks = "/etc/kernel/header_postinst.d"
        made.script("postinst", f"if [ -d {hooks} ]; then run-parts --arg={headers[1]} {hooks}; fi")
    elif name == "initramfs-tools":
        made.program("usr/sbin/update-initramfs", "update-initramfs", "")
        made.program("usr/bin/lsinitramfs", "lsinitramfs", "")
        made.write("etc/kernel/postinst.d/initramfs-tools", '#!/bin/sh\nexec update-initramfs -c -k "$1"\n')
        made.programs.add("etc/kernel/postinst.d/initramfs-tools")
    elif name == "dkms":
        made.program("usr/sbin/dkms", "dkms", "")
        for place in ("etc/kernel/postinst.d/dkms", "etc/kernel/header_postinst.d/dkms"):
            made.write(place, '#!/bin/sh\nexec dkms autoinstall -k "$1"\n')
            made.programs.add(place)


def _modules(made: Contents, package: Package, name: str, version: str) -> None:
    precompiled = re.fullmatch(rf"linux-modules-nvidia-\S+?-{KERNEL}", name)
    flavour = "Dual MIT/GPL" if "open" in name else "NVIDIA"
    if name.startswith("nvidia-kernel-source"):
        made.write(f"usr/src/nvidia-{version}/dkms.conf", f'PACKAGE_NAME="nvidia"\nPACKAGE_VERSION="{version}"\n')
        made.write(f"usr/src/nvidia-{version}/nvidia.ko", kernel_object(version, flavour))
    elif name.startswith("nvidia-dkms"):
        made.script("postinst", "dkms autoinstall")
        made.script("prerm", f"dkms remove nvidia/{version} --all")
    elif precompiled:
        # The package has the kernel's version. The driver's version is in its dependencies.
        driver = re.search(r"\(>= ([\d.]+)\)", package["depends"])
        assert driver, name
        made.write(f"lib/modules/{precompiled[1]}/kernel/nvidia/nvidia.ko", kernel_object(driver[1], flavour))
        made.script("postinst", f"depmod {precompiled[1]}")


def _driver(made: Contents, package: Package, name: str, version: str) -> None:
    provided = package.get("provides", "").split(", ")
    if name.startswith(PINNING):
        made.write("etc/apt/preferences.d/nvidia-driver-pinning", preferences(name))
    if "nvidia-smi" in provided:
        made.program("usr/bin/nvidia-smi", "nvidia_smi.py", version)
        template = "nvidia_smi_gpu.xml"
        made.write(f"usr/share/muster-standins/{template}", (PROGRAMS / template).read_text())
    if name == "nvidia-persistenced" or "nvidia-persistenced" in provided:
        made.program("usr/bin/nvidia-persistenced", "driver_daemon.py", version)
        made.unit("nvidia-persistenced.service", PERSISTENCED)
    if re.match(r"nvidia-fabricmanager(-\d+)?$", name):
        made.program("usr/bin/nv-fabricmanager", "driver_daemon.py", version)
        made.unit("nvidia-fabricmanager.service", FABRIC_MANAGER)


def _around(made: Contents, _: Package, name: str, version: str) -> None:
    toolkit = re.fullmatch(r"cuda-toolkit-(\d+)-(\d+)-config-common", name)
    compiler = re.fullmatch(r"cuda-nvcc-(\d+)-(\d+)", name)
    if toolkit:
        folder = f"/usr/local/cuda-{toolkit[1]}.{toolkit[2]}"
        install = f"--install /usr/local/cuda cuda {folder} {toolkit[1]}{toolkit[2]}"
        made.write(f"{folder[1:]}/STAND-IN", ANNOUNCEMENT + "\n")
        made.script("postinst", f"update-alternatives {install}")
        made.script("prerm", f"update-alternatives --remove cuda {folder}")
    elif compiler:
        path = f"usr/local/cuda-{compiler[1]}.{compiler[2]}/bin/nvcc"
        release = f"Cuda compilation tools, release {compiler[1]}.{compiler[2]}, V{version} (stub)"
        made.write(path, f"#!/bin/sh\necho '{release}'\n")
        made.programs.add(path)
    elif name == "libnccl2":
        made.write(f"usr/lib/x86_64-linux-gnu/libnccl.so.{version}", ANNOUNCEMENT + "\n")
    elif name == "libnccl-dev":
        numbers = zip(("MAJOR", "MINOR", "PATCH"), version.split("."), strict=True)
        defined = [f"#define NCCL_{part} {number}" for part, number in numbers]
        made.write("usr/include/nccl.h", "\n".join([f"/* {ANNOUNCEMENT} */", *defined]) + "\n")
    elif name == "nvidia-container-toolkit-base":
        made.program("usr/bin/nvidia-ctk", "nvidia_ctk.py", version)
    elif name == "datacenter-gpu-manager-4-core":
        made.unit("nvidia-dcgm.service", DCGM)


def kernel_object(version: str, licence: str) -> bytes:
    """Return a kernel module without code, readable by depmod and modinfo: an ELF file with a section .modinfo."""
    fields = {"license": licence, "version": version, "description": ANNOUNCEMENT, "name": "nvidia"}
    info = b"".join(f"{key}={value}\0".encode() for key, value in fields.items())
    names = b"\0.modinfo\0.shstrtab\0.symtab\0.strtab\0"
    # Per section: name, type, flags, content, linked section, entry size.
    sections = [
        (names.index(b".modinfo"), 1, 2, info, 0, 0),
        (names.index(b".shstrtab"), 3, 0, names, 0, 0),
        (names.index(b".symtab"), 2, 0, bytes(24), 4, 24),
        (names.index(b".strtab"), 3, 0, b"\0", 0, 0),
    ]
    body, headers = b"", bytes(64)
    for place, kind, flags, content, link, size in sections:
        headers += struct.pack("<IIQQQQIIQQ", place, kind, flags, 0, 64 + len(body), len(content), link, 1, 1, size)
        body += content + bytes(-len(content) % 8)
    # Relocatable (1), x86-64 (62), 64 bit, little endian; section names are in section 2.
    head = b"\x7fELF\x02\x01\x01" + bytes(9)
    head += struct.pack("<HHIQQQIHHHHHH", 1, 62, 1, 0, 0, 64 + len(body), 0, 64, 0, 0, 64, len(sections) + 1, 2)
    return head + body + headers
