"""What the controller's side needs of any way to a node; Ansible's is connection.py, the one between nodes is in
detached/watcher.py."""

from __future__ import annotations

from typing import Protocol

from muster.verdict.printable import printable

from .foreign import foreign


class NodeError(Exception):
    """The node could not be asked, or did not answer sensibly. `reachable` says which."""

    def __init__(self, message: str, *, reachable: bool) -> None:
        super().__init__(message)
        self.reachable = reachable


class Way(Protocol):
    """To one node; Program runs programs through it."""

    @property
    def name(self) -> str: ...

    def python(self, arguments: str, text: bytes, *, privileged: bool) -> tuple[int, str, str]:
        """Run the node's Python with this on standard input: its code, and what it said on both. Raises NodeError."""

    def beside(self) -> Way:
        """Another one to the same node, which another thread may use meanwhile."""


def one_line(text: str) -> str:
    """The last lines of a message on one printable line, without Ansible's preamble: the reason comes last."""
    foreign(text)
    reason = text.rpartition("can be reached over ssh: ")[2]
    return " ".join(" ".join(printable(line).split()) for line in reason.strip().splitlines()[-3:])[-400:]
