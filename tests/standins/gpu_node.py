"""Make a sandbox machine look like an Ubuntu server with GPUs, as far as files allow."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

SOURCES = Path(__file__).with_name("node")
ANNOUNCEMENT = "# A stub of Muster's tests.\n"
RELEASES = {
    "ubuntu-22.04": ("22.04", "22.04.5 LTS (Jammy Jellyfish)", "jammy"),
    "ubuntu-24.04": ("24.04", "24.04.3 LTS (Noble Numbat)", "noble"),
}
NAMES = {
    "0x2330": "NVIDIA H100 80GB HBM3",
    "0x2331": "NVIDIA H100 PCIe",
    "0x20b5": "NVIDIA A100 80GB PCIe",
    "0x2901": "NVIDIA B200",
    "0x1db5": "Tesla V100-SXM2-32GB",
}
UNIT = "standin-gpu.service"
SOURCE = "/etc/apt/sources.list.d/standin-ubuntu.sources"
# The stub repositories have priority over the machine's own sources, which provide everything else. Stub repositories
# have no components, those of Debian and Ubuntu have.
OWN_SOURCES_LAST = "\n".join(
    f"Package: *\nPin: release c={component}\nPin-Priority: 400\n" for component in ("main", "universe")
)


def inside(container: str, script: str) -> str:
    """Run a shell script in a container as root."""
    argv = ["podman", "exec", "--interactive", container, "sh", "-eu"]
    done = subprocess.run(argv, check=False, capture_output=True, text=True, input=script)
    if done.returncode:
        raise RuntimeError(f"{container}: {script}\n{done.stdout}{done.stderr}")
    return done.stdout


def put(container: str, path: str, content: str | bytes, mode: str = "0644") -> None:
    """Write a file in a container and create missing parent folders."""
    script = f"rm -f {path}; install -D -m {mode} /dev/stdin {path}"
    argv = ["podman", "exec", "--interactive", container, "sh", "-euc", script]
    subprocess.run(
        argv, check=True, capture_output=True, input=content.encode() if isinstance(content, str) else content
    )


def devices(gpus: int, gpu: str, nvswitches: int) -> list[dict[str, str]]:
    """Return PCI devices: GPUs with this device id, and the NVSwitches of an H100 board."""
    listed = [{"slot": "0000:00:00.0", "vendor": "0x8086", "device": "0x09a2", "class": "0x060000"}]
    listed += [
        {"slot": f"0000:{0x18 + number:02x}:00.0", "vendor": "0x10de", "device": gpu, "class": "0x030200"}
        for number in range(gpus)
    ]
    listed += [
        {"slot": f"0000:{0x87 + number:02x}:00.0", "vendor": "0x10de", "device": "0x22a3", "class": "0x068000"}
        for number in range(nvswitches)
    ]
    return listed


def put_gpus(container: str, *, gpus: int = 8, gpu: str = "0x2330", nvswitches: int = 4, nouveau: bool = False) -> None:
    """Add GPUs to a machine's PCI bus, now and at every boot. The operating system stays unchanged."""
    # Muster's probe finds this path first. systemd itself still knows that it runs in a container.
    put(container, "/usr/local/bin/systemd-detect-virt", f"#!/bin/sh\n{ANNOUNCEMENT}echo none\nexit 1\n", "0755")
    put_kernel(container, devices=devices(gpus, gpu, nvswitches), names=NAMES, nouveau=nouveau)


def put_kernel(container: str, **settings: Any) -> None:
    """Make a machine report the kernel of its packages as running, now and at every boot."""
    settings = {"devices": [], "names": {}, "nouveau": False, **settings}
    put(container, "/etc/standin-gpu.json", json.dumps(settings, indent=2) + "\n")
    put(container, "/usr/local/sbin/standin-gpu", (SOURCES / "standin_gpu.py").read_bytes(), "0755")
    put(container, f"/etc/systemd/system/{UNIT}", (SOURCES / UNIT).read_bytes())
    inside(container, f"systemctl daemon-reload; systemctl -q enable {UNIT}; systemctl start {UNIT}")


def put_scenario(container: str, **wrong: Any) -> None:
    """Simulate GPU faults on a machine. Without arguments, all GPUs are healthy.

    lost: numbers of GPUs that fell off the bus. inactive_links: {GPU number: [links]}. remap_pending: numbers of GPUs
    that wait for a reset. hangs: whether nvidia-smi hangs. says_first: text that nvidia-smi prints first.
    """
    put(container, "/etc/standin-gpu-scenario.json", json.dumps(wrong))
    inside(container, "standin-gpu config")


def make_gpu_node(
    container: str, repositories: str, archive_key: Path, *, system: str = "ubuntu-24.04", **bus: Any
) -> None:
    """Give a machine the name and kernel of an Ubuntu release, and GPUs (see put_gpus). No driver is installed."""
    version, name, codename = RELEASES[system]
    release = f'PRETTY_NAME="Ubuntu {name[:7]}"\nNAME="Ubuntu"\nVERSION_ID="{version}"\nVERSION="{name}"\n'
    release += f"VERSION_CODENAME={codename}\nID=ubuntu\nID_LIKE=debian\nUBUNTU_CODENAME={codename}\n"
    put(container, "/etc/os-release", release)
    lsb = f"DISTRIB_ID=Ubuntu\nDISTRIB_RELEASE={version}\nDISTRIB_CODENAME={codename}\n"
    put(container, "/etc/lsb-release", lsb + f'DISTRIB_DESCRIPTION="Ubuntu {name[:7]}"\n')
    key = "/usr/share/keyrings/standin-ubuntu.asc"
    put(container, key, archive_key.read_bytes())
    source = f"{ANNOUNCEMENT}Types: deb\nURIs: {repositories}/ubuntu/\nSuites: /\nSigned-By: {key}\n"
    put(container, SOURCE, source)
    put(container, "/etc/apt/preferences.d/standin-ubuntu", OWN_SOURCES_LAST)
    # Update only the stub index. The machine's own indexes are updated when needed.
    inside(
        container,
        f"""
        export DEBIAN_FRONTEND=noninteractive
        apt-get -qq -o Dir::Etc::SourceParts=/etc/none -o Dir::Etc::SourceList={SOURCE} update
        apt-get -qq --no-install-recommends install linux-image-generic >/dev/null
        apt-get clean
        """,
    )
    put_gpus(container, **bus)
