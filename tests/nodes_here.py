"""Stub for the connections to nodes that runs node programs on this machine."""

from __future__ import annotations

import shlex
import subprocess
import sys
from dataclasses import dataclass

from muster_controller.playbook.node_error import NodeError

OWN = "/THIS-NODE"  # prefix of paths that differ by node


@dataclass(frozen=True)
class Here:
    """Stub for the connection to a node that runs node programs on this machine. broken: verbs that get no answer.
    folder: path that replaces the path prefix OWN.
    """

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
