"""Find the inventory of a cluster: by name, by path, or the only one."""

from __future__ import annotations

import difflib
import os
import re
from pathlib import Path

APP = "muster"
INSTALLED = "project"  # name of the project's folder within an installed package
FILES = ("hosts.yml", "hosts.yaml", "hosts", "hosts.ini")
# An address of the sample inventory, which belongs to nobody, outside of comments.
SAMPLE = re.compile(r"^[^#\n]*\b198\.51\.100\.", re.MULTILINE)
SANDBOX = "sandbox"


class UnknownClusterError(Exception):
    """No cluster, or several, for what was asked. The text is a sentence with the fix."""


def xdg(variable: str, default: str) -> Path:
    """Return a folder of the XDG base directory specification, for this command."""
    given = os.environ.get(variable, "")
    return (Path(given) if given.startswith("/") else Path.home() / default) / APP


def own() -> Path:
    """Return the folder of the user's inventories."""
    return xdg("XDG_CONFIG_HOME", ".config") / "clusters"


def state(project: Path) -> Path:
    """Return the folder that holds artifacts: the checkout itself, or the user's folder for an installed command."""
    return xdg("XDG_STATE_HOME", ".local/state") if project.name == INSTALLED else project


def registered(project: Path) -> dict[str, Path]:
    """Return the inventory folders by the name of their cluster: those of the user, and those in a checkout."""
    folders = [own(), project / "inventory"]
    found: dict[str, Path] = {}
    for folder in folders:
        for one in sorted(folder.iterdir()) if folder.is_dir() else ():
            files = [one / name for name in FILES if (one / name).is_file()]
            if files and not any(is_sample(file) for file in files):
                found.setdefault(one.name, one)
    return found


def is_sample(file: Path) -> bool:
    return bool(SAMPLE.search(file.read_text(encoding="utf-8", errors="replace")))


def choices(found: dict[str, Path]) -> dict[str, Path]:
    """Return the clusters that come into question if none is named: the sandbox only if there is no other."""
    return {name: path for name, path in found.items() if name != SANDBOX} or found


def chosen(asked: str, found: dict[str, Path]) -> Path:
    """Return the inventory to use. asked: a name or a path; "" for the only one. Raises UnknownClusterError."""
    if asked:
        if asked in found:
            return found[asked]
        if "/" in asked or asked.startswith("."):
            if Path(asked).exists():
                return Path(asked)
            raise UnknownClusterError(
                f"{asked} does not exist. Give the path of an inventory, or the name of a cluster."
            )
        near = difflib.get_close_matches(asked, found, 1)
        hint = f" Did you mean {near[0]}?" if near else ""
        hint += (
            " The inventory lab of a checkout counts once its sample addresses are replaced." if asked == "lab" else ""
        )
        raise UnknownClusterError(f"There is no cluster {asked}.{hint} Clusters: {', '.join(found) or 'none'}.")
    found = choices(found)
    if len(found) == 1:
        return next(iter(found.values()))
    if found:
        raise UnknownClusterError(f"There are several clusters: {', '.join(found)}. Choose one with -c NAME.")
    raise UnknownClusterError("There is no cluster yet. Create one with: muster init NAME --nodes gpu[01-04]")
