"""Assembles a conda environment in a separate process, which drops its privileges if the controller runs as root.

Packages are untrusted input. If the parent runs as root, the process drops root before it opens the first package, and
runs as an unused account without groups that owns one temporary folder. If the controller does not run as root, the
process runs as the same user. Only checks protect the files of that user: muster.pytorch.conda_contents checks packages
before they are linked, and py-rattler checks archives while it unpacks them. Unpacked files are never reused by a later
run.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import hashlib
import importlib
import json
import os
import pwd
import random
import resource
import stat
import subprocess
import sys
import tarfile
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from muster.pytorch.conda import CondaError, CondaPackage
from muster.pytorch.conda_contents import (
    DESCRIBING,
    INDEX,
    CondaEntry,
    Contents,
    check_members,
    check_tree,
    check_unpacked,
    contents_of,
    layout_of,
    member_entry,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

BEGIN = """
import json, sys
given = json.load(sys.stdin)
sys.path[:] = given.pop("search")
from muster_controller.pytorch.conda_assembly import answer
print(json.dumps(answer(given)))
"""
KINDS = {stat.S_IFREG: "file", stat.S_IFLNK: "link", stat.S_IFDIR: "folder"}
TYPES = {"file": tarfile.REGTYPE, "link": tarfile.SYMTYPE, "folder": tarfile.DIRTYPE}
IDS = range(61184, 65520)  # range of systemd's temporary accounts (DynamicUser)
MOST_SAID = 4000  # characters of output
CHUNK = 1 << 20


def assemble(packages: Sequence[tuple[CondaPackage, Path]], folder: Path, root: str, platform: str) -> Path:
    """Assemble these package files in a private folder. Return the archive. Raises CondaError.

    root: the path of the environment on the nodes, which is written into its files.
    """
    archive, work = folder / "environment.tar", folder / "work"
    work.mkdir(mode=0o755)
    given = {
        "packages": [{"url": package.url, "sha256": package.sha256, "path": str(path)} for package, path in packages],
        "archive": str(archive),
        "work": str(work),
        "root": root,
        "platform": platform,
        "account": _account_for(folder, work),
        "search": [place for place in sys.path if place],
    }
    environment = {"PATH": os.defpath, "LANG": "C.UTF-8", "HOME": str(work), "TMPDIR": str(work)}
    done = subprocess.run(
        [sys.executable, "-I", "-c", BEGIN],
        input=json.dumps(given).encode(),
        capture_output=True,
        env=environment,
        cwd=folder,
        check=False,
    )
    try:
        said = json.loads(done.stdout)["error"] if done.returncode == 0 else None
    except (ValueError, KeyError, TypeError):
        said = None
    if said is None:
        last = (done.stderr.decode(errors="replace").strip().splitlines() or [""])[-1]
        said = f"the assembly process failed with status {done.returncode}: {last}"
    if said:
        raise CondaError(" ".join(str(said).split())[:MOST_SAID])
    with tarfile.open(archive, "r:") as content:
        check_members(map(member_entry, content), root)
    return archive


def _account_for(folder: Path, work: Path) -> int | None:
    """Give the folder to an unused account. Return None if this process is not root, or if its user namespace has only
    one account."""
    if os.geteuid() != 0:
        return None
    number = next(one for one in random.SystemRandom().sample(IDS, len(IDS)) if not _is_known(one))
    try:
        os.chown(work, number, number)
    except OSError as problem:
        if problem.errno == errno.EINVAL:  # a user namespace without this ID, where root is that user
            return None
        raise CondaError(f"{work} cannot be assigned to an unprivileged account ({problem})") from None
    folder.chmod(0o711)
    return number


def _is_known(number: int) -> bool:
    try:
        pwd.getpwuid(number)
    except KeyError:
        return False
    return True


def answer(given: Mapping[str, Any]) -> dict[str, str]:
    """Run in the separate process: open the files, drop all privileges, and assemble the environment."""
    library = importlib.import_module("rattler")
    for part in ("package_cache", "package_streaming"):
        importlib.import_module(f"rattler.{part}")
    packages = [(CondaPackage(one["url"], one["sha256"]), Path(one["path"])) for one in given["packages"]]
    account: int | None = given["account"]
    os.umask(0o022)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = soft + len(packages)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(wanted, hard) if hard != resource.RLIM_INFINITY else wanted, hard))
    with contextlib.ExitStack() as opened:
        archive = opened.enter_context(Path(given["archive"]).open("xb"))
        sources = [(package, opened.enter_context(path.open("rb"))) for package, path in packages]
        if account is not None:
            for _, source in sources:
                os.fchmod(source.fileno(), 0o644)  # reopened through /dev/fd; its folder is private
            give_up(account)
        work = Path(given["work"])
        if not os.access(work, os.R_OK | os.W_OK | os.X_OK):
            fix = "Set TMPDIR to a folder that all users can access"
            return {"error": f"an unprivileged account cannot access {work.parents[1]}. {fix}"}
        try:
            assembly = Assembly(library, work, given["root"])
            for package, source in sources:
                assembly.unpack(package, source)
            asyncio.run(assembly.link(given["platform"]))
            pack(assembly.tree, archive)
        except CondaError as problem:
            return {"error": str(problem)}
        except Exception as problem:  # the library has no common base class of its exceptions
            return {"error": f"the environment cannot be assembled: {problem}"}
    return {"error": ""}


def give_up(account: int) -> None:
    """Change irrevocably to this account, without supplementary groups."""
    os.setgroups([])
    os.setgid(account)
    os.setuid(account)  # for root, also sets the saved uid and drops all capabilities


class Assembly:
    """work: a private folder. root: the path of the environment on the nodes."""

    def __init__(self, library: Any, work: Path, root: str) -> None:
        self.library, self.work, self.root = library, work, root
        self.cache, self.tree = work / "unpacked", work / "tree"
        self.known: list[tuple[Contents, list[CondaEntry]]] = []
        self.sizes: dict[CondaPackage, int] = {}

    def unpack(self, package: CondaPackage, source: BinaryIO) -> None:
        """Unpack a package, and compare its files with its file list. Raises CondaError."""
        folder, named = self.cache / "-".join(package.parts), self.work / package.file
        folder.mkdir(parents=True)
        named.symlink_to(f"/dev/fd/{source.fileno()}")  # the library derives the package format from the name
        self.library.package_streaming.extract(named, folder)
        named.unlink()
        entries = list(entries_of(folder))
        described = [entry.path for entry in entries if entry.kind == "file" and entry.path in DESCRIBING]
        texts = {path: (folder / path).read_text(encoding="utf-8") for path in described}
        contents = contents_of(package, texts)
        known_by_hash = {path for path, listed in contents.listed.items() if listed.sha256 is not None}
        hashed = [entry_with_hash(folder, entry) if entry.path in known_by_hash else entry for entry in entries]
        check_unpacked(contents, hashed)
        self.known.append((contents, hashed))
        self.sizes[package] = os.fstat(source.fileno()).st_size

    async def link(self, platform: str) -> None:
        """Link all packages into the tree, with the path that the environment has on the nodes. Raises CondaError."""
        library, caching = self.library, self.library.package_cache
        layout = layout_of(self.known, self.root)
        # The packages are already unpacked and verified. Other modes would read and hash them again.
        cache = caching.PackageCache.new_layered([self.cache], False, caching.ValidationMode.skip())
        await library.install(
            [self._record(contents.package) for contents, _ in self.known],
            target_prefix=self.tree,
            alternative_target_prefix=self.root,
            package_cache=cache,
            platform=library.Subdir(platform),
            execute_link_scripts=False,
            show_progress=False,
        )
        for contents, _ in self.known:
            self._name_source(contents.package)
        check_tree(layout, entries_of(self.tree))

    def _record(self, package: CondaPackage) -> Any:
        said = self.library.PackageRecord.from_index_json(
            self.cache / "-".join(package.parts) / INDEX, size=self.sizes[package], sha256=package.sha256
        )
        # An invalid URL: packages that are not in the verified cache must not be downloaded.
        nowhere = (self.work / "nowhere" / package.file).as_uri()
        return self.library.RepoDataRecord(said, package.file, nowhere, package.url.rsplit("/", 2)[0])

    def _name_source(self, package: CondaPackage) -> None:
        """Set the source URL in a package's record, and remove data of this machine."""
        path = self.tree / "conda-meta" / f"{'-'.join(package.parts)}.json"
        record = json.loads(path.read_text(encoding="utf-8"))
        here = {"extracted_package_dir", "link"}
        kept = {name: value for name, value in record.items() if name not in here}
        path.write_text(json.dumps({**kept, "url": package.url}, indent=2), encoding="utf-8")


def entries_of(folder: Path) -> Iterator[CondaEntry]:
    """Yield the contents of a folder without following links."""
    found: list[tuple[str, os.stat_result, str]] = []
    left = [""]
    while left:
        within = left.pop()
        with os.scandir(folder / within) as names:
            for name in names:
                status = name.stat(follow_symlinks=False)
                path = f"{within}/{name.name}" if within else name.name
                found.append((path, status, str(Path(name.path).readlink()) if name.is_symlink() else ""))
                if stat.S_ISDIR(status.st_mode):
                    left.append(path)
    names_of = Counter((status.st_dev, status.st_ino) for _, status, _ in found)
    for path, status, target in sorted(found):
        kind = KINDS.get(stat.S_IFMT(status.st_mode), "special")
        outside = kind == "file" and status.st_nlink > names_of[status.st_dev, status.st_ino]
        yield CondaEntry(path, kind, stat.S_IMODE(status.st_mode), target, status.st_size, outside=outside)


def entry_with_hash(folder: Path, entry: CondaEntry) -> CondaEntry:
    digest = hashlib.sha256()
    with opened(folder / entry.path) as file:
        while chunk := file.read(CHUNK):
            digest.update(chunk)
    return replace(entry, sha256=digest.hexdigest())


def opened(path: Path) -> BinaryIO:
    """Open a file for reading. Links are rejected."""
    return os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb")


def pack(tree: Path, archive: BinaryIO) -> None:
    """Pack the tree reproducibly. A file with two names is packed twice."""
    with tarfile.open(fileobj=archive, mode="w", format=tarfile.PAX_FORMAT) as content:
        for entry in entries_of(tree):
            member = tarfile.TarInfo(entry.path)
            member.mode, member.type, member.linkname = entry.mode & 0o777, TYPES[entry.kind], entry.target
            if entry.kind == "file":
                with opened(tree / entry.path) as file:
                    member.size = entry.size
                    content.addfile(member, file)
            else:
                content.addfile(member)
