"""The answer of a node's own health check: one status, an exit status, and a reason for the worst fault."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from ..health.by_itself import HARD
from ..health.jobs import OTHER, PORT_HELD, STALE, STOPPED
from ..verdict.printable import printable
from ..verdict.words import plural

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..verdict.finding import FindingShape, Verdict

SHORT, FULL, SCHEDULED = "short", "full", "scheduled"
FORMS = (SHORT, FULL, SCHEDULED)
OK, FAULT, UNKNOWN = "ok", "fault", "unknown"
# The owner of a fault, which is the first word of the reason.
NODE, USER = "node", "user"
# Faults that a user caused and can end. They say nothing about the machine.
OF_USERS = frozenset(check.id for check in (STALE, OTHER, STOPPED, PORT_HELD))
EXITS = {(OK, ""): 0, (FAULT, NODE): 1, (UNKNOWN, ""): 3, (FAULT, USER): 4}
MOST_REASON = 300  # characters; Slurm and syslog take one short line
# A scheduled check while GPUs are in use is skipped if the last check is more recent.
BUSY_SECONDS = 900
# The full form needs idle GPUs and runs once a night.
NIGHT = range(1, 5)  # hours, local time
NIGHTLY_SECONDS = 20 * 3600
# A result is outdated after this many intervals without a newer one.
MISSED = 3


@dataclass(frozen=True)
class CheckAnswer:
    """The result of one check.

    form: short or full. when: seconds since the epoch. seconds: duration. status: ok, fault or unknown. owner: node or
    user for a fault, otherwise empty. reason: one line that begins with the owner, or with "unknown:"; empty if ok.
    faults: ids of the failed checks, the worst first. hard: whether the worst is a hardware fault of this node alone.
    warnings: ids. ran: number of checks.
    """

    node: str
    form: str
    when: float
    seconds: float
    status: str
    owner: str
    reason: str
    faults: tuple[str, ...]
    hard: bool
    warnings: tuple[str, ...]
    ran: int

    @property
    def exit_status(self) -> int:
        return EXITS[self.status, self.owner]

    def as_dict(self) -> dict[str, Any]:
        return {"schema": 1, **asdict(self), "faults": list(self.faults), "warnings": list(self.warnings)}


def answer(verdict: Verdict, *, node: str, form: str, when: float, seconds: float) -> CheckAnswer:
    """Summarize the verdict of a node. A fault of the node outranks a fault of a user, and both outrank unknown."""
    findings = verdict["findings"]
    failed = sorted((one for one in findings if one["status"] == "fail"), key=_rank)
    owned = {NODE: [one for one in failed if one["id"] not in OF_USERS]}
    owned[USER] = [one for one in failed if one["id"] in OF_USERS]
    owner = next((name for name, those in owned.items() if those), "")
    unknown = [one for one in findings if one["status"] == "unknown"]
    status = FAULT if owner else UNKNOWN if unknown or not verdict["coverage"]["ran"] else OK
    worst = owned[owner] if owner else unknown
    return CheckAnswer(
        node=node,
        form=form,
        when=when,
        seconds=round(seconds, 2),
        status=status,
        owner=owner,
        reason=reason(owner or UNKNOWN, worst) if status != OK else "",
        faults=tuple(dict.fromkeys(one["id"] for one in failed)),
        hard=bool(failed) and failed[0]["id"] in HARD,
        warnings=tuple(dict.fromkeys(one["id"] for one in findings if one["status"] == "warn")),
        ran=len(verdict["coverage"]["ran"]),
    )


def _rank(finding: FindingShape) -> int:
    order = list(HARD)
    return order.index(finding["id"]) if finding["id"] in order else len(order)


def reason(begin: str, worst: Sequence[FindingShape]) -> str:
    """Return one printable line of bounded length."""
    if not worst:
        return f"{begin}: no check ran"
    more = f" (and {plural(len(worst) - 1, 'other finding')})" if len(worst) > 1 else ""
    text = " ".join(printable(worst[0]["summary"]).split())
    most = MOST_REASON - len(begin) - len(more) - 2
    return f"{begin}: {text if len(text) <= most else text[: most - 3] + '...'}{more}"


@dataclass(frozen=True)
class CheckDue:
    """The form of a scheduled check, empty if none is due. why: the reason."""

    form: str
    why: str


def due(last: Mapping[str, Any], nightly: float | None, *, busy: bool, now: float, hour: int) -> CheckDue:
    """Return the form of a scheduled check.

    last: the last answer, or {}. nightly: time of the last full check. busy: whether a job uses the node. hour: local
    hour of the day.
    """
    if busy:
        age = now - float(last.get("when", 0))
        if 0 <= age < BUSY_SECONDS:
            return CheckDue("", f"a job uses the node, and the last check is {age:.0f} s old")
        return CheckDue(SHORT, "a job uses the node")
    if hour in NIGHT and (nightly is None or not 0 <= now - nightly < NIGHTLY_SECONDS):
        return CheckDue(FULL, "nightly, and no job uses the node")
    return CheckDue(SHORT, "no job uses the node")


def outdated(last: Mapping[str, Any], interval: float, now: float) -> str:
    """Return why an answer is outdated, or an empty string. interval: seconds between two scheduled checks."""
    if not last:
        return "no scheduled check has run"
    age = now - float(last["when"])
    if abs(age) <= MISSED * max(interval, BUSY_SECONDS):
        return ""
    # A clock that was wrong: without this, such a result would stay current until then.
    when = f"dated {-age / 60:.0f} min in the future" if age < 0 else f"{age / 60:.0f} min old"
    return f"the last scheduled check is {when}"
