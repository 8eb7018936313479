"""An apt repository: its files, its signing key, and the versions that `apt-cache policy` lists."""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

HEAD = "# Written by Muster (role gpu_stack).\n"
OFF = ("no", "false", "without", "off", "disable", "0")  # values that apt treats as false
# Path endings of the distributions' archives and their mirrors.
ARCHIVES = ("/debian", "/ubuntu", "/ubuntu-ports")
_ARMOUR = re.compile(rb"-----BEGIN PGP PUBLIC KEY BLOCK-----\r?\n(.*?)-----END PGP PUBLIC KEY BLOCK-----", re.DOTALL)
_PUBLIC_KEY = 6  # packet tag (RFC 4880, 4.3)
STATUS = "/var/lib/dpkg/status"  # listed as the source of installed packages


class KeyFileError(ValueError):
    """The downloaded file is not a signing key."""


@dataclass(frozen=True)
class AptRepository:
    """A package repository.

    suites: "/" for a flat repository, which has no components. keyring: an existing keyring of the system; "" for all
    keys that apt trusts; None to store the repository's key in a separate file. That key must have one of the
    fingerprints; an empty list allows any key. label, priority: for apt pinning. With a negative priority, packages of
    the repository are not installed.
    """

    name: str
    uri: str
    suites: tuple[str, ...] = ("/",)
    components: tuple[str, ...] = ()
    fingerprints: tuple[str, ...] = ()
    keyring: str | None = None
    label: str = ""
    priority: int = 0

    @property
    def sources_path(self) -> str:
        return f"/etc/apt/sources.list.d/muster-{self.name}.sources"

    @property
    def key_path(self) -> str:
        return f"/etc/apt/keyrings/muster-{self.name}.asc"

    @property
    def preferences_path(self) -> str:
        return f"/etc/apt/preferences.d/muster-{self.name}"

    @property
    def texts(self) -> dict[str, str]:
        """Return the contents of the files by path, without the key."""
        lines = ["Types: deb", f"URIs: {self.uri}", f"Suites: {' '.join(self.suites)}"]
        if self.components:
            lines.append(f"Components: {' '.join(self.components)}")
        if self.keyring != "":
            lines.append(f"Signed-By: {self.keyring or self.key_path}")
        files = {self.sources_path: HEAD + "\n".join(lines) + "\n"}
        if self.priority:
            pin = f"Package: *\nPin: release l={self.label}\nPin-Priority: {self.priority}\n"
            files[self.preferences_path] = HEAD + pin
        return files

    @property
    def list_names(self) -> tuple[str, ...]:
        """Return the names of the files in which apt stores the package lists of the repository, one for each suite."""
        plain = re.sub(r"^\w+:/*", "", self.uri).rstrip("/").replace("_", "%5f").replace("/", "_")
        ends = ("" if suite == "/" else f"_dists_{suite.replace('/', '_')}" for suite in self.suites)
        return tuple(f"{plain}{end}_{form}" for end in ends for form in ("InRelease", "Release"))

    def lacks(self, files: Mapping[str, str]) -> list[str]:
        """Return the paths of the repository's files that differ from the expected state.

        files: present contents by path.
        """
        found = [path for path, text in self.texts.items() if files.get(path) != text]
        if self.keyring is None and not self.trusts(files.get(self.key_path, "").encode()):
            found.append(self.key_path)
        return found

    def trusts(self, key: bytes) -> bool:
        """Return whether all keys in the file have one of the allowed fingerprints."""
        try:
            there = fingerprints(key)
        except KeyFileError:
            return False
        return bool(there) and (not self.fingerprints or set(there) <= set(self.fingerprints))


@dataclass(frozen=True)
class AptSource:
    """An enabled entry in apt's sources, in either format."""

    path: str
    uris: tuple[str, ...]
    suites: tuple[str, ...] = ()
    components: tuple[str, ...] = ()
    signed_by: str = ""


def sources(path: str, text: str) -> Iterator[AptSource]:
    """Parse sources.list or a file in /etc/apt/sources.list.d. Only entries for binary packages are returned."""
    if path.endswith(".sources"):
        for stanza in re.split(r"\n\s*\n", text):
            lines = "\n".join(line for line in stanza.splitlines() if not line.startswith("#"))
            fields = {
                name.lower(): " ".join(value.split())
                for name, value in re.findall(r"^([\w-]+):((?:.*\n?)(?:[ \t].*\n?)*)", lines, re.MULTILINE)
            }
            if "deb" in fields.get("types", "").split() and fields.get("enabled", "").lower() not in OFF:
                uris, suites, components = (
                    tuple(fields.get(name, "").split()) for name in ("uris", "suites", "components")
                )
                yield AptSource(path, uris, suites, components, fields.get("signed-by", ""))
        return
    for line in text.splitlines():
        entry = re.match(r"deb\s+(?:\[(.*?)\]\s+)?(\S+)\s+(\S+)([^#]*)", line.strip())
        if entry:
            options, uri, suite, parts = entry.groups()
            signed = re.search(r"signed-by=(\S+)", options or "")
            yield AptSource(path, (uri,), (suite,), tuple(parts.split()), signed[1] if signed else "")


def same_uri(one: str, other: str) -> bool:
    return one.rstrip("/") == other.rstrip("/")


def foreign(repository: AptRepository, there: Iterable[AptSource]) -> AptSource | None:
    """Return an existing entry for the same packages. apt rejects two entries with the same URL and different keys."""
    others = [
        source
        for source in there
        if source.path != repository.sources_path and any(same_uri(uri, repository.uri) for uri in source.uris)
    ]
    lists = {(suite, part) for source in others for suite in source.suites for part in source.components or ("",)}
    wanted = {(suite, part) for suite in repository.suites for part in repository.components or ("",)}
    return others[0] if others and wanted <= lists else None


def of_archive(name: str, components: tuple[str, ...], there: Iterable[AptSource]) -> AptRepository | None:
    """Return the additional components of the distribution's archive, using the source of the component main."""
    main = [
        source
        for source in there
        if "main" in source.components and any(uri.rstrip("/").endswith(ARCHIVES) for uri in source.uris)
    ]
    if not main:
        return None
    first = main[0]
    # The one-line format has a separate line for each suite.
    alike = [source for source in main if (source.uris, source.signed_by) == (first.uris, first.signed_by)]
    suites = dict.fromkeys(suite for source in alike for suite in source.suites)
    return AptRepository(name, " ".join(first.uris), tuple(suites), components, keyring=first.signed_by)


def fingerprints(key: bytes) -> list[str]:
    """Return the fingerprints of the primary keys in a file, armoured or not (RFC 4880, 12.2)."""
    blocks = [_unarmoured(block) for block in _ARMOUR.findall(key)] or [key]
    return [
        # The standard requires SHA-1.
        hashlib.sha1(b"\x99" + len(body).to_bytes(2, "big") + body, usedforsecurity=False).hexdigest().upper()
        for block in blocks
        for tag, body in _packets(block)
        if tag == _PUBLIC_KEY
    ]


def _unarmoured(block: bytes) -> bytes:
    lines = block.replace(b"\r", b"").split(b"\n")
    # Optional headers end with an empty line; the last line is a checksum after a "=".
    body = lines[lines.index(b"") + 1 :] if b"" in lines[:-1] else lines
    try:
        return base64.b64decode(b"".join(line for line in body if not line.startswith(b"=")), validate=True)
    except binascii.Error as error:
        raise KeyFileError("the key is corrupt") from error


def _packets(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the tag and the body of each packet. Key packets never have partial lengths."""
    at = 0
    while at < len(data):
        head = data[at]
        if not head & 0x80:
            raise KeyFileError("not an OpenPGP key")
        try:
            if head & 0x40:
                tag, size, at = head & 0x3F, *_new_length(data, at + 1)
            else:
                width = 1 << (head & 3)
                tag, size = head >> 2 & 0xF, int.from_bytes(data[at + 1 : at + 1 + width], "big")
                at += 1 + width
        except IndexError as error:
            raise KeyFileError("the key is truncated") from error
        if at + size > len(data):
            raise KeyFileError("the key is truncated")
        yield tag, data[at : at + size]
        at += size


def _new_length(data: bytes, at: int) -> tuple[int, int]:
    first = data[at]
    if first < 192:
        return first, at + 1
    if first < 224:
        return (first - 192 << 8) + data[at + 1] + 192, at + 2
    return int.from_bytes(data[at + 1 : at + 5], "big"), at + 5


def releases(files: str) -> dict[str, Mapping[str, str]]:
    """Parse the output of `apt-cache policy` without package names: the Release fields of each source (o: origin, l:
    label, a: suite, ...).

    A mirror keeps these fields. A local folder of packages has none.
    """
    found: dict[str, Mapping[str, str]] = {}
    place = ""
    for line in files.splitlines():
        listed = re.match(r" *-?\d+ (\S.*)$", line)
        if listed:
            place = listed[1].strip()
        elif release := re.match(r" +release (.*)$", line):
            found[place] = dict(field.partition("=")[::2] for field in release[1].split(","))
    return found


def versions(packages: str) -> dict[str, dict[str, tuple[str, ...]]]:
    """Parse the output of `apt-cache policy` for packages: each version of a package, newest first, with the sources
    that offer it.
    """
    found: dict[str, dict[str, tuple[str, ...]]] = {}
    name = version = ""
    for line in packages.splitlines():
        if re.match(r"\S+:$", line):
            name = line[:-1]
        elif row := re.match(r" (?:\*\*\*|   ) (\S+) -?\d+$", line):
            version = row[1]
            found.setdefault(name, {})[version] = ()
        elif row := re.match(r" +-?\d+ (\S.*)$", line):
            there = found.setdefault(name, {})
            there[version] = (*there.get(version, ()), row[1].strip())
    return found
