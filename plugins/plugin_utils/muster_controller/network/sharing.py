"""Collects the connection settings that other users need to reach a node, from the administrator's ssh configuration.
Contacts no node."""

from __future__ import annotations

import getpass
from typing import TYPE_CHECKING, Any

from muster.network import known_hosts
from muster.share import HEAD, NAMES, Hop, SharedNode, unknown
from muster.verdict.words import few
from muster_controller.playbook.trusted import trusted_writers
from muster_node.tools import files, trust

from .first_contact import End, Road, read, settings_file, split_port, where_it_ends

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

ANOTHER = "choose another folder with -e share_to=FOLDER"


def shared(road: Road, values: Mapping[str, Any], project: str) -> SharedNode:
    """Return the connection settings to share for a node. project: the known_hosts file of the inventory."""
    if road.arguments is None:
        why = f"the connection {road.host} works only on the controller: set an address for SSH"
        return SharedNode(road.node, error=why)
    end = where_it_ends(road, project)
    if end.error:
        return SharedNode(road.node, error=end.error)
    return SharedNode(
        name=road.node,
        host=end.hostname,
        port=end.port,
        values=values,
        keys=known(end),
        hops=tuple(hop(road, text, project) for text in end.jump),
        command=end.command,
    )


def known(end: End) -> tuple[known_hosts.HostKey, ...]:
    """Return the known keys of a host, without revoked keys."""
    entries = [entry for path in end.files for entry in known_hosts.entries(read(path), path) if entry.names(end.name)]
    revoked = {entry.key for entry in entries if entry.marker == "@revoked"}
    return tuple(dict.fromkeys(entry.key for entry in entries if not entry.marker and entry.key not in revoked))


def hop(road: Road, text: str, project: str) -> Hop:
    """Return a jump host with its real address, without the administrator's user name."""
    place, port = split_port(text.removeprefix("ssh://").rpartition("@")[2])
    arguments = (*settings_file(road.arguments or ()), *(["-p", port] if port else []), "-l", getpass.getuser())
    end = where_it_ends(Road(place, place, arguments), project)
    return Hop(place, int(port or 22)) if end.error else Hop(end.hostname, end.port, known(end))


def in_the_way(folder: Path) -> list[str]:
    """Return why the inventory folder cannot be written: other users can change it, or it contains other files. folder:
    the absolute path as given, with links."""
    for path in (folder, *(folder / name for name in NAMES)):
        if sentence := trust.foreign_writer(str(path), trusted=trusted_writers()):
            how = f"remove this permission (chmod go-w, chown), or {ANOTHER}"
            return [f"{sentence}, and could change what runs for all users of {folder}: {how}."]
    if not folder.exists():
        return []
    if not folder.is_dir():
        return [f"{folder} is not a folder: {ANOTHER}."]
    others = [name for name in NAMES[:2] if (folder / name).exists() and not read(str(folder / name)).startswith(HEAD)]
    found = [f"{folder} has {name}, which this playbook did not write: {ANOTHER}." for name in others]
    if names := unknown(path.name for path in folder.iterdir()):
        what = f"{folder} has {few(names)}, which Ansible may read with the inventory"
        found.append(f"{what}: remove {'it' if len(names) == 1 else 'them'}, or {ANOTHER}.")
    return found


def write(folder: Path, texts: Mapping[str, str]) -> None:
    """Write files that all users can read and only this user can write. folder: the absolute path, without links."""
    trust.make_folder(str(folder), trusted=trusted_writers())
    with files.folder(str(folder)) as handle:
        for name, text in texts.items():
            files.replace(name, text.encode(), mode=0o644, within=handle)
