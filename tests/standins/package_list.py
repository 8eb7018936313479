"""Write repository indexes for the stub packages (packages.yml), and apt preferences for pinning packages."""

from __future__ import annotations

import gzip
import hashlib
import re
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

PACKAGES = Path(__file__).with_name("packages.yml")
LABELS = {"ubuntu": "Ubuntu", "cuda": "NVIDIA CUDA", "nct": "NVIDIA CONTAINER TOOLKIT", "doca": "DOCA-HOST-3.2.1"}
FIELDS = ("depends", "recommends", "conflicts", "provides", "replaces")
# Any date works: apt only rejects an index older than its own.
DATE = "Date: Sat, 21 Nov 2026 00:00:00 UTC"
PINNING = "nvidia-driver-pinning-"
ANNOUNCEMENT = "A stub of Muster's tests without function."

Package = dict[str, str]


def read_packages() -> list[Package]:
    packages: list[Package] = yaml.safe_load(PACKAGES.read_text())["packages"]
    return packages


def renamed(packages: Sequence[Package], old: str, new: str) -> list[Package]:
    """Return the packages whose name or version contains `old`, with `old` replaced by `new`, for example for a newer
    driver or kernel."""
    chosen = [package for package in packages if old in package["name"] or old in package["version"]]
    return [{field: text.replace(old, new) for field, text in package.items()} for package in chosen]


def file_name(package: Package) -> str:
    # As in NVIDIA's repository, without the epoch.
    return f"{package['name']}_{package['version'].rpartition(':')[2]}_amd64.deb"


def control(package: Package) -> str:
    """Return the control file of a package."""
    lines = [f"Package: {package['name']}", f"Version: {package['version']}", "Architecture: amd64"]
    lines += ["Maintainer: Muster's tests <nobody@example.invalid>"]
    lines += [f"{field.capitalize()}: {package[field]}" for field in FIELDS if field in package]
    return "\n".join([*lines, f"Description: stub of {package['name']}", f" {ANNOUNCEMENT}"])


def write_index(
    folder: Path,
    label: str,
    packages: Sequence[Package],
    debs: Mapping[str, Path] | None = None,
    *,
    suite: str = "stable",
) -> None:
    """Write the index of a flat repository. debs: .deb files by package name. If none are given, the index lists the
    packages, but they cannot be downloaded."""
    stanzas = []
    for package in packages:
        name = file_name(package)
        content = debs[name].read_bytes() if debs else b""
        digest = hashlib.sha256(content).hexdigest()
        stanzas.append(f"{control(package)}\nFilename: ./{name}\nSize: {len(content) or 1}\nSHA256: {digest}\n")
    text = "\n".join(stanzas).encode()
    files = {"Packages": text, "Packages.gz": gzip.compress(text, mtime=0)}
    sums = [f" {hashlib.sha256(content).hexdigest()} {len(content)} {name}" for name, content in files.items()]
    for name, content in files.items():
        (folder / name).write_bytes(content)
    head = [f"Origin: {label}", f"Label: {label}", f"Suite: {suite}", "Architectures: amd64", DATE]
    (folder / "Release").write_text("\n".join([*head, "SHA256:", *sums]) + "\n")


def preferences(pinning: str) -> str:
    """Return the apt preferences (priority 1000) of a package nvidia-driver-pinning-VERSION."""
    version = pinning.removeprefix(PINNING)
    globs = "*nvidia* *nvsdm* cuda-drivers* libcuda1* xserver-xorg-video-nvidia*"
    # Versions of a branch start with its number and a dot. An exact version is followed by the package revision.
    pattern = f"{version}-*" if "." in version else f"{version}.*"
    # The container toolkit has the same name prefix but its own versions.
    return f"Package: {globs}\nPin: version {pattern}\nPin-Priority: 1000\n"


def upstream(version: str) -> str:
    """Return a version without epoch and package revision."""
    return re.sub(r"^\d+:|-[^-]*$", "", version)
