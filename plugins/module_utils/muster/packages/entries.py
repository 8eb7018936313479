"""Parse apt's source files, and record the positions of the URLs so that only the URLs are replaced.

Muster changes only entries of the distribution itself, and only in the files that the distribution ships.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Mapping

# File names that installers of Debian and Ubuntu, their cloud images and mmdebstrap use for their own entries.
STOCK_FILES = (
    "/etc/apt/sources.list",
    "/etc/apt/sources.list.d/ubuntu.sources",
    "/etc/apt/sources.list.d/debian.sources",
    "/etc/apt/sources.list.d/0000sources.sources",
)
_ARCHIVES = {"ubuntu": ("ubuntu", "ubuntu-ports"), "debian": ("debian", "debian-security")}
_COMPONENTS = {
    "ubuntu": {"main", "restricted", "universe", "multiverse"},
    "debian": {"main", "contrib", "non-free", "non-free-firmware"},
}
# Parent folders of an archive on mirrors. Third-party repositories may also end with /ubuntu, for example those of
# Launchpad and ROS.
_ON_THE_WAY = {"pub", "linux", "mirror", "mirrors", "os"}
_SUITE = re.compile(r"[a-z]+(-(updates|security|backports|proposed|proposed-updates))?")
_STANZA = re.compile(r"(?:^[^\n]*\S[^\n]*(?:\n|\Z))+", re.MULTILINE)
_FIELD = re.compile(r"^([\w-]+):[ \t]*([^\n]*(?:\n[ \t]+[^\n]+)*)", re.MULTILINE)
_LINE = re.compile(r"^[ \t]*(deb|deb-src)[ \t]+(?:\[([^\]\n]*)\][ \t]+)?(\S+)[ \t]+(\S+)([^#\n]*)", re.MULTILINE)


@dataclass(frozen=True)
class SourceEntry:
    """An enabled entry. start, end: position of its URLs in the text. key: all fields except the URLs."""

    start: int
    end: int
    addresses: str
    suites: tuple[str, ...]
    components: tuple[str, ...]
    signed_by: str
    key: tuple[str, ...]

    @property
    def uris(self) -> tuple[str, ...]:
        return tuple(self.addresses.split())

    @property
    def is_security(self) -> bool:
        return all(suite.endswith("-security") for suite in self.suites)

    def is_of(self, distribution: str) -> bool:
        """Return whether the archive, suites, components and keyring are those of the distribution."""
        keyring = f"/usr/share/keyrings/{distribution}-archive-"
        return (
            bool(self.uris)
            and all(_is_archive(uri, distribution) for uri in self.uris)
            and all(_SUITE.fullmatch(suite) for suite in self.suites)
            and bool(self.components)
            and set(self.components) <= _COMPONENTS.get(distribution, set())
            and (not self.signed_by or self.signed_by.startswith(keyring))
        )


def entries(path: str, text: str) -> list[SourceEntry]:
    """Parse a source file of either format. Entries that differ only in their URLs are numbered."""
    found = _stanzas(text) if path.endswith(".sources") else _lines(text)
    counted: Counter[tuple[str, ...]] = Counter()
    for number, entry in enumerate(found):
        counted[entry.key] += 1
        found[number] = replace(entry, key=(*entry.key, str(counted[entry.key])))
    return found


def retargeted(path: str, text: str, saved: str | None, distribution: str, archive: str, security: str) -> str:
    """Return the text with new URLs in the distribution's own entries; "" keeps the original URLs.

    saved: the text before Muster's first change. The entries in it are recognized even if their URLs were changed
    later.
    """
    before = originals(path, saved, distribution) if saved is not None else {}

    def address(entry: SourceEntry) -> str:
        wanted = security if entry.is_security else archive
        if entry.key in before:
            return wanted or before[entry.key]
        return wanted if wanted and entry.is_of(distribution) else entry.addresses

    for entry in reversed(entries(path, text)):
        text = text[: entry.start] + address(entry) + text[entry.end :]
    return text


def originals(path: str, text: str, distribution: str) -> Mapping[tuple[str, ...], str]:
    """Return the original URLs of the distribution's own entries."""
    return {entry.key: entry.addresses for entry in entries(path, text) if entry.is_of(distribution)}


def _stanzas(text: str) -> list[SourceEntry]:
    found = []
    for stanza in _STANZA.finditer(text):
        fields = {field[1].lower(): field for field in _FIELD.finditer(text, stanza.start(), stanza.end())}
        values = {name: " ".join(field[2].split()) for name, field in fields.items()}
        if "uris" not in fields or values.get("enabled", "yes").lower() in ("no", "false", "0"):
            continue
        start, end = fields["uris"].span(2)
        while end > start and text[end - 1].isspace():
            end -= 1
        key = tuple(f"{name}: {value}" for name, value in sorted(values.items()) if name != "uris")
        found.append(
            SourceEntry(
                start,
                end,
                text[start:end],
                tuple(values.get("suites", "").split()),
                tuple(values.get("components", "").split()),
                values.get("signed-by", ""),
                key,
            )
        )
    return found


def _lines(text: str) -> list[SourceEntry]:
    found = []
    for line in _LINE.finditer(text):
        kind, options, address, suite, rest = line.groups()
        signed = re.search(r"signed-by=(\S+)", options or "", re.IGNORECASE)
        key = (kind, " ".join((options or "").split()), suite, " ".join(rest.split()))
        start, end = line.span(3)
        found.append(SourceEntry(start, end, address, (suite,), tuple(rest.split()), signed[1] if signed else "", key))
    return found


def _is_archive(uri: str, distribution: str) -> bool:
    names = _ARCHIVES.get(distribution, ())
    try:
        parts = urlsplit(uri)
    except ValueError:
        return False
    if parts.scheme == "mirror+file":
        # Used by Debian's cloud images.
        return parts.path in (f"/etc/apt/mirrors/{name}.list" for name in names)
    way = [part for part in parts.path.split("/") if part]
    return parts.scheme in ("http", "https") and bool(way) and way[-1] in names and set(way[:-1]) <= _ON_THE_WAY
