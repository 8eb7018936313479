"""A node, or the way to it, is gone."""

from __future__ import annotations

from damage import cut_off, go_on, is_cut, pause, reconnect, silent, switch_off, switch_on
from row import Row

ROWS = (
    Row(
        "access-paused",
        "a node freezes as a whole",
        "access",
        right=("access.hangs @ node2",),
        twin="stopped answering",
        strike=pause("node2"),
        proof=silent("node2"),
        undo=go_on("node2"),
    ),
    Row(
        "access-off",
        "a node is switched off",
        "access",
        right=("access.host_down @ node2",),
        twin="stopped answering",
        strike=switch_off("node2"),
        proof=silent("node2"),
        undo=switch_on("node2"),
    ),
    Row(
        "access-ssh",
        "ssh to a node is cut off; its ranks go on",
        "access",
        right=("access.ssh_down @ node2",),
        twin="stopped answering",
        strike=cut_off("node2", "tcp dport 22"),
        proof=is_cut("node2"),
        undo=reconnect("node2"),
    ),
)
