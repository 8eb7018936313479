"""Conda packages on the controller, with py-rattler: solving, downloads with hashes, and assembly of an environment.

No code and no link scripts from packages run. py-rattler is imported where it is used, because only conda environments
need it. conda_assembly describes which process reads packages.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import importlib
import os
import re
import tempfile
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from muster.pytorch.conda import CondaError, CondaPackage, CondaSection, CondaSpecs, make_section
from muster_node.distribution.manifest import ManifestFile
from muster_node.tools import files

from .conda_assembly import assemble

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

MISSING = "conda packages require py-rattler on the controller: install it with script/setup conda"
CACHE = Path("~/.cache/muster/conda")
SECONDS = 300.0  # without a byte of a package
MOST_PACKAGE = 8_000_000_000


def rattler() -> Any:
    try:
        return importlib.import_module("rattler")
    except ImportError:
        raise CondaError(MISSING) from None


def solve(asked: CondaSpecs, platform: str, facts: Mapping[str, str]) -> CondaSection:
    """Resolve the request to packages. facts: the facts of a node of the requested platform. Raises CondaError."""
    module = rattler()
    virtual = {"__unix": "0", "__linux": version_in(facts["kernel"]), "__glibc": version_in(facts["glibc"])}
    if asked.cuda:
        virtual["__cuda"] = asked.cuda
    try:
        there = [
            module.GenericVirtualPackage(module.PackageName(name), module.Version(version), module.BuildString("0"))
            for name, version in virtual.items()
        ]
        gateway = module.Gateway(cache_dir=_cache("repodata"))
        records = asyncio.run(
            module.solve(
                sources=list(asked.channels),
                specs=list(asked.specs),
                platforms=[platform, "noarch"],
                virtual_packages=there,
                gateway=gateway,
            )
        )
    except Exception as problem:  # the library has no common base class of its exceptions
        raise CondaError(f"no solution for {platform}: {' '.join(str(problem).split())[:1000]}") from None
    nameless = [record.file_name for record in records if record.sha256 is None]
    if nameless:
        raise CondaError(f"{nameless[0]} cannot be locked, because its channel does not list its sha256")
    return make_section(platform, asked, [CondaPackage(str(record.url), record.sha256.hex()) for record in records])


def version_in(text: str) -> str:
    """Return the numeric prefix of a version that a node reports, or "0" if there is none."""
    found = re.match(r"\d{1,6}(\.\d{1,6}){0,3}", text, re.ASCII)
    return found[0] if found else "0"


def fetched(package: CondaPackage) -> Path:
    """Return the path of a cached package, verified against the hash in the lock. Raises CondaError."""
    path = _cache("packages", package.sha256) / package.file
    if path.is_file() and _sha256(path) == package.sha256:
        return path
    beside = path.with_name(f"{path.name}.{os.getpid()}.new")
    try:
        with urllib.request.build_opener().open(package.url, timeout=SECONDS) as answer, beside.open("wb") as file:
            size = 0
            while chunk := answer.read(files.CHUNK):
                size += len(chunk)
                if size > MOST_PACKAGE:
                    raise CondaError(f"{package.url} exceeds the size limit")
                file.write(chunk)
    except OSError as problem:
        raise CondaError(f"{package.url} cannot be downloaded ({problem})") from None
    if _sha256(beside) != package.sha256:
        beside.unlink()
        raise CondaError(f"{package.url} does not match its sha256 in the lock")
    beside.replace(path)
    return path


@dataclass(frozen=True)
class CondaArchive:
    """An environment as a single file, as content for Distribution."""

    path: Path
    sha256: str

    @property
    def files(self) -> Sequence[ManifestFile]:
        return [ManifestFile(self.path.name, executable=False, size=self.path.stat().st_size, sha256=self.sha256)]

    def read(self, file: ManifestFile, begin: int, most: int) -> bytes:
        with (self.path.parent / file.path).open("rb") as content:
            content.seek(begin)
            return content.read(most)


@contextlib.contextmanager
def put_together(section: CondaSection, path: str) -> Iterator[CondaArchive]:
    """Yield the environment, assembled for this path on the nodes. Raises CondaError."""
    rattler()
    packages = [(package, fetched(package)) for package in section.packages]
    with tempfile.TemporaryDirectory(prefix="muster-conda-") as folder:
        archive = assemble(packages, Path(folder), path, section.platform)
        yield CondaArchive(archive, _sha256(archive))


def _cache(*parts: str) -> Path:
    path = CACHE.expanduser().joinpath(*parts)
    path.mkdir(parents=True, exist_ok=True, mode=0o700)
    return path


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(files.CHUNK):
            digest.update(chunk)
    return digest.hexdigest()
