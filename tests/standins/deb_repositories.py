"""Build stub packages as real .deb files, in signed repositories with the same paths as the real repositories."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import package_contents
import package_list
from package_list import LABELS, control, file_name, read_packages, write_index

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from package_list import Package

# Paths below the server's root. Keys have the same paths as at the real publishers.
FOLDERS = {
    "ubuntu": "ubuntu",
    "cuda": "compute/cuda/repos/ubuntu2404/x86_64",
    "nct": "libnvidia-container/stable/deb/amd64",
    "doca": "doca/ubuntu24.04/x86_64",
}
KEYS = {
    "ubuntu": "ubuntu/archive.asc",
    "cuda": "compute/cuda/repos/ubuntu2404/x86_64/3bf863cc.pub",
    "nct": "libnvidia-container/gpgkey",
    "doca": "doca/GPG-KEY-Mellanox.pub",
}
# The second release has the same packages under other paths.
OTHER_RELEASES = ("compute/cuda/repos/ubuntu2204",)


@dataclass(frozen=True)
class Key:
    """A signing key for the tests. The folder keeps the public and the private key. The gpg home is temporary."""

    folder: Path

    @property
    def public(self) -> Path:
        return self.folder / "public.asc"

    @property
    def secret(self) -> Path:
        return self.folder / "secret.asc"

    @property
    def fingerprint(self) -> str:
        with gpg_home() as home:
            shown = gpg(home, "--with-colons", "--show-keys", str(self.public))
        found = re.search(r"^fpr:+([0-9A-F]{40}):", shown, re.MULTILINE)
        assert found, shown
        return found[1]

    def make(self) -> Key:
        if not self.public.exists():
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            owner = "Stub of Muster's tests <nobody@example.invalid>"
            with gpg_home() as home:
                gpg(home, "--quick-generate-key", owner, "ed25519", "sign", "never")
                gpg(home, "--armor", "--output", str(self.secret), "--export-secret-keys")
                gpg(home, "--armor", "--output", str(self.public), "--export")
        return self

    def sign(self, folders: Sequence[Path]) -> None:
        """Sign the Release file of each folder."""
        with gpg_home() as home:
            gpg(home, "--import", str(self.secret))
            for folder in folders:
                gpg(home, "--clearsign", "--yes", "--output", str(folder / "InRelease"), str(folder / "Release"))


@contextmanager
def gpg_home() -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="standin-gpg-") as home:
        try:
            yield home
        finally:
            # End the agent that gpg started for this folder.
            subprocess.run(["gpgconf", "--homedir", home, "--kill", "all"], check=False, capture_output=True)


def gpg(home: str, *arguments: str) -> str:
    argv = ["gpg", "--homedir", home, "--batch", "--quiet", "--pinentry-mode=loopback", "--passphrase="]
    return subprocess.run([*argv, *arguments], check=True, capture_output=True, text=True).stdout


class Repositories:
    """The four repositories in a folder. A built package is cached until its recipe changes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.root = folder / "root"
        self.key = Key(folder / "key").make()
        self.stranger = Key(folder / "stranger").make()

    def publish(self, packages: Sequence[Package] | None = None, *, signed_by: Key | None = None) -> None:
        """Rewrite all repositories with these packages (default: all packages). signed_by: another key for NVIDIA's
        repository."""
        shutil.rmtree(self.root, ignore_errors=True)
        debs = self._build(packages or read_packages())
        for name, place in FOLDERS.items():
            folder = self.root / place
            folder.mkdir(parents=True)
            there = [package for package in packages or read_packages() if package["repo"] == name]
            write_index(folder, LABELS[name], there, debs)
            for package in there:
                os.link(debs[file_name(package)], folder / file_name(package))
            shutil.copy(self.key.public, self.root / KEYS[name])
        for place in OTHER_RELEASES:
            (self.root / place).symlink_to(Path(FOLDERS["cuda"]).parent.name)
        self.key.sign([self.root / FOLDERS[name] for name in ("ubuntu", "doca")])
        (signed_by or self.key).sign([self.root / FOLDERS[name] for name in ("cuda", "nct")])

    def _build(self, packages: Sequence[Package]) -> dict[str, Path]:
        """Return the .deb files of these packages by name."""
        makers = [Path(package_contents.__file__), Path(package_list.__file__)]
        makers += sorted(package_contents.PROGRAMS.iterdir())
        recipe = hashlib.sha256(b"".join(path.read_bytes() for path in makers))
        debs: dict[str, Path] = {}
        for package in packages:
            of_this = recipe.copy()
            of_this.update(repr(sorted(package.items())).encode())
            debs[file_name(package)] = deb = self.folder / "debs" / f"{of_this.hexdigest()[:16]}.deb"
            if not deb.exists():
                build(package, deb)
        return debs


def build(package: Package, deb: Path) -> None:
    made = package_contents.contents(package)
    deb.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="standin-deb-") as name:
        root = Path(name, "root")
        for path, content in made.files.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_bytes(content)
            (root / path).chmod(0o755 if path in made.programs else 0o644)
        (root / "DEBIAN").mkdir()
        root.chmod(0o755)
        (root / "DEBIAN/control").write_text(control(package) + "\n")
        for script, text in made.scripts.items():
            (root / "DEBIAN" / script).write_text(f"#!/bin/sh\nset -e\n{text}")
            (root / "DEBIAN" / script).chmod(0o755)
        argv = ["dpkg-deb", "--build", "--root-owner-group", "-Zgzip", "-z1", str(root), f"{name}/made.deb"]
        subprocess.run(argv, check=True, capture_output=True)
        shutil.move(f"{name}/made.deb", deb)
