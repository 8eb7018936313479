"""The interface of connections to nodes. connection.py implements it with Ansible, and detached/watcher.py between
nodes."""

from __future__ import annotations

from typing import Protocol

from muster.verdict.printable import printable

from .foreign import foreign


class NodeError(Exception):
    """The node is not reachable (`reachable` is false), or its response is invalid (true)."""

    def __init__(self, message: str, *, reachable: bool) -> None:
        super().__init__(message)
        self.reachable = reachable


class Way(Protocol):
    """A connection to one node, through which programs run."""

    @property
    def name(self) -> str: ...

    def python(self, arguments: str, text: bytes, *, privileged: bool) -> tuple[int, str, str]:
        """Run Python on the node with this standard input. Return exit code, stdout and stderr. Raises NodeError."""

    def beside(self) -> Way:
        """Return another connection to the same node for use in another thread."""


def one_line(text: str) -> str:
    """Return the last lines of a message, which contain the reason, as one printable line without Ansible's
    preamble."""
    foreign(text)
    reason = text.rpartition("can be reached over ssh: ")[2]
    return " ".join(" ".join(printable(line).split()) for line in reason.strip().splitlines()[-3:])[-400:]
