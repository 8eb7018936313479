"""A change of a node that could cut its administrator off: it stays only when a new connection proves that it did not.

    guard = Guard(self, host, task_vars, what="firewall")
    if guard.settle():                # an interrupted run's change, which nobody confirmed, was undone first
        ...                           # so whatever was looked at before is to be looked at again
    guard.change(
        files=["/etc/ssh/sshd_config.d/50-muster.conf"],   # put back as they are now, or removed where not there
        undo=[UndoCommand(["systemctl", "reload", "ssh"])],    # and then run
        apply=lambda: PROGRAM.call(node, "apply", {...}, privileged=True),
    )

The node arms a timer, the change is applied, and a connection that shares nothing with the first one, made the way
the inventory says, confirms it. Where that fails, the timer puts everything back and `change` raises GuardError
with a sentence for the user; so does a controller that dies in between, without the sentence. A power cut is covered
as well: files are put back at boot, before the network is up. What a role looks at should include whether
GUARD_ROOT/WHAT/state.json exists on the node: then a change is waiting, and `settle` has work.

Where the node is the controller itself (ansible_connection=local) nobody can be cut off, and the first connection
confirms.
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
# A new connection is tried again until this long before the timer: a confirmation under way must not race it.
MARGIN = 12
# The undo itself, and a node that is slow to answer behind it.
PATIENCE = 60


class GuardError(Exception):
    """The change does not stay. The message is for the user; `undone` says whether the node is as it was before."""

    def __init__(self, message: str, *, undone: bool) -> None:
        super().__init__(message)
        self.undone = undone


@dataclass(frozen=True)
class UndoCommand:
    """One command of the undo, run as root without a shell; `text` names the kept text that is its standard input."""

    argv: Sequence[str]
    text: str = ""


@dataclass(frozen=True)
class GuardedChange:
    """A change that is in force and not confirmed. began: by the monotonic clock, which all processes share."""

    token: str
    began: float


class Guard:
    """Guards one kind of change on one node. `what` is a word for names of units and folders."""

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
        """Undo a change that an interrupted run left unconfirmed. Returns whether there was one."""
        answer = self._ask(self.first, "undo")
        if answer["failed"]:
            raise GuardError(
                f"{self.host}: an earlier change of the {self.what} was never confirmed, and undoing it failed:"
                f" {'; '.join(answer['failed'])}. What was before lies in {GUARD_ROOT}/{self.what} on the node.",
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
        """Apply under guard. `fix` ends the sentence of the failure: what the user may look at or type."""
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
        """Apply, and leave the timer running: `keep` or `take_back` ends it, from another process if need be."""
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
            raise GuardError(f"{self.host}: the {self.what} was left as it is: {reason}.", undone=True)
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
        """Confirm by a new connection."""
        reason = self._confirm(change.token, change.began)
        if reason:
            why = f"a new connection could not be made while it was in force ({reason})"
            self._see_it_undone(change.token, change.began, why, fix)

    def take_back(self, change: GuardedChange, reason: str, fix: str = "") -> None:
        """Undo at once, where something else than the way in speaks against it; always raises GuardError."""
        self._undo_now()
        self._see_it_undone(change.token, change.began, reason, fix)

    def _confirm(self, token: str, began: float) -> str:
        """Returns why it could not be confirmed; nothing when it was."""
        reason = ""
        while True:
            try:
                stays = self._ask(self._fresh(), "confirm", id=token)["confirmed"]
            except NodeError as exc:
                reason = str(exc)
            else:
                return "" if stays else reason or f"it came after the {self.seconds} seconds that were given"
            time.sleep(1)
            if time.monotonic() - began > self.seconds - MARGIN:
                return reason

    def _see_it_undone(self, token: str, began: float, reason: str, fix: str) -> None:
        """Wait until the node is as before and can be reached by a new connection; always raises GuardError."""
        last = ""
        while time.monotonic() - began < self.seconds + PATIENCE:
            try:
                seen = self._ask(self._fresh(), "state")
            except NodeError as exc:
                last = str(exc)
            else:
                if seen["failed"]:
                    raise GuardError(
                        f"{self.host}: the change of the {self.what} was to be undone, because {reason};"
                        f" the node answers, but: {'; '.join(seen['failed'])}."
                        f" What was before lies in {GUARD_ROOT}/{self.what} on the node.",
                        undone=False,
                    )
                if not seen["armed"] or seen["id"] != token:
                    raise GuardError(
                        f"{self.host}: the change of the {self.what} was undone, because {reason}."
                        f" The node answers and is as it was before. {fix}".rstrip(),
                        undone=True,
                    )
            time.sleep(1)
        raise GuardError(
            f"{self.host}: the node was to undo the change of the {self.what} itself after {self.seconds} seconds,"
            f" because {reason}, and does not answer ({last or 'it is still in force'}). Restart it at its console:"
            f" that puts back what was before, from {GUARD_ROOT}/{self.what}.",
            undone=False,
        )

    def _undo_now(self) -> None:
        try:
            self._ask(self.first, "undo")
        except NodeError:
            return  # the timer does it

    def _fresh(self) -> NodeConnection:
        return connect(self.action, self.host, self.task_vars, fresh=True)

    def _ask(self, connection: NodeConnection, verb: str, **payload: Any) -> dict[str, Any]:
        return PROGRAM.call(connection, verb, {"what": self.what, **payload}, privileged=True)
