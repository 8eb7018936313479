"""Get .deb files for an installation from peers or repositories, and keep the .deb files of installed packages."""

from __future__ import annotations

import shutil
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from ansible.module_utils.muster.packages import debs as domain
from ansible.module_utils.muster.packages import peer_files as peer_domain

from . import peer_files
from .apt import apt_get, run

if TYPE_CHECKING:
    import subprocess

ARCHIVES = "/var/cache/apt/archives"
# The same options as in the tasks that install: roles may change packages on hold.
INSTALL = ("install", "--yes", "--quiet=2", "--fix-broken", "--allow-downgrades", "--allow-change-held-packages")
# Indexes have several checksums per file, of which apt-get prints only one.
SHA256 = "--option=Acquire::ForceHash=SHA256"
MODE = 0o755


def look(params: dict[str, Any]) -> dict[str, Any]:
    """Return the files that apt would download now. params: options of library/shared_debs.py."""
    debs, why = _needed(params)
    return {"changed": False, "debs": [asdict(deb) for deb in debs], "why": why}


def get(params: dict[str, Any]) -> dict[str, Any]:
    """Fetch files from peers, then download the files that are still missing; in step download, only this node's own
    share."""
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
    """Return the files that apt would download now, and apt's error if it cannot install the packages."""
    done = _install(params, "--print-uris")
    if done.returncode:
        return [], " ".join(done.stderr.split())
    debs: list[domain.Deb] = domain.parse_uris(done.stdout)
    return debs, ""


def _install(params: dict[str, Any], *more: str) -> subprocess.CompletedProcess[str]:
    recommends = f"--option=APT::Install-Recommends={'true' if params['recommends'] else 'false'}"
    return apt_get(SHA256, recommends, *INSTALL, *more, "--", *params["packages"])


def _download(debs: list[domain.Deb]) -> subprocess.CompletedProcess[str]:
    """Download only these files, without dependencies, which other nodes download."""
    return apt_get("download", "--quiet=2", *(deb.spec for deb in debs), cwd=ARCHIVES)


def keep(params: dict[str, Any]) -> dict[str, Any]:
    """Make the folder contain exactly the files of these packages. params: folder (owned by root); packages as
    name=version.

    The result's `missing` lists packages that are neither in apt's cache nor in a repository.
    """
    folder = Path(params["folder"])
    folder.mkdir(mode=MODE, parents=True, exist_ok=True)
    there = {spec: path for path in sorted(folder.glob("*.deb")) if (spec := spec_of(path))}
    changed, missing = False, []
    for spec in params["packages"]:
        if spec in there:
            continue
        changed = True
        if not (from_cache(spec, folder) or downloaded(spec, folder)):
            missing.append(spec)
    for path in folder.iterdir():
        if spec_of(path) not in params["packages"]:
            changed = True
            path.unlink()
    return {"changed": changed, "missing": missing, "bytes": sum(path.stat().st_size for path in folder.iterdir())}


def spec_of(path: Path) -> str:
    """Return name=version of the package in a file; "" if the file is not a complete package."""
    said = run("dpkg-deb", "--show", "--showformat=${Package}=${Version}", str(path))
    return said.stdout if said.returncode == 0 else ""


def from_cache(spec: str, folder: Path) -> bool:
    name, _, version = spec.partition("=")
    plain = name.partition(":")[0]
    for path in sorted(Path(ARCHIVES).glob(f"{plain}_{quote(version, safe='+~')}_*.deb".replace("%3A", "%3a"))):
        if spec_of(path) == f"{plain}={version}":
            shutil.copyfile(path, folder / f".{path.name}")
            Path(folder / f".{path.name}").replace(folder / path.name)
            return True
    return False


def downloaded(spec: str, folder: Path) -> bool:
    return apt_get("download", "--quiet=2", spec, cwd=str(folder)).returncode == 0
