"""Bootstraps the base system of sandbox and test nodes, with verified signatures.

python3 -m muster_controller.bases FOLDER BASE [MIRROR [PACKAGE...]] creates FOLDER/base.tar. FOLDER/context/apt.conf
contains apt's settings for package sources. If MIRROR is not given, the sources of this machine are used.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

from muster.packages.repositories import KeyFileError, fingerprints
from muster.sandbox.bases import (
    BASES,
    UBUNTU_ARCHIVE,
    UBUNTU_KEYRING,
    BaseRelease,
    Keyring,
    apt_sources,
    failure,
    keyring_refusal,
    keys_refusal,
    ubuntu_sources,
)

FORMAT = "$(ORIGIN)|$(REPO_URI)|$(RELEASE)|$(CODENAME)|$(COMPONENT)"
# apt's download program, which uses all its settings for proxies and certificates.
HELPER = "/usr/lib/apt/apt-helper"
PATIENCE = 900.0  # seconds for a bootstrap, which takes 30 s with a nearby mirror


class UnavailableError(Exception):
    """Why a base cannot be created, as one sentence."""


def run(*command: str, timeout: float = 120.0, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a tool in the C locale, with both output streams combined."""
    return subprocess.run(
        list(command),
        check=False,
        env={**os.environ, "LC_ALL": "C", **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        timeout=timeout,
    )


def own_release() -> str:
    """Return the code name of this machine's release."""
    lines = Path("/etc/os-release").read_text(encoding="utf-8").splitlines()
    return dict(line.partition("=")[::2] for line in lines).get("VERSION_CODENAME", "").strip('"')


def own_sources(base: BaseRelease) -> str:
    """Return the sources of a release on this machine's mirrors, or "" if this machine has none for the
    distribution."""
    listing = run("apt-get", "indextargets", "--format", FORMAT, "Created-By: Packages").stdout
    return apt_sources(listing, base)


def ubuntu_keyring(folder: Path, mirror: str, known: Keyring = UBUNTU_KEYRING) -> Path:
    """Return the file with Ubuntu's signing keys, from this machine or from the verified key package of the archive."""
    own = Path("/") / known.file
    if own.is_file():
        return own
    package, keyring = folder / "ubuntu-keyring.deb", folder / "ubuntu-archive-keyring.gpg"
    fetched = run(HELPER, "download-file", f"{mirror}/{known.package}", str(package))
    if fetched.returncode or not package.is_file():
        raise UnavailableError(failure("Ubuntu's keys", mirror, fetched.stdout))
    refusal = keyring_refusal(known, mirror, hashlib.sha256(package.read_bytes()).hexdigest())
    if refusal:
        raise UnavailableError(refusal)
    unpacked = run("dpkg-deb", "--extract", str(package), str(folder / "keys"))
    source = folder / "keys" / known.file
    if unpacked.returncode or not source.is_file():
        raise UnavailableError(f"The package with Ubuntu's keys on {mirror} does not contain {known.file}.")
    try:
        refusal = keys_refusal(known, mirror, fingerprints(source.read_bytes()))
    except KeyFileError as error:
        refusal = f"The keys in the package on {mirror} cannot be read: {error}."
    if refusal:
        raise UnavailableError(refusal)
    shutil.copyfile(source, keyring)
    return keyring


def bootstrap(folder: Path, name: str, mirror: str = "", packages: tuple[str, ...] = ()) -> Path:
    """Create the root file system of a release, and return its archive."""
    if not shutil.which("mmdebstrap"):
        raise UnavailableError("mmdebstrap is missing: run script/setup sandbox, or install it.")
    base = BASES.get(name, BaseRelease("", ""))
    ubuntu = base.distribution == "Ubuntu"
    sources = own_sources(base) if not (ubuntu and mirror) else ""
    hooks = []
    if ubuntu and not sources:
        mirror = mirror.rstrip("/") or UBUNTU_ARCHIVE
        keyring = ubuntu_keyring(folder, mirror)
        there = f"/{UBUNTU_KEYRING.file}"
        sources = ubuntu_sources(mirror, base.release).replace(there, str(keyring))
        # The new system has the same keys, from its own package, at the usual path.
        hooks = [f"--customize-hook=sed -i 's#{keyring}#{there}#' \"$1\"/etc/apt/sources.list.d/*.sources"]
    if not sources:
        wanted = base.distribution or "Debian or Ubuntu"
        raise UnavailableError(
            f"{name} cannot be created: apt on this machine has no package source for {wanted}. "
            "If one is configured, run apt-get update."
        )
    (folder / "sources").write_text(sources, encoding="utf-8")
    (folder / "tmp").mkdir(exist_ok=True)
    archive = folder / "base.tar"
    include = ",".join(["apt", "ca-certificates", *packages])
    options = [f"--include={include}", f"--aptopt={folder}/context/apt.conf", "--dpkgopt=force-unsafe-io", *hooks]
    # A private mount namespace: mounts of a killed bootstrap would stay, and deleting its folder would reach into them.
    command = ["unshare", "--mount", "mmdebstrap", "--mode=root", "--variant=minbase", *options]
    command += [base.release or own_release(), str(archive), str(folder / "sources")]
    done = run(*command, timeout=PATIENCE, TMPDIR=str(folder / "tmp"))
    if done.returncode:
        archive.unlink(missing_ok=True)
        raise UnavailableError(failure(name, mirror or "this machine's package sources", done.stdout))
    return archive


def main(folder: str, name: str, mirror: str = "", *packages: str) -> int:
    """Create a base, or print why it cannot be created."""
    try:
        bootstrap(Path(folder), name, mirror, packages)
    except UnavailableError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
