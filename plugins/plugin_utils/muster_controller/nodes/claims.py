"""Claims of this run on the nodes that it changes. Only one administrator's run at a time can change a node.

The process of ansible-playbook has one Claims object, which forked processes inherit. The callback report calls begin
and end. The nodes decide who holds a claim (muster_node/programs/claim.py). A separate process renews the claims
(keeper.py).
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import secrets
import select
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ansible import constants

from muster.road.claims import LEASE, loss, refusal
from muster_controller.artifacts.record import operator
from muster_controller.playbook.node_error import NodeError
from muster_node.tools import files

from . import keeper
from .keeper import FREED, Keeper, ask_all

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .connection import NodeConnection

Json = dict[str, Any]
Answers = dict[str, Json | NodeError]

RESULT = "result"  # the file in which ansible-playbook records its outcome
RUNS = (
    "muster-claims"  # the folder next to Ansible's, with a file for each run, locked while a process of the run exists
)
RUN_ID = re.compile(r"[0-9a-f]{32}\Z")


class ClaimError(Exception):
    """Raised to stop the run. The message is shown to the user."""


class Claims:
    """The claims of this run. The process of ansible-playbook calls begin and end. Actions call claim."""

    def __init__(self) -> None:
        self.process = 0
        self.token = ""
        self.run = -1
        self.folder = Path()
        self.alive = self.kept = (-1, -1)

    def begin(self) -> None:
        if self.process:
            return
        self.folder = Path(tempfile.mkdtemp(prefix="claims-", dir=constants.DEFAULT_LOCAL_TMP))
        self.alive, self.kept = os.pipe(), os.pipe()
        runs_folder().mkdir(mode=0o700, exist_ok=True)
        token = secrets.token_hex(16)
        self.run = os.open(runs_folder() / token, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        fcntl.flock(self.run, fcntl.LOCK_EX)
        self.process, self.token = os.getpid(), token

    def end(self, result: str) -> None:
        """Wait until the keepers have released the claims, so that the next run can start. result: the outcome of the
        run, for the nodes' journals."""
        if self.process != os.getpid():
            return
        self.process = 0
        kept = any(self.folder.iterdir())
        with contextlib.suppress(OSError):  # full disk: the journals then record that the run is gone
            files.replace(str(self.folder / RESULT), result.encode())
        for handle in (self.alive[1], self.kept[1], self.alive[0]):
            os.close(handle)
        if kept:
            select.select([self.kept[0]], [], [], FREED + 5)
        os.close(self.kept[0])
        (runs_folder() / self.token).unlink(missing_ok=True)
        os.close(self.run)

    def known(self) -> dict[str, float]:
        """Return the time when the claim on each node was last renewed, on the monotonic clock."""
        known: dict[str, float] = {}
        for path in self.folder.glob("*.json"):
            for name, at in json.loads(files.read(str(path))).items():
                known[name] = max(at, known.get(name, 0.0))
        return known

    def missing(self, names: Sequence[str]) -> list[str]:
        """Return the nodes on which this run might no longer hold the claim."""
        known, now = self.known(), time.monotonic()
        return [name for name in names if known.get(name, -LEASE) + LEASE / 2 < now]

    def claim(self, connections: Sequence[NodeConnection], doing: str, *, take_over: bool) -> list[str]:
        """Claim these nodes and return warnings. Raises ClaimError.

        If two runs start at the same time, the run that claims the first node wins. A node that does not respond is
        ignored here; the next step reports the error.
        """
        known, now = self.known(), time.monotonic()
        again = [one for one in connections if one.name in known]
        fresh = [one for one in connections if one.name not in known]
        request = {"token": self.token, "who": operator(), "doing": doing, "lease": LEASE, "take_over": take_over}
        answers: Answers = ask_all(again, "renew", request)
        if holders := holders_in(answers):
            raise ClaimError(loss(holders))
        for some in (fresh[:1], fresh[1:]):
            answers.update(ask_all(some, "take", request))
            left = [one for one in some if one.name in holders_in(answers) and is_gone(answers[one.name])]
            answers.update(ask_all(left, "take", {**request, "take_over": True}))
            if holders := holders_in(answers):
                taken = [one for one in fresh if one.name in answers and one.name not in holders]
                ask_all(taken, "free", {**request, "result": "refused"})
                raise ClaimError(refusal(holders, begun=bool(known)))
        if held := [one for one in connections if isinstance(answers[one.name], dict)]:
            kept = Keeper(held, request, self.folder / f"{os.getpid()}.json", now)
            keeper.begin(kept, self.alive, self.kept, self._result)
        return [
            f"{name}: this run could not claim the node: {answer}"
            for name, answer in answers.items()
            if isinstance(answer, NodeError) and answer.reachable
        ]

    def _result(self) -> str:
        with contextlib.suppress(OSError):
            return files.read(str(self.folder / RESULT)).decode()
        return ""


def runs_folder() -> Path:
    return Path(constants.DEFAULT_LOCAL_TMP).parent / RUNS


def is_gone(answer: Json | NodeError) -> bool:
    """Return whether the holder is a run of this user on this machine whose processes have all ended."""
    holder = answer.get("holder") if isinstance(answer, dict) else None
    if not isinstance(holder, dict) or holder.get("who") != operator() or not RUN_ID.match(str(holder.get("token"))):
        return False
    path = runs_folder() / str(holder["token"])
    try:
        with files.opened(str(path), owner=os.geteuid()) as handle:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # locked, or a run of another machine
        return False
    return True


def holders_in(answers: Answers) -> dict[str, Any]:
    """Return the holders of claims that block this run."""
    return {
        name: answer.get("holder")
        for name, answer in answers.items()
        if isinstance(answer, dict) and (answer.get("holder") or answer.get("held") is False)
    }


CLAIMS = Claims()
