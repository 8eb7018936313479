"""What others need in order to reach a node, asked of the administrator's own ssh; no node is contacted."""

from __future__ import annotations

import getpass
from typing import TYPE_CHECKING, Any

from muster.network import known_hosts
from muster.share import Hop, Shared

from .first_contact import End, Road, read, settings_file, split_port, where_it_ends

if TYPE_CHECKING:
    from collections.abc import Mapping


def shared(road: Road, values: Mapping[str, Any], project: str) -> Shared:
    """project: the known_hosts of the inventory."""
    if road.arguments is None:
        why = f"it is reached by the connection {road.host}, which nobody else has: give it an address for ssh"
        return Shared(road.node, error=why)
    end = where_it_ends(road, project)
    if end.error:
        return Shared(road.node, error=end.error)
    return Shared(
        name=road.node,
        host=end.hostname,
        port=end.port,
        values=values,
        keys=known(end),
        hops=tuple(hop(road, text, project) for text in end.jump),
        command=end.command,
    )


def known(end: End) -> tuple[known_hosts.Key, ...]:
    """The keys by which ssh knows the end of a way; none that was revoked."""
    entries = [entry for path in end.files for entry in known_hosts.entries(read(path), path) if entry.names(end.name)]
    revoked = {entry.key for entry in entries if entry.marker == "@revoked"}
    return tuple(dict.fromkeys(entry.key for entry in entries if not entry.marker and entry.key not in revoked))


def hop(road: Road, text: str, project: str) -> Hop:
    """A machine on the way, by its real address, and without the administrator's name on it."""
    place, port = split_port(text.removeprefix("ssh://").rpartition("@")[2])
    arguments = (*settings_file(road.arguments or ()), *(["-p", port] if port else []), "-l", getpass.getuser())
    end = where_it_ends(Road(place, place, arguments), project)
    return Hop(place, int(port or 22)) if end.error else Hop(end.hostname, end.port, known(end))
