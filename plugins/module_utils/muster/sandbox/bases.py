"""The base systems of sandbox nodes: releases, archives and trusted signing keys."""

from __future__ import annotations

from typing import NamedTuple


class BaseRelease(NamedTuple):
    """A release, with its names in the package archive."""

    distribution: str
    release: str


BASES = {
    "debian12": BaseRelease("Debian", "bookworm"),
    "debian13": BaseRelease("Debian", "trixie"),
    "ubuntu22.04": BaseRelease("Ubuntu", "jammy"),
    "ubuntu24.04": BaseRelease("Ubuntu", "noble"),
    "ubuntu26.04": BaseRelease("Ubuntu", "resolute"),
}

UBUNTU_ARCHIVE = "http://archive.ubuntu.com/ubuntu"


class Keyring(NamedTuple):
    """The package that contains an archive's keys, for machines whose distribution does not have these keys."""

    package: str
    sha256: str
    file: str
    keys: dict[str, str]


# Debian 12 has no package with Ubuntu's keys. This one is from the Ubuntu 24.04 release pocket, so the archive keeps it
# as long as the release. Its hash is from noble's signed index (main/binary-amd64/Packages). The indexes of 22.04,
# 24.04 and 26.04 are signed with its key of 2018. Other sources of the fingerprints: debootstrap prints that of 2018
# for these releases ("Valid Release signature"); those of 2012 are in bug 1881278 of ubuntu-keyring on Launchpad.
UBUNTU_KEYRING = Keyring(
    package="pool/main/u/ubuntu-keyring/ubuntu-keyring_2023.11.28.1_all.deb",
    sha256="36de43b15853ccae0028e9a767613770c704833f82586f28eb262f0311adb8a8",
    file="usr/share/keyrings/ubuntu-archive-keyring.gpg",
    keys={
        "790BC7277767219C42C86F933B4FE6ACC0B21F32": "Ubuntu Archive Automatic Signing Key (2012)",
        "843938DF228D22F7B3742BC0D94AA3F0EFE21092": "Ubuntu CD Image Automatic Signing Key (2012)",
        "F6ECB3762474EDA9D21B7022871920D1991BC93C": "Ubuntu Archive Automatic Signing Key (2018)",
    },
)


def stanza(uris: str, suites: str, components: str, keyring: str) -> str:
    """Return a package source in deb822 format."""
    return f"Types: deb\nURIs: {uris}\nSuites: {suites}\nComponents: {components}\nSigned-By: {keyring}\n"


def ubuntu_sources(mirror: str, release: str) -> str:
    """Return the sources of an Ubuntu release. Its archive also contains the security updates."""
    suites = f"{release} {release}-updates {release}-security"
    return stanza(mirror.rstrip("/"), suites, "main universe", f"/{UBUNTU_KEYRING.file}")


def apt_sources(listing: str, base: BaseRelease) -> str:
    """Return the sources of a release from this machine's mirrors; "" if this machine has no mirror for the
    distribution.

    The listing has one line C(origin|uri|suite|codename|component) for each source. Other releases of the distribution
    are on the same mirror, in suites named after the releases. If the release or distribution is "", that of this
    machine is used. Third-party sources are ignored.
    """
    keyrings = {"Debian": "debian-archive-keyring.gpg", "Ubuntu": "ubuntu-archive-keyring.gpg"}
    stanzas: dict[tuple[str, str, str], set[str]] = {}
    for line in listing.splitlines():
        fields = line.split("|")
        if len(fields) != 5 or fields[0] not in keyrings or fields[0] != (base.distribution or fields[0]):
            continue
        origin, uri, suite, codename, component = fields
        own_release = codename.partition("-")[0]
        if component not in {"main", "universe"} or suite.partition("-")[2] not in {"", "updates", "security"}:
            continue
        wanted_suite = suite.replace(own_release, base.release or own_release, 1)
        stanzas.setdefault((origin, uri, wanted_suite), set()).add(component)
    return "\n".join(
        stanza(uri, suite, " ".join(sorted(components)), f"/usr/share/keyrings/{keyrings[origin]}")
        for (origin, uri, suite), components in stanzas.items()
    )


def keyring_refusal(known: Keyring, mirror: str, sha256: str) -> str:
    """Return why the key package is rejected; "" if it is the expected package."""
    if sha256 == known.sha256:
        return ""
    return (
        f"{mirror} has an unknown package with Ubuntu's keys: its sha256 is {sha256} instead of "
        f"{known.sha256}. It was not unpacked. Set MUSTER_UBUNTU_MIRROR to another mirror."
    )


def keys_refusal(known: Keyring, mirror: str, fingerprints: list[str]) -> str:
    """Return why the keys of an archive are rejected; "" if all keys are known."""
    strange = [fingerprint for fingerprint in fingerprints if fingerprint not in known.keys]
    if fingerprints and not strange:
        return ""
    there = f"the unknown key {', '.join(strange)}" if strange else "no key"
    return f"The package with Ubuntu's keys on {mirror} contains {there}, so this mirror is not used."


def failure(what: str, where: str, output: str) -> str:
    """Return why a download failed. A signature error of apt takes precedence over errors that result from it."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    signature = [line for line in lines if "GPG error" in line or "is not signed" in line]
    errors = [line for line in lines if line.startswith("E: ")]
    reason = [*signature, *errors, *lines[-1:], "no output"][0]
    return f"{what} could not be downloaded from {where}: {reason[:300]}"
