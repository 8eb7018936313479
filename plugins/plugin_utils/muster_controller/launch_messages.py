"""Messages to the nodes of a launch: each says whose it is, and what is somebody's own is done without root."""

from __future__ import annotations

from typing import Any

from .messages import Messages

LOOKS = ("look", "logs")  # that need no root, but for what somebody else has begun


class LaunchMessages(Messages):
    """own: whether it is somebody's own launch. as_root: whether root alone may look, since who began it logs in by
    another name."""

    own = False
    as_root = False

    def ask(self, node: str, verb: str, payload: dict[str, Any], *, privileged: bool = False, **how: Any) -> None:
        privileged = (privileged or (self.as_root and verb in LOOKS)) and not self.own
        super().ask(node, verb, {**payload, "own": self.own}, privileged=privileged, **how)
