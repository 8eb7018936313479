"""The .deb files that apt is about to install, among its archives: looked for, fetched from peers, downloaded."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from ansible.module_utils.muster.packages import debs as domain
from ansible.module_utils.muster.packages import peer_files as peer_domain

from . import peer_files
from .apt import apt_get

if TYPE_CHECKING:
    import subprocess

ARCHIVES = "/var/cache/apt/archives"
# As the tasks have it that install: what is held by a role is moved by it.
INSTALL = ("install", "--yes", "--quiet=2", "--fix-broken", "--allow-downgrades", "--allow-change-held-packages")
# Indexes have several checksums of a file, and apt-get prints one of them.
SHA256 = "--option=Acquire::ForceHash=SHA256"


def look(params: dict[str, Any]) -> dict[str, Any]:
    """What apt would fetch now. params: the options of library/shared_debs.py."""
    debs, why = _needed(params)
    return {"changed": False, "debs": [asdict(deb) for deb in debs], "why": why}


def get(params: dict[str, Any]) -> dict[str, Any]:
    """Fetch what peers have, and download the rest of what the node needs, or with V(download) of its own share."""
    files = [domain.Deb(**file) for file in params["files"]]
    tried: list[Any] = []
    if files and params["peers"]:
        wanted = peer_domain.wanted_of(params["files"])
        _, tried = peer_files.fetch(params["user"], params["peers"], ARCHIVES, ARCHIVES, wanted)
    debs, why = _needed(params)
    if params["step"] == "download":
        debs = [deb for deb in debs if deb in files]
        why = ""
    if debs:
        done = _download(debs) if params["step"] == "download" else _install(params, "--download-only")
        if done.returncode:
            why = " ".join(done.stderr.split())
    fetched = [name for attempt in tried for name in attempt.fetched]
    downloaded = [] if why else [deb.name for deb in debs]
    return {
        "changed": bool(fetched or downloaded),
        "fetched": fetched,
        "downloaded": downloaded,
        "bytes": sum(deb.size for deb in debs) if downloaded else 0,
        "tried": [asdict(attempt) for attempt in tried],
        "why": why,
    }


def _needed(params: dict[str, Any]) -> tuple[list[domain.Deb], str]:
    """What apt would fetch now; what it says when it cannot install that at all."""
    done = _install(params, "--print-uris")
    if done.returncode:
        return [], " ".join(done.stderr.split())
    debs: list[domain.Deb] = domain.parse_uris(done.stdout)
    return debs, ""


def _install(params: dict[str, Any], *more: str) -> subprocess.CompletedProcess[str]:
    recommends = f"--option=APT::Install-Recommends={'true' if params['recommends'] else 'false'}"
    return apt_get(SHA256, recommends, *INSTALL, *more, "--", *params["packages"])


def _download(debs: list[domain.Deb]) -> subprocess.CompletedProcess[str]:
    """These alone: what goes with them, other nodes download."""
    return apt_get("download", "--quiet=2", *(deb.spec for deb in debs), cwd=ARCHIVES)
