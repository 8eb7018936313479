"""A detached launch with restarts: a watcher on its head node begins its attempts, with the supervisor's own program.

What is decided before it begins, and what is read of its word afterwards, which is foreign input as any node's.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..network.ssh_mesh import Attempt, Member, refusals
from ..verdict.check import Check
from ..verdict.commands import playbook
from ..verdict.finding import STATUSES, Finding, add_up, fix_with
from .answers import UnusableError, whole, word
from .attempts import NO_WATCHER, WITHOUT_WATCHER
from .unit import LAUNCH_ID

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..verdict.finding import Verdict
    from .manager import Whose

WATCHER = Check(
    "launch.watcher",
    seen="sandbox",
    reads="of a detached launch with launch_restarts: whether its user logs in from the head node on all others, and "
    "whether the watcher there goes on until its word on how the launch ended",
    fires="a node cannot be logged in on, the launch is nobody's own, or the watcher is gone (fail)",
    fix="Have the administrator give the account logins between the nodes",
)
CHECKS = (WATCHER,)

ARTIFACTS = "muster-artifacts:"  # in what a watcher says, in the place of the folder where a controller keeps launches
ID = re.compile(r"[a-z][a-z0-9_.]{0,99}\Z")
MOST_SAID = 500  # sentences
MOST_TEXT = 4000
MOST_FINDINGS = 500
MOST_ATTEMPTS = 64
MOST_EVIDENCE = 100_000  # characters of one text
MOST_NODES = 1024


@dataclass(frozen=True)
class Word:
    """What a watcher has said. said: sentences, the first of which has the number `first`. attempts: of those that
    began, {number, launch_id, plan (packed)}. running: whether all ranks of the newest run, or did. verdict: over all
    attempts, once it is known; left: whether something of the launch may be left on a node then."""

    alive: bool
    known: bool
    first: int = 0
    said: list[str] = field(default_factory=list)
    attempts: list[dict[str, Any]] = field(default_factory=list)
    running: bool = False
    verdict: Verdict | None = None
    left: bool = False
    history: list[dict[str, Any]] = field(default_factory=list)

    @property
    def over(self) -> bool:
        return self.verdict is not None or not self.alive


def unwatchable(head: str, whose: Whose) -> list[Finding]:
    """What stands against a watcher before anybody has looked at the logins."""
    if whose.own:
        return []
    return [WATCHER.fail(head, NO_WATCHER, fix=f"Launch as yourself (launch_users), {WITHOUT_WATCHER}")]


def unreached(head: str, user: str, tried: Mapping[str, Mapping[str, Any]], nodes: Mapping[str, str]) -> list[Finding]:
    """What stands against a watcher that logs in on these nodes from the head node. nodes: {name: address}."""
    found = []
    for name, address in nodes.items():
        one = tried.get(name, {})
        code = whole(one.get("code"))
        said = word(one.get("said"), MOST_TEXT) or "" if one.get("said") else ""
        attempt = Attempt(Member(name, address), 255 if code is None else code, said, "")
        for why in refusals(user, [attempt]):
            text = (
                f"{user} cannot log in here from {head}, whose watcher would begin attempts: {why.partition(': ')[2]}"
            )
            found.append(
                WATCHER.fail(
                    name,
                    text,
                    fix=f"Have the administrator add {user} to ssh_mesh_users, {WITHOUT_WATCHER}",
                    command=playbook("playbooks/network.yml", ssh_mesh_users=user),
                )
            )
    return found


def gone(verdict: Verdict, head: str, why: str) -> Verdict:
    """The verdict on the newest attempt, where the watcher has none on all of them."""
    finding = WATCHER.fail(
        head,
        f"the watcher of the launch is gone, and no further attempt begins: {why}",
        fix="Look why, then launch again",
        command="journalctl --user -u 'muster-watch-*'",
    )
    found = [finding, *(Finding(**one) for one in verdict["findings"])]
    summary = f"{verdict['summary']}; {finding.summary}"
    return add_up(found, summary, verdict["coverage"]["skipped"], verdict["coverage"]["ran"])


# ---------------------------------------------------------------- what a watcher says


def read(data: Any, artifacts: str) -> Word:
    """artifacts: the folder of the cluster's launches on this controller. Raises UnusableError."""
    if not isinstance(data, dict):
        raise UnusableError("it is no word of a watcher")
    state = data.get("state")
    if not isinstance(state, dict):
        return Word(alive=data.get("alive") is True, known=False)
    result = state.get("result")
    done = result if isinstance(result, dict) else {}
    said = _list(state.get("said"), MOST_SAID)
    return Word(
        alive=data.get("alive") is True,
        known=True,
        first=whole(state.get("first")) or 0,
        said=[_text(one, artifacts, MOST_TEXT) for one in said],
        attempts=[_attempt(one) for one in _list(state.get("attempts"), MOST_ATTEMPTS)],
        running=state.get("running") is True,
        verdict=_verdict(done["verdict"], artifacts) if isinstance(done.get("verdict"), dict) else None,
        left=done.get("left") is True,
        history=[_ended(one, artifacts) for one in _list(done.get("attempts"), MOST_ATTEMPTS)],
    )


def _attempt(one: Any) -> dict[str, Any]:
    if not isinstance(one, dict) or not LAUNCH_ID.match(str(one.get("launch_id"))):
        raise UnusableError("an attempt of it has no id")
    return {
        "number": whole(one.get("number")) or 0,
        "launch_id": str(one["launch_id"]),
        "plan": one.get("plan") if isinstance(one.get("plan"), str) else "",
    }


def _ended(one: Any, artifacts: str) -> dict[str, Any]:
    """One attempt as attempts.Attempt has it."""
    if not isinstance(one, dict) or not LAUNCH_ID.match(str(one.get("launch_id"))):
        raise UnusableError("an attempt of it has no id")
    return {
        "number": whole(one.get("number")) or 0,
        "launch_id": str(one["launch_id"]),
        "nodes": [_text(name, "", MOST_TEXT) for name in _list(one.get("nodes"), MOST_NODES)],
        "summary": _text(one.get("summary"), artifacts, MOST_TEXT),
        "failed": [_text(name, "", MOST_TEXT) for name in _list(one.get("failed"), MOST_NODES)],
        "checkpoint": _text(one.get("checkpoint") or "", "", MOST_TEXT),
    }


def _verdict(given: dict[str, Any], artifacts: str) -> Verdict:
    """Added up anew: a status is what its findings say."""
    return add_up(
        [_finding(one, artifacts) for one in _list(given.get("findings"), MOST_FINDINGS)],
        _text(given.get("summary"), artifacts, MOST_TEXT),
    )


def _finding(one: Any, artifacts: str) -> Finding:
    if not isinstance(one, dict) or one.get("status") not in STATUSES or not ID.match(str(one.get("id"))):
        raise UnusableError("a finding of it is none")
    fix = one["fix"] if isinstance(one.get("fix"), dict) else {}
    shape: dict[str, Any] = {
        "id": str(one["id"]),
        "status": one["status"],
        "node": _text(one.get("node"), "", MOST_TEXT),
        "evidence": [
            {
                "source": _text(proof.get("source"), artifacts, MOST_TEXT),
                "text": _text(proof.get("text"), "", MOST_EVIDENCE),
            }
            for proof in _list(one.get("evidence"), MOST_FINDINGS)
            if isinstance(proof, dict)
        ],
        "fix": fix_with(*(_text(fix.get(name) or "", artifacts, MOST_TEXT) for name in ("text", "command"))),
    }
    for name in ("summary", "observed", "expected"):
        shape[name] = _text(one.get(name) or "", artifacts, MOST_TEXT)
    return Finding(**shape)


def _text(value: Any, artifacts: str, most: int) -> str:
    if not isinstance(value, str):
        raise UnusableError("a text of it is none")
    return value[:most].replace(ARTIFACTS, artifacts)


def _list(value: Any, most: int) -> list[Any]:
    return value[:most] if isinstance(value, list) else []
