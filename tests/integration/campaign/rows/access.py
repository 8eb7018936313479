"""Rows in which a node, or SSH access to a node, is lost."""

from __future__ import annotations

from damage import cut_off, go_on, packets_are_dropped, pause, reconnect, silent, switch_off, switch_on
from row import Row

ROWS = (
    Row(
        "access-paused",
        "a node is frozen",
        right=("access.hangs @ node2",),
        twin="stopped answering",
        strike=pause("node2"),
        proof=silent("node2"),
        undo=go_on("node2"),
    ),
    Row(
        "access-off",
        "a node is switched off",
        right=("access.host_down @ node2",),
        twin="stopped answering",
        strike=switch_off("node2"),
        proof=silent("node2"),
        undo=switch_on("node2"),
    ),
    Row(
        "access-ssh",
        "SSH to a node is blocked; its ranks keep running",
        right=("access.ssh_down @ node2",),
        twin="stopped answering",
        strike=cut_off("node2", "tcp dport 22"),
        proof=packets_are_dropped("node2"),
        undo=reconnect("node2"),
    ),
)
