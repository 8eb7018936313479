"""Runs programs on nodes from the controller.

    LAUNCH = NodeProgram("launch")  # plugins/module_utils/muster_node/programs/launch.py and the tools it imports
    facts = LAUNCH.call(connection, "prepare", {...}, privileged=True)

A program is piped into the node's own Python (3.10+, `-I -S`: the standard library alone), with a verb as argument and
a JSON payload after it on standard input. It prints a JSON object as its last line. The payload is never an argument,
because every user of the node can read arguments.

Every program can also be run manually, on any machine with a copy of the folder muster_node:

    cd plugins/module_utils
    printf '{"path": "/etc/ssh/sshd_config"}' | python3 -S -m muster_node.programs.sshd look

or in the packed form that is sent to the node:

    python3 -c 'import muster_node.tools.pack as p; print(p.pack("muster_node.programs.sshd"))' > /tmp/sshd.py
    printf '{"path": "/etc/ssh/sshd_config"}' | python3 -I -S /tmp/sshd.py look
"""

from __future__ import annotations

import shlex
import threading
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from muster_controller.playbook.foreign import foreign
from muster_controller.playbook.node_error import NodeError, one_line
from muster_node.tools.pack import framed, sent
from muster_node.tools.program import BOOTSTRAP, answer_in

if TYPE_CHECKING:
    from muster_controller.playbook.node_error import Way


PACKING = threading.Lock()


@dataclass(frozen=True)
class NodeProgram:
    """name: the file in muster_node/programs or in another package of muster_node. The program is packed once for all
    threads, when it is first sent."""

    name: str
    room: str = "programs"

    def __post_init__(self) -> None:
        if find_spec(self.module) is None:
            raise ModuleNotFoundError(f"unknown program {self.name}", name=self.module)

    @property
    def module(self) -> str:
        return f"muster_node.{self.room}.{self.name}"

    def call(self, connection: Way, verb: str, payload: dict[str, Any], *, privileged: bool) -> dict[str, Any]:
        """Run the program on the node and return the JSON object that it prints. Raises NodeError."""
        with PACKING:
            framed(self.module)
        command = f"-I -S -c {shlex.quote(BOOTSTRAP)} {verb}"
        code, out, err = connection.python(command, sent(self.module, payload), privileged=privileged)
        found = answer_in(out)
        if found is None:
            said = one_line(err) or one_line(out) or "no output"
            raise NodeError(f"{verb} failed with exit code {code}: {said}", reachable=True)
        foreign(found)
        return found
