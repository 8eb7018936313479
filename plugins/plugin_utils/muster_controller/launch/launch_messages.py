"""Messages to the nodes of a launch: each says whose it is, and what is somebody's own is done without root."""

from __future__ import annotations

from typing import Any

from muster_controller.nodes.messages import Messages

LOOKS = ("look", "logs")  # that need no root, but for what somebody else has begun


class LaunchMessages(Messages):
    """own: whether it is somebody's own launch. as_root: whether root alone may look, since who began it logs in by
    another name. user: as whom alone the nodes may deal with an own launch, once that is settled. by_root: the nodes on
    which another account logs in, so that root becomes that user first."""

    own = False
    as_root = False
    user = ""
    by_root: frozenset[str] = frozenset()

    def ask(self, node: str, verb: str, payload: dict[str, Any], *, privileged: bool = False, **how: Any) -> None:
        privileged = node in self.by_root if self.own else privileged or (self.as_root and verb in LOOKS)
        whose = {"own": self.own, "as": self.user}
        super().ask(node, verb, {**payload, **whose}, privileged=privileged, **how)
