"""The project of a launch on the controller: its files that git does not ignore or, without git, all its files."""

from __future__ import annotations

import hashlib
import os
import stat
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from muster.launch import launchers
from muster.launch import project as choosing
from muster.launch.plan import PlanError
from muster_node.distribution import manifest
from muster_node.distribution.manifest import ManifestFile
from muster_node.tools import files

GIT = ("git", "-c", "core.fsmonitor=false", "-c", "core.quotePath=false")
GIT_SECONDS = 60
NO_TREE = "not a git repository"
NESTED = 5  # levels of nested git repositories
MOST_WALKED = 200_000
MOST_IGNORE = 1_000_000
MOST_NAMED = 5
HEAD = 100  # bytes that contain the header of a private key
NOT_ENTERED = {".git", ".hg", ".svn", ".jj", "__pycache__"}


@dataclass(frozen=True)
class Project:
    """source: the folder on the controller. manifest: the list of files to send. digest: the digest of the manifest.
    warnings: sentences about files that are not sent."""

    source: str
    manifest: bytes
    files: tuple[ManifestFile, ...]
    warnings: list[str] = field(default_factory=list)

    @property
    def digest(self) -> str:
        return manifest.digest_of(self.manifest)

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)

    @property
    def in_plan(self) -> dict[str, object]:
        return {"source": self.source, "digest": self.digest, "files": len(self.files), "bytes": self.size}

    def script_problem(self, script: str) -> str:
        """If a script with a path relative to the project is missing, return why, as a sentence. Otherwise return
        ""."""
        if not script or script.startswith("/"):
            return ""
        return choosing.script_problem(script, self.source, [file.path for file in self.files])

    def in_command(self, command: list[str], *, chdir: bool) -> list[str]:
        """Return the command with the script's path on the nodes. Raises PlanError."""
        paths = [file.path for file in self.files]

        def why(script: str) -> str:
            return choosing.script_problem(script, self.source, paths, "launch_command:")

        found, problem = launchers.of_project(command, why, chdir=chdir)
        if problem:
            raise PlanError([problem])
        return found

    def read(self, file: ManifestFile, begin: int, most: int) -> bytes:
        """Return a part of a file, which might have changed since it was listed. Raises OSError."""
        return files.part(os.path.realpath(f"{self.source}/{file.path}"), begin, most)


def read_project(given: str, most_mb: int) -> Project:
    """Select and read the files to send. Raises PlanError."""
    source = Path(given).expanduser().resolve()
    if not source.is_dir():
        raise PlanError([f"launch_project {given} is not a folder on the controller."])
    try:
        ignore = _ignore(source)
        chosen = choosing.choose(_listed(source), ignore)
        regular, links = _regular(source, chosen.kept)
        if problems := _problems(source, regular, most_mb):
            raise PlanError(problems)
        keys = [path for path in regular if not choosing.is_included(path, ignore) and _is_key(source / path)]
        listed = tuple(_file(source, path) for path in regular if path not in keys)
    except OSError as problem:
        raise PlanError([f"launch_project: {problem.filename or source}: {problem.strerror}."]) from None
    warnings = choosing.left_out(str(source), [*chosen.secrets, *keys], links)
    return Project(str(source), manifest.render(listed), listed, warnings)


def _problems(source: Path, paths: list[str], most_mb: int) -> list[str]:
    odd = [f"launch_project {source}: {path!r}: {why}." for path in paths if (why := manifest.unusable(path))]
    sizes = {path: (source / path).stat().st_size for path in paths}
    found = [*odd[:MOST_NAMED], *choosing.too_much(str(source), sizes, most_mb, manifest.MOST_FILES)]
    if not paths:
        found.append(f"launch_project {source} has no file to send: git or {choosing.IGNORE_FILE} ignores all files.")
    return found


def _listed(source: Path) -> list[str]:
    """Return the paths of all files. In a git repository, omit the files that git ignores."""
    known = _in_git(source)
    return _walked(source) if known is None else known


def _in_git(source: Path, depth: int = 0) -> list[str] | None:
    """Return tracked files and new files that are not ignored, or None if the folder is not in a git repository."""
    said = _asked(source)
    if said is None:
        return None
    found: list[str] = []
    for name in dict.fromkeys(said.split("\0")):
        path = name.rstrip("/")
        place = source / path
        if path and place.is_dir() and not place.is_symlink():
            # A nested repository, such as a submodule.
            below = (_in_git(place, depth + 1) if depth < NESTED else None) or []
            found += [f"{path}/{each}" for each in below]
        elif path and (place.is_symlink() or place.exists()):
            found.append(path)
    return found


def _asked(source: Path) -> str | None:
    is_git = any((folder / ".git").exists() for folder in (source, *source.parents))
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    argv = [*GIT, "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        done = subprocess.run(
            argv, cwd=source, env={**environment, "LC_ALL": "C"}, capture_output=True, timeout=GIT_SECONDS, check=False
        )
    except FileNotFoundError:
        if is_git:
            raise PlanError([f"launch_project {source} is a git repository, but git is not installed."]) from None
        return None
    except subprocess.TimeoutExpired:
        raise PlanError([f"launch_project {source}: git did not respond within {GIT_SECONDS} s."]) from None
    if done.returncode:
        said = " ".join(done.stderr.decode(errors="replace").split())
        if NO_TREE in said and not is_git:  # in a broken repository, ignored files would be sent
            return None
        raise PlanError([f"launch_project {source}: git reports: {said[:300]}."])
    return done.stdout.decode("utf-8", "surrogateescape")


def _walked(source: Path) -> list[str]:
    found: list[str] = []
    for name, below, names in os.walk(source):
        folder = Path(name)
        links = [each for each in below if (folder / each).is_symlink()]
        below[:] = sorted(set(below) - NOT_ENTERED - set(links))
        found += [(folder / each).relative_to(source).as_posix() for each in (*names, *links)]
        if len(found) > MOST_WALKED:
            raise PlanError(
                [f"launch_project {source} contains more than {MOST_WALKED} files: set the project's folder."]
            )
    return found


def _ignore(source: Path) -> str:
    try:
        content = files.read(str(source / choosing.IGNORE_FILE), most=MOST_IGNORE, links=True)
    except FileNotFoundError:
        return ""
    return content.decode("utf-8", "replace")


def _regular(source: Path, kept: list[str]) -> tuple[list[str], list[str]]:
    """Return the regular files including links to regular files, and the other paths."""
    plain = {path for path in kept if stat.S_ISREG((source / path).lstat().st_mode)}
    found: list[str] = []
    links: list[str] = []
    for path in kept:
        leads_to = os.path.relpath(os.path.realpath(source / path), source)
        (found if path in plain or leads_to in plain else links).append(path)
    return found, links


def _is_key(path: Path) -> bool:
    """Return whether the file begins like a private key, regardless of its name."""
    return bool(choosing.PRIVATE_KEY.search(files.part(os.path.realpath(path), 0, HEAD)))


def _file(source: Path, path: str) -> ManifestFile:
    digest, size = hashlib.sha256(), 0
    with files.opened(os.path.realpath(source / path)) as handle:
        executable = bool(os.fstat(handle).st_mode & stat.S_IXUSR)
        while chunk := os.read(handle, files.CHUNK):
            digest.update(chunk)
            size += len(chunk)
    return ManifestFile(path, executable, size, digest.hexdigest())
