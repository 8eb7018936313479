"""Conda packages on the controller, by py-rattler: solved, downloaded with their hashes, and put together.

Nothing of a package runs here, nor its link scripts anywhere. py-rattler is needed for this alone, and imported where
it is used. conda_assembly says who reads the packages.
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

MISSING = "conda packages need py-rattler on the controller, which is not there: install it with script/setup conda"
CACHE = Path("~/.cache/muster/conda")
SECONDS = 300.0  # without a byte of a package
MOST_PACKAGE = 8_000_000_000


def rattler() -> Any:
    try:
        return importlib.import_module("rattler")
    except ImportError:
        raise CondaError(MISSING) from None


def solve(asked: CondaSpecs, platform: str, facts: Mapping[str, str]) -> CondaSection:
    """Find out what the request leads to today. facts: of a node of that platform. Raises CondaError."""
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
    except Exception as problem:  # the library has an exception for each of its parts, and each is an answer
        raise CondaError(f"it cannot be solved for {platform}: {' '.join(str(problem).split())[:1000]}") from None
    nameless = [record.file_name for record in records if record.sha256 is None]
    if nameless:
        raise CondaError(f"its channel has no sha256 of {nameless[0]}, so that it cannot be locked")
    return make_section(platform, asked, [CondaPackage(str(record.url), record.sha256.hex()) for record in records])


def version_in(text: str) -> str:
    """The numbers at the beginning of what a node says of itself; "0" where there are none."""
    found = re.match(r"\d{1,6}(\.\d{1,6}){0,3}", text, re.ASCII)
    return found[0] if found else "0"


def fetched(package: CondaPackage) -> Path:
    """The package's file in the cache, which has exactly the content of the lock. Raises CondaError."""
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
                    raise CondaError(f"{package.url} is larger than any package may be")
                file.write(chunk)
    except OSError as problem:
        raise CondaError(f"{package.url} cannot be downloaded ({problem})") from None
    if _sha256(beside) != package.sha256:
        beside.unlink()
        raise CondaError(f"{package.url} is another file than the one in the lock")
    beside.replace(path)
    return path


@dataclass(frozen=True)
class CondaArchive:
    """An environment as one file; content for Distribution."""

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
    """The environment for this path on the nodes. Raises CondaError."""
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
