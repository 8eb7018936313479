"""The wheels of a locked environment on a node: resolved, downloaded, fetched from a peer, kept, and installed."""

from __future__ import annotations

import contextlib
import email
import shutil
import tempfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ansible.module_utils.muster.packages import peer_files as peer_domain
from ansible.module_utils.muster.pytorch import lock as pytorch_lock
from ansible.module_utils.muster.pytorch import pip as pip_words

from ..packages import peer_files
from ..tools.result import RefusedError
from .root import Interpreter, PytorchRoot, trusted

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ansible.module_utils.muster.pytorch.request import Request

NEW = ".new-"
PIP = ("--progress-bar", "off")
# The wheels lie in the wheelhouse, so that pip's own copy of them would be the second one.
DOWNLOAD = (*PIP, "--no-cache-dir")


class Wheelhouse:
    """Folders of wheels below the root, each named by the digest of its section of the lock."""

    def __init__(self, root: PytorchRoot, params: dict[str, Any], request: Request, python: Interpreter) -> None:
        self.root = root
        self.folder: Path = root.root / "wheels"
        self.params = params
        self.request = request
        self.python = python

    def path(self, section: pytorch_lock.Section) -> Path:
        return Path(self.folder, section.digest)

    def has(self, section: pytorch_lock.Section) -> bool:
        """Whether the files are there by their names; before they are used, they are compared with the lock."""
        return all((self.path(section) / wheel.file).is_file() for wheel in section.wheels)

    # Getting

    def resolve(self, lock: int) -> pytorch_lock.Section:
        """Download what the request leads to today. What has no wheel is built into one here."""
        new = self._new("wheels")
        with self._pip(lock) as (pip, more):
            self._try(
                [*pip, "wheel", *DOWNLOAD, "--wheel-dir", str(new)], [*map(str, self.request.requirements)], more, lock
            )
        section = pytorch_lock.make_section(
            self.request, self.python.machine, [wheel_of(path) for path in new.glob("*.whl")]
        )
        self._keep(new, section)
        return section

    def fetch(self, section: pytorch_lock.Section, peers: Sequence[str]) -> tuple[list[str], list[Any]]:
        """Fetch from the peers what is not there. Return the names still missing, and what was tried."""
        files = [peer_domain.Wanted(wheel.file, wheel.sha256) for wheel in section.wheels]
        path = str(self.path(section))
        return peer_files.fetch(self.params["user"], peers, path, path, files)

    def download(self, section: pytorch_lock.Section, missing: Sequence[str], lock: int) -> None:
        """Download exactly these wheels of the section."""
        new = self._new("wheels")
        wanted = [wheel for wheel in section.wheels if wheel.file in missing]
        with self._pip(lock) as (pip, more), requirements(wanted) as file:
            exact = ["--no-deps", "--require-hashes", "--requirement", file]
            self._try([*pip, "download", *DOWNLOAD, "--dest", str(new)], exact, more, lock)
        self._keep(new, section)

    @contextlib.contextmanager
    def _pip(self, lock: int) -> Iterator[tuple[list[str], dict[str, str]]]:
        """A pip for a while: the node need not have one, and the environment does not exist yet."""
        path = self._new("pip")
        wheel = self.python.pip
        try:
            if wheel is None:
                self.root.make_venv(path, self.params["python"], lock)
                more = {}
            else:
                # The same pip, unpacked at once instead of installed for seconds.
                self.root.make_venv(path, self.params["python"], lock, "--without-pip")
                with zipfile.ZipFile(wheel) as archive:
                    archive.extractall(path / "pip")
                more = {"PYTHONPATH": str(path / "pip")}
            with trusted(path, self.params["extra_ca"]) as trust:
                yield [str(path / "bin" / "python"), "-m", "pip"], {**more, **trust}
        finally:
            shutil.rmtree(path, ignore_errors=True)

    def _try(self, pip: list[str], what: list[str], more: dict[str, str], lock: int) -> None:
        """Try one source after the other, as long as they have no such torch."""
        offline = self.params["offline_dir"]
        if offline and not Path(offline).is_dir():
            raise RefusedError(f"there is no folder {offline}", "See pytorch_offline_dir")
        for where in sources_of(self.request, self.params):
            done = self.root.run([*pip, *where, *what], lock, more)
            if done.returncode == 0:
                return
            if not pip_words.torch_not_found(done.stdout):
                break
        why, fix = pip_words.explain_pip(done.stdout, self.request)
        raise RefusedError(why, fix, pip_output=done.stdout.splitlines())

    def _new(self, name: str) -> Path:
        path = self.folder / f"{NEW}{name}"
        self.folder.mkdir(mode=0o755, exist_ok=True)
        if path.exists():
            shutil.rmtree(path)
        return path

    def _keep(self, new: Path, section: pytorch_lock.Section) -> None:
        path = self.path(section)
        path.mkdir(mode=0o755, exist_ok=True)
        for wheel in new.glob("*.whl"):
            wheel.chmod(0o644)
            wheel.replace(path / wheel.name)
        shutil.rmtree(new)

    # Using

    def install(self, environment: Path, section: pytorch_lock.Section, lock: int, *, complete: bool) -> None:
        """Install the section's wheels, and nothing but them, from the wheelhouse if they are all there."""
        pip = [str(environment / "bin" / "python"), "-m", "pip", "install", *PIP]
        with trusted(environment, self.params["extra_ca"]) as more, requirements(section.wheels) as file:
            exact = ["--no-deps", "--require-hashes", "--requirement", file]
            if not complete:
                self._try([*pip, "--no-cache-dir"], exact, more, lock)
                return
            done = self.root.run([*pip, "--no-index", "--find-links", str(self.path(section)), *exact], lock, more)
        if done.returncode != 0:
            why, fix = pip_words.explain_pip(done.stdout, self.request)
            raise RefusedError(why, fix, pip_output=done.stdout.splitlines())

    def tidy(self, keep: str) -> None:
        """Remove all wheels but those of the section with this digest."""
        if not self.folder.is_dir():
            return
        for path in self.folder.iterdir():
            ours = path.name.startswith(NEW) or pytorch_lock.is_digest(path.name)
            if ours and path.name != keep and path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
        if not any(self.folder.iterdir()):
            self.folder.rmdir()


@contextlib.contextmanager
def requirements(wheels: Sequence[pytorch_lock.Wheel]) -> Iterator[str]:
    """A file for pip with the wheels' versions and hashes."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write("".join(f"{wheel}\n" for wheel in wheels))
        file.flush()
        yield file.name


def wheel_of(path: Path) -> pytorch_lock.Wheel:
    with zipfile.ZipFile(path) as archive:
        name = next(
            name for name in archive.namelist() if name.count("/") == 1 and name.endswith(".dist-info/METADATA")
        )
        head = email.message_from_bytes(archive.read(name))
    return pytorch_lock.Wheel(str(head["Name"]), str(head["Version"]), peer_files.sha256_of(path), path.name)


def sources_of(request: Request, params: dict[str, Any]) -> list[list[str]]:
    names = ("index_url", "extra_index_urls", "find_links", "offline_dir", "mirror")
    where = {name: params[name] for name in names}
    sources: list[list[str]] = pip_words.pip_sources(request.variant, **where)
    return sources
