"""The ways of a watcher on the head node to the nodes of its launch: ssh between them, and this node itself."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from muster_controller.playbook.node_error import NodeError, one_line
from muster_node.launch.mesh import environment, log_in
from muster_node.tools.run import run

SECONDS = 900.0  # behind those that systemd has to stop a unit; ssh itself finds out much sooner that a node is gone
MOST = 64_000_000  # bytes of an answer
NO_LOGIN = 255  # how ssh ends where it came to nothing


@dataclass(frozen=True)
class Login:
    """To another node, by a connection that is shared. control: the path of its socket."""

    name: str
    address: str
    interpreter: str
    control: str

    def python(self, arguments: str, text: bytes, *, privileged: bool) -> tuple[int, str, str]:
        _refuse(self.name, privileged=privileged)
        shared = ("ControlMaster=auto", f"ControlPath={self.control}", "ControlPersist=60")
        command = f"{self.interpreter} {arguments}"
        done = log_in(self.address, command, text, options=shared, seconds=SECONDS, most=MOST)
        if done.code is None or done.code == NO_LOGIN:
            raise NodeError(one_line(done.aside or done.why), reachable=False)
        return done.code, done.text, done.aside

    def beside(self) -> Login:
        """Each command is a session of its own."""
        return self


@dataclass(frozen=True)
class Here:
    """To this node."""

    name: str
    interpreter: str

    def python(self, arguments: str, text: bytes, *, privileged: bool) -> tuple[int, str, str]:
        _refuse(self.name, privileged=privileged)
        words = shlex.split(arguments)
        done = run(self.interpreter, *words, stdin=text, seconds=SECONDS, env=environment(), most=MOST)
        if done.code is None:
            raise NodeError(one_line(done.why), reachable=True)
        return done.code, done.text, done.aside

    def beside(self) -> Here:
        return self


def _refuse(name: str, *, privileged: bool) -> None:
    if privileged:
        raise NodeError(f"nobody is root on {name} in somebody's own launch", reachable=True)
