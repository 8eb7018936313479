"""Resolve, download, keep and install the wheels of a locked environment on a node."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import tempfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn
from urllib.parse import unquote, urlsplit

from ansible.module_utils.muster.pytorch import lock as pytorch_lock
from ansible.module_utils.muster.pytorch import pip as pip_words

from ..tools import files
from ..tools.result import RefusedError
from ..tools.run import names
from .resolving import Resolver, own_settings, take_over
from .root import Interpreter, PytorchRoot, clean_environment, refuse_foreign, trusted

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ansible.module_utils.muster.pytorch.request import EnvironmentRequest

NEW = ".new-"
PIP_LOG = "pip.log"  # with the sizes of files in progress, for programs/activity.py
PIP = ("--progress-bar", "off")
EXACT = (pip_words.WHEELS_ALONE, "--no-deps", "--require-hashes", "--requirement")
# The wheelhouse stores the wheels, so pip's cache would be a second copy.
DOWNLOAD = (*PIP, "--no-cache-dir")


class Wheelhouse:
    """Folders with wheels below the root. The name of each folder is the digest of its lock section."""

    def __init__(
        self, root: PytorchRoot, params: dict[str, Any], request: EnvironmentRequest, python: Interpreter
    ) -> None:
        self.root = root
        self.folder: Path = root.root / "wheels"
        self.params = params
        self.request = request
        self.python = python

    def path(self, section: pytorch_lock.WheelSection) -> Path:
        return Path(self.folder, section.digest)

    def has(self, section: pytorch_lock.WheelSection) -> bool:
        """Return whether all files exist. Hashes are compared later, before the files are used."""
        return all((self.path(section) / wheel.file).is_file() for wheel in section.wheels)

    # Getting

    def resolve(self, lock: int) -> pytorch_lock.WheelSection:
        """Resolve the request and download the wheels. Packages in pytorch_source_builds are built from source."""
        resolver = Resolver(self.params["python"], self.root.root)
        new = self._new("wheels")
        with self._pip(lock) as (pip, more), resolver.fresh():
            self._resolve(resolver, pip, {**clean_environment(), **more})
            new.mkdir(mode=0o755)
            section = pytorch_lock.make_section(
                self.request, self.python.machine, take_over(f"{resolver.folder}/wheels", new)
            )
        self._keep(new, section)
        return section

    def _resolve(self, resolver: Resolver, pip: list[str], environment: dict[str, str]) -> None:
        builds = self.params["source_builds"]
        # Source builds could read the settings.
        settings = {} if builds else own_settings()
        kinds = pip_words.kinds(builds)
        here = ["--wheel-dir", "wheels", "--find-links", "wheels"]

        def wheels(where: Sequence[str], *what: str) -> str:
            """Run `pip wheel`. Return pip's output if pip failed, else ""."""
            done = resolver.pip([*pip, "wheel", *DOWNLOAD, *kinds, *here, *where, *what], environment, settings)
            if done.code is None:
                raise RefusedError(f"pip cannot run ({done.why})")
            return done.text + done.aside if done.code else ""

        self.judge_folders()
        requirements = [*map(str, self.request.requirements)]
        first, *own = sources_of(self.request, self.params)
        said = wheels(first, *requirements)
        if said and own and pip_words.torch_not_found(said):
            # From PyTorch's own index, only packages that are pinned to one of its builds are taken.
            said = wheels(own[0], "--no-deps", *(pin for pin in requirements if "+" in pin)) or wheels(
                first, *requirements
            )
        if said:
            self._fail(said)

    def missing(self, section: pytorch_lock.WheelSection) -> list[str]:
        """Return the names of the wheels that are missing or do not match the lock."""
        path = self.path(section)
        refuse_foreign(str(path), self.root.option)
        return [wheel.file for wheel in section.wheels if sha256_of(path / wheel.file) != wheel.sha256]

    def download(self, section: pytorch_lock.WheelSection, missing: Sequence[str], lock: int) -> None:
        """Download the given wheels of one section of the lock."""
        new = self._new("wheels")
        wanted = [wheel for wheel in section.wheels if wheel.file in missing]
        with self._pip(lock) as (pip, more), requirements(wanted) as file:
            self._try([*pip, "download", *DOWNLOAD, "--dest", str(new)], [*EXACT, file], more, lock)
        self._keep(new, section)

    @contextlib.contextmanager
    def _pip(self, lock: int) -> Iterator[tuple[list[str], dict[str, str]]]:
        """Yield the command and variables of a temporary pip, because the node might not have pip and the environment
        does not exist yet."""
        path = self._new("pip")
        wheel = self.python.pip
        try:
            if wheel is None:
                self.root.make_venv(path, self.params["python"], lock)
                more = {}
            else:
                # The same pip, unpacked at once instead of being installed for seconds.
                self.root.make_venv(path, self.params["python"], lock, "--without-pip")
                with zipfile.ZipFile(wheel) as archive:
                    archive.extractall(path / "pip")
                more = {"PYTHONPATH": str(path / "pip")}
            (path / PIP_LOG).touch(0o600)  # index URLs may contain passwords
            with trusted(path, self.params["extra_ca"]) as trust:
                yield [str(path / "bin" / "python"), "-m", "pip"], {**more, **trust, "PIP_LOG": str(path / PIP_LOG)}
        finally:
            shutil.rmtree(path, ignore_errors=True)

    def _try(self, pip: list[str], what: list[str], more: dict[str, str], lock: int) -> None:
        """Run pip with each package source in order, until a source has the requested torch."""
        self.judge_folders()
        for where in sources_of(self.request, self.params):
            done = self.root.run([*pip, *where, *what], lock, more)
            if done.returncode == 0:
                return
            if not pip_words.torch_not_found(done.stdout):
                break
        self._fail(done.stdout)

    def _fail(self, said: str) -> NoReturn:
        why, fix = pip_words.explain_pip(said, self.request)
        raise RefusedError(why, fix, pip_output=said.splitlines())

    def judge_folders(self) -> None:
        """Reject missing package folders, and folders that other users can write to."""
        offline = self.params["offline_dir"]
        if offline and not Path(offline).is_dir():
            raise RefusedError(f"folder {offline} does not exist", "Create the folder, or correct pytorch_offline_dir")
        local = [local_path(link) for link in self.params["find_links"]]
        for option, folders in (("pytorch_offline_dir", [offline]), ("pytorch_find_links", local)):
            for folder in filter(None, folders):
                for name in ("", *names(folder)):
                    refuse_foreign(f"{folder}/{name}", option)

    def _new(self, name: str) -> Path:
        path = self.folder / f"{NEW}{name}"
        self.folder.mkdir(mode=0o755, exist_ok=True)
        if path.exists():
            shutil.rmtree(path)
        return path

    def _keep(self, new: Path, section: pytorch_lock.WheelSection) -> None:
        path = self.path(section)
        path.mkdir(mode=0o755, exist_ok=True)
        for wheel in new.glob("*.whl"):
            wheel.chmod(0o644)
            wheel.replace(path / wheel.name)
        shutil.rmtree(new)

    # Using

    def install(self, environment: Path, section: pytorch_lock.WheelSection, lock: int, *, complete: bool) -> None:
        """Install exactly the wheels of the section, from the wheelhouse if the wheelhouse is complete."""
        pip = [str(environment / "bin" / "python"), "-m", "pip", "install", *PIP]
        with trusted(environment, self.params["extra_ca"]) as more, requirements(section.wheels) as file:
            if not complete:
                self._try([*pip, "--no-cache-dir"], [*EXACT, file], more, lock)
                return
            here = ["--no-index", "--find-links", str(self.path(section))]
            done = self.root.run([*pip, *here, *EXACT, file], lock, more)
        if done.returncode != 0:
            self._fail(done.stdout)

    def tidy(self, keep: str) -> None:
        """Remove all wheels except those of the section with this digest."""
        tidy(self.folder, keep)


def tidy(folder: Path, keep: str = "") -> None:
    """Remove all wheel folders except `keep`, then remove the folder itself if it is empty."""
    if not folder.is_dir():
        return
    for path in folder.iterdir():
        ours = path.name.startswith(NEW) or pytorch_lock.is_digest(path.name)
        if ours and path.name != keep and path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
    if not any(folder.iterdir()):
        folder.rmdir()


def sha256_of(path: Path) -> str:
    """Return the digest of a file's content; "" if the file is missing."""
    digest = hashlib.sha256()
    try:
        with files.opened(str(path)) as handle:
            while chunk := os.read(handle, files.CHUNK):
                digest.update(chunk)
    except OSError:
        return ""
    return digest.hexdigest()


def local_path(link: str) -> str:
    """Return the local path of an entry of pytorch_find_links; "" for a remote URL."""
    address = urlsplit(link)
    if address.scheme == "file":
        return unquote(address.path)
    if not address.scheme and not link.startswith("/"):
        raise RefusedError(f"pytorch_find_links: {link} is neither a URL nor the absolute path of a folder")
    return "" if address.scheme else link


@contextlib.contextmanager
def requirements(wheels: Sequence[pytorch_lock.Wheel]) -> Iterator[str]:
    """Yield the path of a requirements file with the versions and hashes of the wheels."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write("".join(f"{wheel}\n" for wheel in wheels))
        file.flush()
        yield file.name


def sources_of(request: EnvironmentRequest, params: dict[str, Any]) -> list[list[str]]:
    names = ("index_url", "extra_index_urls", "find_links", "offline_dir", "mirror")
    where = {name: params[name] for name in names}
    sources: list[list[str]] = pip_words.pip_sources(request.variant, **where)
    return sources
