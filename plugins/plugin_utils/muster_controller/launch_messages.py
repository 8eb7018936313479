"""Messages to the nodes of a launch: each says whose it is, and what is somebody's own is done without root."""

from __future__ import annotations

from typing import Any

from .messages import Messages


class LaunchMessages(Messages):
    """own: whether it is somebody's own launch."""

    own = False

    def ask(self, node: str, verb: str, payload: dict[str, Any], *, privileged: bool = False, **how: Any) -> None:
        super().ask(node, verb, {**payload, "own": self.own}, privileged=privileged and not self.own, **how)
