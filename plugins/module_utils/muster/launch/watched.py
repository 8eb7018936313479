"""A detached launch with restarts: a watcher on its head node runs the supervisor's program and starts the attempts.

This module contains the checks before the start of such a launch and the validation of the watcher's state. The state
is untrusted input, as is any data from a node.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..network.ssh_mesh import LoginAttempt, MeshMember, refusals
from ..verdict.check import Check
from ..verdict.commands import playbook
from ..verdict.finding import STATUSES, Finding, FindingEvidence, add_up, extended, fix_with, with_fix
from ..verdict.printable import printable
from ..verdict.reading import Count, UnusableError, read_one
from .attempts import NO_WATCHER, WITHOUT_WATCHER
from .catalogue import CATALOGUE
from .outcome import CLUSTER
from .unit import LAUNCH_ID, is_launch_id

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from ..verdict.finding import FindingFix, FindingShape, Verdict
    from .manager import Whose

WATCHER = Check(
    "launch.watcher",
    seen="sandbox",
    reads="for a detached launch with launch_restarts: logins of the user from the head node to the other nodes, and "
    "whether the watcher on the head node runs until it has reported the outcome",
    fires="a login fails, the launch is not a user launch, or the watcher ended too early (fail)",
    fix="Ask an administrator to set up SSH logins between the nodes for this account",
)
CHECKS = (WATCHER,)

ARTIFACTS = "muster-artifacts:"  # in a watcher's state, a placeholder for the controller's folder of launches
ID = re.compile(r"[a-z][a-z0-9_.]{0,99}\Z")
A_LOG = re.compile(
    rf"{ARTIFACTS}(?P<path>/{LAUNCH_ID.pattern[:-2]}/logs(?:/(?P<node>[\w.-]+)/[A-Za-z0-9_]+(?:\.std(?:out|err))?\.log)?)",
    re.ASCII,
)
MOST_SAID = 500  # sentences
MOST_TEXT = 4000
MOST_FINDINGS = 500
MOST_ATTEMPTS = 64
MOST_EVIDENCE = 100_000  # characters of one text
MOST_NODES = 1024


@dataclass(frozen=True)
class Word:
    """The state of a watcher.

    said: its messages; `first` is the number of the first one. attempts: the started attempts, as {number, launch_id,
    plan (packed)}. running: whether all ranks of the newest attempt run or have run. verdict: the verdict on all
    attempts; None until known. left: whether processes of the launch might remain on a node.
    """

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
    """Return the reasons why no watcher can be started, as far as they are known before the SSH logins are checked."""
    if whose.own:
        return []
    return [WATCHER.fail(head, NO_WATCHER, fix=f"Launch as yourself (launch_users), {WITHOUT_WATCHER}")]


def unreached(head: str, user: str, tried: Mapping[str, Mapping[str, Any]], nodes: Mapping[str, str]) -> list[Finding]:
    """Return a finding for each node to which the watcher cannot log in from the head node. nodes: {name: address}."""
    found = []
    for name, address in nodes.items():
        one = tried.get(name, {})
        code, said = read_one(Count, one.get("code")), read_one(str, one.get("said")) or ""
        attempt = LoginAttempt(MeshMember(name, address), 255 if code is None else code, said, "")
        for why in refusals(user, [attempt]):
            text = f"{user} cannot log in from {head}, where the watcher would run: {why.partition(': ')[2]}"
            found.append(
                WATCHER.fail(
                    name,
                    text,
                    fix=f"Ask an administrator to add {user} to ssh_mesh_users, {WITHOUT_WATCHER}",
                    command=playbook("playbooks/network.yml", ssh_mesh_users=user),
                )
            )
    return found


def gone(verdict: Verdict, head: str, why: str) -> Verdict:
    """Return a verdict based on the newest attempt, if the watcher has ended without a verdict on all attempts."""
    finding = WATCHER.fail(
        head,
        f"the launch's watcher has ended, so no further attempt will start: {why}",
        fix="Check the watcher's journal, then launch again",
        command="journalctl --user -u 'muster-watch-*'",
    )
    return extended(verdict, before=[finding], summary=f"{verdict['summary']}; {finding.summary}")


# ---------------------------------------------------------------- the state of a watcher


@dataclass(frozen=True)
class WatcherPlace:
    """The state of the watcher of a user launch. The state is in a file that the user can change.

    Only known IDs, states and numbers are used. Texts are shown as quotes of the watcher. Fixes and commands are never
    shown.

    artifacts: the folder of the cluster's launches on this controller. nodes: the nodes of the inventory.
    """

    user: str
    head: str
    artifacts: str
    nodes: Collection[str]

    @property
    def who(self) -> str:
        return f"{self.user}'s watcher on {self.head}"

    def read(self, data: Any) -> Word:
        """Return the validated state. Raises UnusableError."""
        if not isinstance(data, dict):
            raise UnusableError("the watcher's state has an invalid format")
        state = data.get("state")
        if not isinstance(state, dict):
            return Word(alive=data.get("alive") is True, known=False)
        result = state.get("result")
        done = result if isinstance(result, dict) else {}
        return Word(
            alive=data.get("alive") is True,
            known=True,
            first=read_one(Count, state.get("first")) or 0,
            said=[self.quoted(one) for one in _list(state.get("said"), MOST_SAID)],
            attempts=[_attempt(one) for one in _list(state.get("attempts"), MOST_ATTEMPTS)],
            running=state.get("running") is True,
            verdict=self.verdict(done["verdict"]) if isinstance(done.get("verdict"), dict) else None,
            left=done.get("left") is True,
            history=[self.ended(one) for one in _list(done.get("attempts"), MOST_ATTEMPTS)],
        )

    def quoted(self, words: Any) -> str:
        """Return the text on one line, marked as a quote of the watcher."""
        return f"{self.who} reports: {_words(words)}"

    def ended(self, one: Any) -> dict[str, Any]:
        """Return a finished attempt as a mapping with the fields of attempts.LaunchAttempt."""
        return {
            **{name: value for name, value in _attempt(one).items() if name != "plan"},
            "nodes": self.known(one.get("nodes")),
            "summary": self.quoted(one.get("summary")),
            "failed": self.known(one.get("failed")),
            "checkpoint": _words(one.get("checkpoint") or ""),
        }

    def known(self, names: Any) -> list[str]:
        return [name for name in _list(names, MOST_NODES) if isinstance(name, str) and name in self.nodes]

    def verdict(self, given: dict[str, Any]) -> Verdict:
        """Recompute the status and the summary from the findings."""
        found = [self.finding(one) for one in _list(given.get("findings"), MOST_FINDINGS)]
        verdict = add_up(found)
        well = [one for one in found if one.status == "pass"]
        if verdict["status"] in ("healthy", "degraded") and well:
            verdict["summary"] = with_fix(well[0])
        return verdict

    def finding(self, one: Any) -> Finding:
        """Return the validated finding.

        The user's text is passed as evidence, so that placeholders in its commands are not filled in.
        """
        if not isinstance(one, dict) or one.get("status") not in STATUSES or not ID.match(str(one.get("id"))):
            raise UnusableError("the watcher's state has an invalid finding")
        summary = _words(one.get("summary"))
        node = one.get("node")
        proofs = [proof for proof in _list(one.get("evidence"), MOST_FINDINGS) if isinstance(proof, dict)]
        shape: FindingShape = {
            "id": str(one["id"]),
            "status": one["status"],
            "node": node if isinstance(node, str) and node in self.nodes else CLUSTER,
            "summary": self.quoted(summary),
            "evidence": [FindingEvidence(source=self.who, text=summary), *map(self.proof, proofs)],
            "fix": self.fix(str(one["id"]), one.get("fix")),
        }
        return Finding(**shape)

    def proof(self, given: dict[str, Any]) -> FindingEvidence:
        source = f"{self.who}: {_words(given.get('source'))}"
        return FindingEvidence(source=source, text=_text(given.get("text"), MOST_EVIDENCE))

    def fix(self, identity: str, given: Any) -> FindingFix:
        """Return the controller's own fix for this kind of finding, or the path of the log that the finding names."""
        log = A_LOG.fullmatch(str(given.get("command"))) if isinstance(given, dict) else None
        if log and (log["node"] is None or log["node"] in self.nodes):
            return fix_with("Its logs" if log["node"] is None else "Its log", f"{self.artifacts}{log['path']}")
        check = CATALOGUE.get(identity)
        return fix_with(check.fix, check.command) if check else fix_with()


def _attempt(one: Any) -> dict[str, Any]:
    if not isinstance(one, dict) or not is_launch_id(one.get("launch_id")):
        raise UnusableError("the watcher's state has an attempt without an id")
    return {
        "number": read_one(Count, one.get("number")) or 0,
        "launch_id": one["launch_id"],
        "plan": one.get("plan") if isinstance(one.get("plan"), str) else "",
    }


def _words(value: Any) -> str:
    return printable(" ".join(_text(value, MOST_TEXT).split()))


def _text(value: Any, most: int) -> str:
    if not isinstance(value, str):
        raise UnusableError("the watcher's state has an invalid text")
    return value[:most]


def _list(value: Any, most: int) -> list[Any]:
    return value[:most] if isinstance(value, list) else []
