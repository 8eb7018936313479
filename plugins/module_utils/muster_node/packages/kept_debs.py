"""The .deb files of packages that are installed, kept so that they can be installed again."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any
from urllib.parse import quote

from .apt import apt_get, run

ARCHIVES = "/var/cache/apt/archives"
MODE = 0o755


def keep(params: dict[str, Any]) -> dict[str, Any]:
    """params: folder, root's own, and packages as name=version. Afterwards it holds these and no others.

    missing: those that neither apt's cache nor a repository has any more.
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
    """What a file says of itself; nothing where it is no whole package."""
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
