"""Guards changes that could lock out the administrator of a node, and reverts them unless a new connection works.

    guard = Guard(self, host, task_vars, what="firewall")
    if guard.settle():                # an unconfirmed change from an interrupted run was reverted
        ...                           # so read the node's state again
    guard.change(
        files=["/etc/ssh/sshd_config.d/50-muster.conf"],   # on revert: restored, or deleted if they do not exist yet
        undo=[UndoCommand(["systemctl", "reload", "ssh"])],    # run after that
        apply=lambda: PROGRAM.call(node, "apply", {...}, privileged=True),
    )

The node arms a timer, the change is applied, and a new, independent connection with the inventory's settings confirms
it. If this fails, the timer reverts everything and `change` raises GuardError with a message for the user. The timer
also reverts if the controller dies. After a power failure, files are restored at boot, before the network is up. Roles
should check whether GUARD_ROOT/WHAT/state.json exists on the node. If it does, a change is unconfirmed, and `settle` is
required.

If the node is the controller itself (ansible_connection=local), no new SSH connection is needed to confirm the change.
"""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from muster_controller.nodes.connection import NodeConnection, connect
from muster_controller.nodes.program import NodeProgram
from muster_controller.playbook.node_error import NodeError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ansible.plugins.action import ActionBase

PROGRAM = NodeProgram("guard")
GUARD_ROOT = "/var/lib/muster/guard"
# New connections are retried until this many seconds before the timer, so that a confirmation does not race with it.
MARGIN = 12
# Seconds for the undo and a slow node.
PATIENCE = 60


class GuardError(Exception):
    """Raised if the change was not kept. undone: whether the node is in its previous state again."""

    def __init__(self, message: str, *, undone: bool) -> None:
        super().__init__(message)
        self.undone = undone


@dataclass(frozen=True)
class UndoCommand:
    """An undo command, run as root without a shell. text: the key of the saved text to pass on standard input."""

    argv: Sequence[str]
    text: str = ""


@dataclass(frozen=True)
class GuardedChange:
    """An applied but unconfirmed change. began: time on the monotonic clock, which is the same in all processes."""

    token: str
    began: float


class Guard:
    """Guard for one kind of change on one node. what: the kind, used in the names of units and folders."""

    def __init__(
        self, action: ActionBase, host: str, task_vars: Mapping[str, Any], what: str, seconds: int = 40
    ) -> None:
        self.action = action
        self.host = host
        self.task_vars = task_vars
        self.what = what
        self.seconds = seconds
        self.first = connect(action, host, task_vars)

    def settle(self) -> bool:
        """Undo an unconfirmed change of an interrupted run. Return whether there was such a change."""
        answer = self._ask(self.first, "undo")
        if answer["failed"]:
            raise GuardError(
                f"{self.host}: an earlier change of the {self.what} was not confirmed, and undoing it failed:"
                f" {'; '.join(answer['failed'])}. The previous state is in {GUARD_ROOT}/{self.what} on the node.",
                undone=False,
            )
        return bool(answer["undone"])

    def change(
        self,
        *,
        apply: Callable[[], object],
        files: Sequence[str] = (),
        texts: Mapping[str, str] | None = None,
        undo: Sequence[UndoCommand] = (),
        fix: str = "",
    ) -> None:
        """Apply the change and confirm it. fix: the end of the error message, with what the user can check or run."""
        self.keep(self.begin(apply=apply, files=files, texts=texts, undo=undo, fix=fix), fix)

    def begin(
        self,
        *,
        apply: Callable[[], object],
        files: Sequence[str] = (),
        texts: Mapping[str, str] | None = None,
        undo: Sequence[UndoCommand] = (),
        fix: str = "",
    ) -> GuardedChange:
        """Apply the change. The timer runs until `keep` or `take_back` is called, which another process can do."""
        token = secrets.token_hex(8)
        armed = self._ask(
            self.first,
            "arm",
            id=token,
            seconds=self.seconds,
            files=list(files),
            texts=dict(texts or {}),
            commands=[{"argv": list(command.argv), "text": command.text} for command in undo],
        )
        if not armed["armed"]:
            reason = armed.get("error") or "another run is changing it"
            raise GuardError(f"{self.host}: the {self.what} was not changed: {reason}.", undone=True)
        began = time.monotonic()
        try:
            apply()
        except NodeError as exc:
            self._undo_now()
            self._see_it_undone(token, began, f"the change failed on the node ({exc})", fix)
        except BaseException:
            self._undo_now()
            raise
        return GuardedChange(token, began)

    def keep(self, change: GuardedChange, fix: str = "") -> None:
        """Confirm the change with a new connection."""
        reason = self._confirm(change.token, change.began)
        if reason:
            why = f"a new connection failed after the change ({reason})"
            self._see_it_undone(change.token, change.began, why, fix)

    def take_back(self, change: GuardedChange, reason: str, fix: str = "") -> None:
        """Undo the change immediately, for a reason other than a failed connection. Always raises GuardError."""
        self._undo_now()
        self._see_it_undone(change.token, change.began, reason, fix)

    def _confirm(self, token: str, began: float) -> str:
        """Return why the change could not be confirmed, or ""."""
        reason = ""
        while True:
            try:
                stays = self._ask(self._fresh(), "confirm", id=token)["confirmed"]
            except NodeError as exc:
                reason = str(exc)
            else:
                return "" if stays else reason or f"the confirmation took longer than {self.seconds} seconds"
            time.sleep(1)
            if time.monotonic() - began > self.seconds - MARGIN:
                return reason

    def _see_it_undone(self, token: str, began: float, reason: str, fix: str) -> None:
        """Wait until the node is restored and reachable with a new connection. Always raises GuardError."""
        last = ""
        while time.monotonic() - began < self.seconds + PATIENCE:
            try:
                seen = self._ask(self._fresh(), "state")
            except NodeError as exc:
                last = str(exc)
            else:
                if seen["failed"]:
                    raise GuardError(
                        f"{self.host}: the change of the {self.what} could not be undone completely, because"
                        f" {'; '.join(seen['failed'])}. Reason for the undo: {reason}."
                        f" The previous state is in {GUARD_ROOT}/{self.what} on the node.",
                        undone=False,
                    )
                if not seen["armed"] or seen["id"] != token:
                    raise GuardError(
                        f"{self.host}: the change of the {self.what} was undone, because {reason}."
                        f" The node was restored and is reachable. {fix}".rstrip(),
                        undone=True,
                    )
            time.sleep(1)
        raise GuardError(
            f"{self.host}: the node does not respond ({last or 'the change is still in force'}). It should have undone"
            f" the change of the {self.what} after {self.seconds} seconds, because {reason}. Reboot the node"
            f" from its console to restore the previous state from {GUARD_ROOT}/{self.what}.",
            undone=False,
        )

    def _undo_now(self) -> None:
        try:
            self._ask(self.first, "undo")
        except NodeError:
            return  # the timer undoes the change

    def _fresh(self) -> NodeConnection:
        return connect(self.action, self.host, self.task_vars, fresh=True)

    def _ask(self, connection: NodeConnection, verb: str, **payload: Any) -> dict[str, Any]:
        return PROGRAM.call(connection, verb, {"what": self.what, **payload}, privileged=True)
