"""Messages to the nodes of a launch, which are handled as the launch's user. User launches are managed without root."""

from __future__ import annotations

from typing import Any

from muster_controller.nodes.messages import Messages

LOOKS = ("look", "logs")  # verbs without root, except for another user's launch


class LaunchMessages(Messages):
    """own: whether this is a user launch. as_root: whether only root can read the launch, because it belongs to a user
    other than the login user. user: the only user that can manage a user launch, once the user is known. by_root: nodes
    on which the login user is another user, so that root must become the launch's user first."""

    own = False
    as_root = False
    user = ""
    by_root: frozenset[str] = frozenset()

    def ask(self, node: str, verb: str, payload: dict[str, Any], *, privileged: bool = False, **how: Any) -> None:
        privileged = node in self.by_root if self.own else privileged or (self.as_root and verb in LOOKS)
        whose = {"own": self.own, "as": self.user}
        super().ask(node, verb, {**payload, **whose}, privileged=privileged, **how)
