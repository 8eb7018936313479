"""Nodes that are this machine: stands in for the connections to them; their programs run here."""

from __future__ import annotations

import shlex
import subprocess
import sys
from dataclasses import dataclass

from muster_controller.playbook.node_error import NodeError

OWN = "/THIS-NODE"  # what a path begins with that is another one on each node


@dataclass(frozen=True)
class Here:
    """Stands in for the connection to a node: its program runs here. broken: verbs that it does not answer. folder:
    in which paths lie that begin with OWN."""

    name: str
    calls: list[tuple[str, str]]
    broken: tuple[str, ...] = ()
    folder: str = ""

    def python(self, arguments: str, text: bytes, *, privileged: bool) -> tuple[int, str, str]:
        assert privileged
        verb = arguments.rpartition(" ")[2]
        self.calls.append((self.name, verb))
        if verb in self.broken:
            raise NodeError("Connection timed out", reachable=False)
        argv = [sys.executable, *shlex.split(arguments)]
        text = text.replace(f'"{OWN}'.encode(), f'"{self.folder}'.encode())
        done = subprocess.run(argv, input=text, capture_output=True, timeout=60, check=False)
        return done.returncode, done.stdout.decode(), done.stderr.decode()
