"""Compare footprints of machines with the names on the page docs/changes.md."""

from __future__ import annotations

import json
import subprocess
import sys
from fnmatch import fnmatchcase
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from paths import ROOT

if TYPE_CHECKING:
    from collections.abc import Mapping

STAYS = "stays"
# The kinds of the page by the subjects of a footprint.
KINDS = {
    "file": ("file", "sshd", "environment"),
    "package": ("package",),
    "unit": ("unit",),
    "active": ("unit",),
    "account": ("account",),
    "group": ("account",),
    "setting": ("sysctl",),
    "rules": ("firewall",),
    "listener": ("listener",),
}
Names = dict[str, list[str]]


def page() -> dict[str, Names]:
    """Return the names on the page by role and kind. What stays has the key STAYS."""
    argv = [sys.executable, str(ROOT / "script/changes.py"), "--names"]
    done = subprocess.run(argv, check=True, capture_output=True, text=True)
    return {role: {kind: [*names] for kind, names in kinds.items()} for role, kinds in json.loads(done.stdout).items()}


def of_roles(owned: Mapping[str, Names]) -> Names:
    """Return what is different while Muster is on a machine, by kind. What packages bring is among what stays."""
    found: Names = {}
    for role, kinds in owned.items():
        for kind, names in kinds.items():
            if role != STAYS or kind in ("file", "unit", "account", "listener"):
                found.setdefault(kind, []).extend(names)
    return found


def is_declared(key: str, names: Names) -> bool:
    """Return whether a subject of a footprint is on the page, or is a folder of such files."""
    subject, _, name = key.partition(" ")
    if subject == "setting":
        name = name.removeprefix("/proc/sys/").replace("/", ".")
    elif subject == "listener":
        proto, _, port = name.split()
        name = f"{port}/{proto.removesuffix('6')}"
    patterns = [one for kind in KINDS[subject] for one in names.get(kind, ())]
    folders = [folder for one in patterns for folder in PurePosixPath(one).parents] if subject == "file" else []
    return any(fnmatchcase(name, one) for one in patterns) or any(
        PurePosixPath(name).match(str(folder)) for folder in folders if folder.is_absolute() and folder.name
    )
