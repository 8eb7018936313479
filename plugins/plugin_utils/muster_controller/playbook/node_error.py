"""The interface of connections to nodes. Ansible's connection is in connection.py, the one between nodes in
detached/watcher.py."""

from __future__ import annotations

from typing import Protocol

from muster.verdict.printable import printable

from .foreign import foreign


class NodeError(Exception):
    """The node is not reachable, or its response is invalid; `reachable` tells which."""

    def __init__(self, message: str, *, reachable: bool) -> None:
        super().__init__(message)
        self.reachable = reachable


class Way(Protocol):
    """A connection to one node. Programs run through it."""

    @property
    def name(self) -> str: ...

    def python(self, arguments: str, text: bytes, *, privileged: bool) -> tuple[int, str, str]:
        """Run the node's Python with this standard input. Return exit code, stdout and stderr. Raises NodeError."""

    def beside(self) -> Way:
        """Return another connection to the same node for use in another thread."""


def one_line(text: str) -> str:
    """Return the last lines of a message as one printable line without Ansible's preamble. The reason comes last."""
    foreign(text)
    reason = text.rpartition("can be reached over ssh: ")[2]
    return " ".join(" ".join(printable(line).split()) for line in reason.strip().splitlines()[-3:])[-400:]
