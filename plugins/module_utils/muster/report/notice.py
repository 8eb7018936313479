"""The message about the end of a run, for people who are not at the terminal."""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from ..verdict.printable import printable

if TYPE_CHECKING:
    from collections.abc import Mapping

# Playbooks whose end is worth a message. The others are answers to somebody at the terminal.
WORTH = ("site", "launch", "ddp_smoke", "health", "quarantine", "release", "onboard", "retire", "upgrade")
# These may run on a schedule: the same result is sent again only after this many seconds.
SCHEDULED = ("site", "health", "ddp_smoke")
AGAIN_SECONDS = 6 * 3600
MOST_TEXT = 2000  # characters; Slack, Feishu and DingTalk take more
FORMATS = ("json", "slack", "feishu", "dingtalk")


@dataclass(frozen=True)
class Notice:
    """One message. status: as in the last line of the run. node, cause, action: of the worst finding, if there is one.
    text: everything in one text. report: path on the controller."""

    cluster: str
    run: str
    playbook: str
    status: str
    node: str
    cause: str
    action: str
    text: str
    report: str
    time: str

    @property
    def key(self) -> str:
        """Return a digest that is the same for the same result of another run."""
        same = (self.cluster, self.playbook, self.status, self.node, self.cause)
        return hashlib.sha256("\0".join(same).encode()).hexdigest()[:16]


def notice(run: Mapping[str, Any], status: str, line: str, verdict: Mapping[str, Any] | None, report: str) -> Notice:
    """Return the message of a run. run: as in run.json. line: the last line of the run."""
    findings = (verdict or {}).get("findings", ())
    worst = next((one for each in ("fail", "unknown", "warn") for one in findings if one["status"] == each), None)
    fix = worst["fix"] if worst else {}
    action = " ".join(part for part in (fix.get("text", ""), fix.get("command", "")) if part)
    text = " ".join(printable(line).split())[:MOST_TEXT]
    return Notice(
        cluster=str(run["cluster"]),
        run=str(run["id"]),
        playbook=str(run["playbook"]),
        status=status,
        node=str(worst["node"]) if worst else "",
        cause=str(worst["summary"]) if worst else "",
        action=action,
        text=f"{run['cluster']}: {text}",
        report=report,
        time=str(run["ended"]),
    )


def is_due(book: str, said: Notice, last: Mapping[str, Any], now: float) -> bool:
    """Return whether to send a message. book: name of the playbook. last: {key, when} of the last message that was
    sent."""
    if book not in WORTH:
        return False
    repeats = book in SCHEDULED and last.get("key") == said.key
    return not (repeats and 0 <= now - float(last.get("when", 0)) < AGAIN_SECONDS)


def body(said: Notice, form: str) -> dict[str, Any]:
    """Return the JSON object in the format of the receiver."""
    if form == "slack":
        # Slack's own escapes; otherwise text from a node could mention a channel.
        return {"text": said.text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")}
    if form == "feishu":
        # Feishu reads <at user_id="all"> in texts, and has no escape for "<".
        return {"msg_type": "text", "content": {"text": said.text.replace("<", "\uff1c")}}
    if form == "dingtalk":
        return {"msgtype": "text", "text": {"content": said.text}}
    return {"schema": 1, **asdict(said)}
