"""What `apt-cache policy` says: which versions of a package there are, and which source has which."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

STATUS = "/var/lib/dpkg/status"  # the place of what is installed


def releases(files: str) -> dict[str, Mapping[str, str]]:
    """Read it without packages: each place and what its Release file says of it (o: origin, l: label, a: suite...).

    A mirror keeps these. A folder with packages has none.
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
    """Read it of packages: of each one every version, the newest first, with the places that have it."""
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
