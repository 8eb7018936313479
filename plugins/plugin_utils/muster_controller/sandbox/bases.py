"""Bootstraps what a machine of the sandbox, or of the tests, starts from; every signature is checked.

python3 -m muster_controller.bases FOLDER BASE [MIRROR [PACKAGE...]] makes FOLDER/base.tar; FOLDER/context/apt.conf says
how this machine reaches its package sources. Without a MIRROR they are those that this machine itself uses.
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
# What downloads for apt, with all its settings for proxies and certificates.
HELPER = "/usr/lib/apt/apt-helper"
PATIENCE = 900.0  # seconds for a bootstrap, which takes half a minute where the mirror is near


class UnavailableError(Exception):
    """Why a base cannot be had here, as one sentence."""


def run(*command: str, timeout: float = 120.0, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a tool of this machine; what it prints is in one piece, in the C locale."""
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
    """Return the code name of this machine's own release."""
    lines = Path("/etc/os-release").read_text(encoding="utf-8").splitlines()
    return dict(line.partition("=")[::2] for line in lines).get("VERSION_CODENAME", "").strip('"')


def own_sources(base: BaseRelease) -> str:
    """Return the sources of a release where this machine takes its own from; empty where it has none of the kind."""
    listing = run("apt-get", "indextargets", "--format", FORMAT, "Created-By: Packages").stdout
    return apt_sources(listing, base)


def ubuntu_keyring(folder: Path, mirror: str, known: Keyring = UBUNTU_KEYRING) -> Path:
    """Return the file of Ubuntu's keys: this machine's own, or that of the archive's package if it is the known one."""
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
        raise UnavailableError(f"The package of Ubuntu's keys that {mirror} serves has no {known.file}.")
    try:
        refusal = keys_refusal(known, mirror, fingerprints(source.read_bytes()))
    except KeyFileError as error:
        refusal = f"The keys in the package that {mirror} serves cannot be read: {error}."
    if refusal:
        raise UnavailableError(refusal)
    shutil.copyfile(source, keyring)
    return keyring


def bootstrap(folder: Path, name: str, mirror: str = "", packages: tuple[str, ...] = ()) -> Path:
    """Make the root file system of a release, and return the archive that holds it."""
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
        # The new machine has the same keys, from a package of its own, in their usual place.
        hooks = [f"--customize-hook=sed -i 's#{keyring}#{there}#' \"$1\"/etc/apt/sources.list.d/*.sources"]
    if not sources:
        wanted = base.distribution or "Debian or Ubuntu"
        raise UnavailableError(
            f"{name} cannot be made here: apt on this machine has no source of {wanted}; "
            "where it should have one, run apt-get update."
        )
    (folder / "sources").write_text(sources, encoding="utf-8")
    (folder / "tmp").mkdir(exist_ok=True)
    archive = folder / "base.tar"
    include = ",".join(["apt", "ca-certificates", *packages])
    options = [f"--include={include}", f"--aptopt={folder}/context/apt.conf", "--dpkgopt=force-unsafe-io", *hooks]
    # With mounts of its own: otherwise those of a bootstrap that is killed stay, and removing its folder reaches in.
    command = ["unshare", "--mount", "mmdebstrap", "--mode=root", "--variant=minbase", *options]
    command += [base.release or own_release(), str(archive), str(folder / "sources")]
    done = run(*command, timeout=PATIENCE, TMPDIR=str(folder / "tmp"))
    if done.returncode:
        archive.unlink(missing_ok=True)
        raise UnavailableError(failure(name, mirror or "this machine's package sources", done.stdout))
    return archive


def main(folder: str, name: str, mirror: str = "", *packages: str) -> int:
    """Make a base, or say in one sentence why it cannot be had."""
    try:
        bootstrap(Path(folder), name, mirror, packages)
    except UnavailableError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
