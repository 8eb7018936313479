"""Check the contents of conda packages: first each package against its own file list, then all packages together. Pure
functions.

Packages come from third parties, and the program that links them trusts their file lists. Before anything is linked,
Muster therefore compares every path, link, size and hash with the list. No path may lead through a link of another
package or out of the environment.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from .conda import CondaError, CondaPackage

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

# Files of a package that are read when it is checked or linked.
INDEX, PATHS, FILES, LINK = "info/index.json", "info/paths.json", "info/files", "info/link.json"
DESCRIBING = {INDEX, PATHS, FILES, LINK, *(f"info/{name}" for name in ("has_prefix", "no_link", "no_softlink"))}
CLOBBERS = "__clobbers__"  # where py-rattler puts a file whose path is taken by another package
OWN = ("CACHEDIR.TAG", "conda-meta/history")  # written by py-rattler for the environment itself
MOST_STEPS = 1000  # per link that is followed
_KINDS = {"hardlink": "file", "softlink": "link", "directory": "folder"}
_SHA256 = re.compile(r"[0-9a-f]{64}")
_COMMAND = re.compile(r"[\w.+-]+", re.ASCII)
_SET_ID = 0o7000


@dataclass(frozen=True)
class CondaEntry:
    """An entry in a folder or an archive. kind: file, link, folder, or special for anything else.

    target: target of a link. sha256: "" if it was not computed. outside: whether a file has hard links outside of the
    folder.
    """

    path: str
    kind: str
    mode: int = 0
    target: str = ""
    size: int = 0
    sha256: str = ""
    outside: bool = False


@dataclass(frozen=True)
class CondaPath:
    """One path in the file list of a package. size, sha256: None if the list has an old format without these fields."""

    path: str
    kind: str | None = None
    size: int | None = None
    sha256: str | None = None


@dataclass(frozen=True)
class Contents:
    """The metadata of a package.

    listed: entries of the file list by path. site_packages: folder set by a Python package; "" for the default.
    """

    package: CondaPackage
    listed: Mapping[str, CondaPath]
    python_only: bool = False
    site_packages: str = ""
    commands: tuple[str, ...] = ()

    def wrong(self, what: str) -> CondaError:
        return CondaError(f"package {self.package.file}: {what}")


@dataclass
class CondaLayout:
    """All paths of the environment. kinds: kind of each path. links: for each link, the targets and the package."""

    kinds: dict[str, set[str]] = field(default_factory=dict)
    links: dict[str, dict[str, str]] = field(default_factory=dict)
    owners: dict[str, set[str]] = field(default_factory=dict)


def contents_of(package: CondaPackage, texts: Mapping[str, str]) -> Contents:
    """Read the metadata of a package. texts: contents of the files listed in DESCRIBING. Raises CondaError."""
    known = Contents(package, {})
    index = _object(known, texts, INDEX)
    for what, value in zip(("name", "version", "build"), package.parts, strict=True):
        if index.get(what) != value:
            raise known.wrong(f"info/index.json has {what} {_shown(index.get(what))}, but the file name has {value!r}")
    place = index.get("python_site_packages_path") or ""
    if place and not _plain(place):
        raise known.wrong(f"python_site_packages_path {_shown(place)} is not a normalized relative path")
    python_only = index.get("noarch") == "python"
    return Contents(
        package,
        _listed(known, texts),
        python_only,
        place,
        _commands(known, texts) if python_only and LINK in texts else (),
    )


def _object(known: Contents, texts: Mapping[str, str], name: str) -> Mapping[str, Any]:
    try:
        found = json.loads(texts[name], object_pairs_hook=_once)
    except KeyError:
        raise known.wrong(f"{name} is missing") from None
    except (ValueError, RecursionError) as problem:
        raise known.wrong(f"{name} cannot be read ({problem})") from None
    if not isinstance(found, dict):
        raise known.wrong(f"{name} is not a mapping")
    return found


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Reject a mapping with duplicate keys, because another parser might use the other value."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("duplicate key")
    return found


def _listed(known: Contents, texts: Mapping[str, str]) -> Mapping[str, CondaPath]:
    if PATHS in texts:
        lines = _object(known, texts, PATHS).get("paths")
        if not isinstance(lines, list):
            raise known.wrong("info/paths.json has no list of paths")
        entries = [_line(known, line) for line in lines]
    elif FILES in texts:  # a package older than paths.json lists names only
        entries = [CondaPath(line) for line in texts[FILES].splitlines() if line]
    else:
        raise known.wrong("info/paths.json and info/files are both missing")
    found: dict[str, CondaPath] = {}
    for entry in entries:
        if not _plain(entry.path):
            raise known.wrong(f"{_shown(entry.path)} in the package's list is not a normalized relative path")
        if found.setdefault(entry.path, entry) != entry:
            raise known.wrong(f"{_shown(entry.path)} is listed twice with different values")
    return found


def _line(known: Contents, line: Any) -> CondaPath:
    if isinstance(line, dict):
        path, kind = line.get("_path"), _KINDS.get(str(line.get("path_type")))
        size, sha256 = line.get("size_in_bytes"), line.get("sha256")
        sound = isinstance(path, str) and kind is not None and (size is None or isinstance(size, int))
        if sound and (sha256 is None or (isinstance(sha256, str) and _SHA256.fullmatch(sha256))):
            return CondaPath(str(path), kind, size, sha256)
    raise known.wrong(f"{_shown(line)} in info/paths.json is not a valid entry")


def _commands(known: Contents, texts: Mapping[str, str]) -> tuple[str, ...]:
    said = _object(known, texts, LINK).get("noarch")
    points = said.get("entry_points") if isinstance(said, dict) else None
    names = [str(point).partition("=")[0].strip() for point in points or ()]
    for name in names:
        if not _COMMAND.fullmatch(name) or name in {".", ".."}:
            raise known.wrong(f"the entry point {_shown(name)} in info/link.json is not a command name")
    return tuple(names)


def check_unpacked(contents: Contents, entries: Iterable[CondaEntry]) -> None:
    """Compare the unpacked files of a package with the package's file list. Raises CondaError."""
    found = {entry.path: entry for entry in entries}
    links = {path: {entry.target: ""} for path, entry in found.items() if entry.kind == "link"}
    for path, entry in found.items():
        where = _shown(path)
        if entry.kind == "special":
            raise contents.wrong(f"{where} is not a regular file, a symbolic link or a directory")
        if entry.kind == "file" and entry.mode & _SET_ID:
            raise contents.wrong(f"{where} has mode {entry.mode:o} with the set-user-ID, set-group-ID or sticky bit")
        if entry.outside:
            raise contents.wrong(f"{where} is a hard link to a file outside the package")
        if path.startswith("info/"):
            if entry.kind == "link" and (path in DESCRIBING or leads_out(links, path, entry.target)):
                raise contents.wrong(f"{where} is a link (to {_shown(entry.target)})")
        elif path not in contents.listed and entry.kind != "folder":
            raise contents.wrong(f"{where} is in the archive but not in the package's list")
    for path, listed in contents.listed.items():
        _check_listed(contents, listed, found.get(path))


def _check_listed(contents: Contents, listed: CondaPath, entry: CondaEntry | None) -> None:
    where = _shown(listed.path)
    if entry is None:
        raise contents.wrong(f"{where} is in the package's list but not in the archive")
    if listed.kind not in {None, entry.kind}:
        raise contents.wrong(f"{where} is listed as a {listed.kind} but is a {entry.kind}")
    if entry.kind != "file":
        return
    if listed.size not in {None, entry.size}:
        raise contents.wrong(f"{where} has {entry.size} bytes instead of {listed.size}")
    if listed.sha256 not in {None, entry.sha256}:
        raise contents.wrong(f"{where} does not match the sha256 in the package's list")


def layout_of(packages: Iterable[tuple[Contents, Iterable[CondaEntry]]], root: str) -> CondaLayout:
    """Compute the layout of all packages together. root: path of the environment on the nodes. Raises CondaError."""
    known = list(packages)
    python = next((contents for contents, _ in known if contents.package.parts[0] == "python"), None)
    layout = CondaLayout({path: {"file"} for path in OWN})
    placed: list[tuple[Contents, str]] = []
    for contents, entries in known:
        here = {entry.path: entry for entry in entries}
        name, version, build = contents.package.parts
        goes = {path: _place(contents, path, python) for path in contents.listed}
        made = [f"conda-meta/{name}-{version}-{build}.json", *(f"bin/{command}" for command in contents.commands)]
        for path, place in (*goes.items(), *((None, place) for place in made)):
            entry = here[path] if path is not None else CondaEntry(place, "file")
            layout.kinds.setdefault(place, set()).add(entry.kind)
            layout.owners.setdefault(name, set()).add(place)
            if entry.kind == "link":
                layout.links.setdefault(place, {}).setdefault(entry.target, contents.package.file)
            placed.append((contents, place))
    for contents, place in placed:
        for above in _above(place):
            if above in layout.links:
                other = next(iter(layout.links[above].values()))
                raise contents.wrong(f"{_shown(place)} is below {_shown(above)}, which is a link in package {other}")
    for place, targets in layout.links.items():
        for target, file in targets.items():
            if leads_out(layout.links, place, target, root):
                where = f"the link {_shown(place)} points outside the environment (to {_shown(target)})"
                raise CondaError(f"package {file}: {where}")
    return layout


def _place(contents: Contents, path: str, python: Contents | None) -> str:
    """Return where py-rattler puts a path.

    Files of noarch Python packages are moved to the folders of this environment's Python.
    """
    first, slash, rest = path.partition("/")
    if not contents.python_only or first not in {"site-packages", "python-scripts"}:
        return path
    if first == "python-scripts":
        return f"bin{slash}{rest}"
    if python is None:
        raise contents.wrong("a noarch Python package requires package python, which is missing")
    short = ".".join(python.package.parts[1].split(".")[:2])
    return f"{python.site_packages or f'lib/python{short}/site-packages'}{slash}{rest}"


def check_tree(layout: CondaLayout, entries: Iterable[CondaEntry]) -> None:
    """Compare the environment with the expected layout. Raises CondaError."""
    found = {entry.path: entry for entry in entries}
    for path, entry in found.items():
        if entry.kind == "folder" or _is_clobbered(layout, path):
            continue
        if entry.kind not in layout.kinds.get(path, ()):
            raise CondaError(f"the environment contains {_shown(path)} ({entry.kind}), which no package lists")
        if entry.kind == "link" and entry.target not in layout.links[path]:
            raise CondaError(f"the link {_shown(path)} points to {_shown(entry.target)}, which no package lists")
    moved = {path.split("/", 2)[2] for path in found if _is_clobbered(layout, path)}
    wanted = (path for path, kinds in layout.kinds.items() if kinds != {"folder"})
    lost = next((path for path in wanted if path not in found and path not in moved), None)
    if lost is not None:
        raise CondaError(f"{_shown(lost)} is listed by a package but missing from the environment")


def _is_clobbered(layout: CondaLayout, path: str) -> bool:
    first, _, rest = path.partition("/")
    name, _, place = rest.partition("/")
    return first == CLOBBERS and place in layout.owners.get(name, ())


class TarMember(Protocol):
    """The attributes of tarfile.TarInfo that are used here."""

    name: str
    mode: int
    linkname: str

    def isreg(self) -> bool: ...
    def issym(self) -> bool: ...
    def isdir(self) -> bool: ...


def member_entry(member: TarMember) -> CondaEntry:
    kind = "file" if member.isreg() else "link" if member.issym() else "folder" if member.isdir() else "special"
    return CondaEntry(member.name, kind, member.mode, member.linkname)


def check_members(entries: Iterable[CondaEntry], root: str) -> None:
    """Reject an environment archive that contains anything but files, folders, and links that stay within root.

    Raises CondaError.
    """
    known = list(entries)
    links = {entry.path: {entry.target: ""} for entry in known if entry.kind == "link"}
    seen: set[str] = set()
    for entry in known:
        where = _shown(entry.path)
        if not _plain(entry.path) or entry.path in seen:
            raise CondaError(f"{where} is an invalid or duplicate path")
        seen.add(entry.path)
        if entry.kind == "special" or entry.mode & _SET_ID:
            raise CondaError(f"{where} is not a regular file, a symbolic link or a directory")
        if any(above in links for above in _above(entry.path)):
            raise CondaError(f"{where} is below a link")
        if entry.kind == "link" and leads_out(links, entry.path, entry.target, root):
            raise CondaError(f"the link {where} points outside the environment (to {_shown(entry.target)})")


def leads_out(links: Mapping[str, Mapping[str, str]], path: str, target: str, root: str = "") -> bool:
    """Return whether a link leads out of its folder, directly or through other links.

    links: the targets of each link. root: path of the folder itself; with "", every absolute target leads out.
    """
    start = tuple(path.split("/")[:-1])
    left = [_begun(start, target, (), root)]
    for _ in range(MOST_STEPS):
        if not left:
            return False
        step = left.pop()
        if step is None:
            return True
        here, rest = step
        if not rest:
            continue
        name, *more = rest
        if name == "..":
            left.append((here[:-1], tuple(more)) if here else None)
        elif (there := "/".join((*here, name))) in links:
            left += [_begun(here, each, tuple(more), root) for each in links[there]]
        else:
            left.append(((*here, name), tuple(more)))
    return True  # a loop, or too long to follow


_Step = tuple[tuple[str, ...], tuple[str, ...]]


def _begun(here: tuple[str, ...], target: str, rest: tuple[str, ...], root: str) -> _Step | None:
    """Return the folder from which a link's target is followed, and the parts of the target; None if the target leads
    out.
    """
    if target.startswith("/"):
        if not root or not f"{target}/".startswith(f"{root.rstrip('/')}/"):
            return None
        here, target = (), target[len(root.rstrip("/")) :]
    return here, (*(part for part in target.split("/") if part not in {"", "."}), *rest)


def _plain(path: Any) -> bool:
    """Return whether all programs interpret the path in the same way. py-rattler treats a backslash as a slash."""
    if not isinstance(path, str) or "\\" in path or "\0" in path:
        return False
    return not {"", ".", ".."} & set(path.split("/"))


def _above(path: str) -> Iterator[str]:
    while (cut := path.rfind("/")) > 0:
        path = path[:cut]
        yield path


def _shown(value: Any) -> str:
    return ascii(value)[:200]
