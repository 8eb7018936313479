"""Collect files for a machine without a network: Ubuntu 24.04 packages that a node needs, and Ansible.

Packages are verified with Ubuntu's keys. Packages that every Ubuntu system has are left out, except packages that must
match systemd's version and packages that container images do not have.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from muster.sandbox.bases import UBUNTU_ARCHIVE, UBUNTU_KEYRING, ubuntu_sources
from muster_controller.sandbox.bases import ubuntu_keyring

FOLDER = Path(".two_nodes")
MOST = 40 << 20  # bytes
NEEDED = (
    "systemd systemd-sysv dbus libpam-systemd openssh-server openssh-client sudo iproute2 iputils-ping procps kmod"
    " nftables ethtool"
)
ALWAYS = "procps libproc2-0 libncursesw6 libsystemd0 libudev1"
ANSIBLE = "ansible-core==2.21.5 cryptography cffi pycparser resolvelib jinja2 MarkupSafe PyYAML packaging"
PYTHON = "3.12"
PLATFORMS = ("manylinux_2_34", "manylinux_2_28", "manylinux_2_17", "manylinux2014")


def files() -> tuple[list[Path], list[Path]]:
    """Return the packages and wheels that have been downloaded."""
    return sorted(FOLDER.glob("debs/*.deb")), sorted(FOLDER.glob("wheels/*.whl"))


def names(printed: str) -> set[str]:
    """Return the package names in the output of apt-get --print-uris: 'uri' name_version_architecture.deb size hash."""
    return {line.split()[1].partition("_")[0] for line in printed.splitlines() if line.startswith("'")}


def required(available: str) -> list[str]:
    """Return the packages that every Ubuntu system has, from the output of apt-cache dumpavail."""
    found = {"apt"}
    for stanza in available.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in stanza.splitlines() if ": " in line and line[0] != " ")
        if fields.get("Essential") == "yes" or fields.get("Priority") == "required":
            found.add(fields["Package"])
    return sorted(found)


class Apt:
    """apt with the sources of Ubuntu 24.04 and a separate state. work: folder for the state."""

    def __init__(self, work: Path) -> None:
        for folder in ("state/lists/partial", "cache/archives/partial"):
            (work / folder).mkdir(parents=True)
        sources = work / "ubuntu.sources"
        keyring = str(ubuntu_keyring(work, UBUNTU_ARCHIVE))
        sources.write_text(ubuntu_sources(UBUNTU_ARCHIVE, "noble").replace(f"/{UBUNTU_KEYRING.file}", keyring))
        (work / "status").touch()
        places = {
            "Dir::Etc::sourcelist": sources,
            "Dir::Etc::sourceparts": "/dev/null",
            "Dir::Etc::preferencesparts": "/dev/null",
            "Dir::State": work / "state",
            "Dir::State::status": work / "status",
            "Dir::Cache": work / "cache",
            "APT::Architecture": "amd64",
            "APT::Architectures": "amd64",
            "APT::Sandbox::User": "root",
        }
        self.options = [f"-o{name}={value}" for name, value in places.items()]

    def __call__(self, program: str, *words: str, folder: Path | None = None) -> str:
        argv = [program, "-q", *self.options, *words]
        return subprocess.run(argv, check=True, cwd=folder, stdout=subprocess.PIPE, text=True).stdout

    def installs(self, packages: list[str]) -> set[str]:
        return names(self("apt-get", "install", "--no-install-recommends", "--print-uris", "-y", *packages))


def main() -> int:
    for kind in ("debs", "wheels"):
        (FOLDER / kind).mkdir(parents=True, exist_ok=True)
    for path in (path for kind in files() for path in kind):
        path.unlink()
    with tempfile.TemporaryDirectory() as folder:
        apt = Apt(Path(folder))
        apt("apt-get", "update")
        base = required(apt("apt-cache", "dumpavail"))
        wanted = (apt.installs([*base, *NEEDED.split()]) - apt.installs(base)) | set(ALWAYS.split())
        apt("apt-get", "download", *sorted(wanted), folder=FOLDER / "debs")
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
    pip += [f"--python-version={PYTHON}", "--implementation=cp", *(f"--platform={one}_x86_64" for one in PLATFORMS)]
    subprocess.run([*pip, "--dest", str(FOLDER / "wheels"), *ANSIBLE.split()], check=True)
    debs, wheels = files()
    size = sum(path.stat().st_size for path in (*debs, *wheels))
    print(f"{FOLDER}: {len(debs)} packages, {len(wheels)} wheels, {size / 2**20:.1f} MiB")
    return 0 if size <= MOST else 1


if __name__ == "__main__":
    sys.exit(main())
