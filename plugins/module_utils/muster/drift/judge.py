"""What differs, with when and who, as findings: pure."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any, NamedTuple

from ..verdict.finding import Finding, evidence
from . import checks

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ..verdict.finding import Skipped
    from .model import DriftDifference, Origin

NOT_DRIFT = "muster"
AS_PLANNED = "is as the inventory wants it"
AS_INSTALLED = "is as it was last installed"


class Drifted(NamedTuple):
    """A difference, and where it comes from."""

    difference: DriftDifference
    origin: Origin


class Looked(NamedTuple):
    """Of one node. unseen: parts of it that could not be looked at, and why. no_record: why there is none, if so.
    stopped: the tags of the steps that refused it, and so have not looked at all of it."""

    down: str = ""
    unseen: Mapping[str, str] = {}
    no_record: str = ""
    stopped: tuple[str, ...] = ()


def findings(drifted: Sequence[Drifted], looked: Mapping[str, Looked]) -> Iterator[Finding | Skipped]:
    """looked: of every node."""
    for node, look in looked.items():
        own = [one for one in drifted if one.difference.node == node]
        yield from map(finding, own)
        if look.down:
            yield checks.UNREACHABLE.unknown(node, look.down)
            continue
        for part, why in look.unseen.items():
            yield checks.UNREACHABLE.unknown(node, f"{part}: {why}")
        if look.stopped:
            yield checks.UNREACHABLE.unknown(
                node, f"{' and '.join(look.stopped)} refused it, and so did not look at all that is there"
            )
        found = {one.difference.check for one in own if one.origin.kind != NOT_DRIFT}
        for check in checks.OF_THE_INVENTORY:
            if check not in found:
                yield check.passed(node, f"what is looked at {AS_PLANNED}")
        for check in checks.OF_THE_RECORD:
            if look.no_record:
                yield check.skip(look.no_record, node)
            elif check not in found:
                yield check.passed(node, f"what is looked at {AS_INSTALLED}")


def finding(one: Drifted) -> Finding:
    difference, origin = one
    check = difference.check
    more: dict[str, Any] = {
        "observed": difference.observed,
        "expected": difference.expected,
        "evidence": evidence(origin.source, origin.how) if origin.source else [],
    }
    summary = f"{difference.what} ({said(origin)})"
    if origin.kind == NOT_DRIFT and check in checks.OF_THE_RECORD:
        return check.passed(difference.node, summary, **more)
    if check is checks.REBOOT or (check is checks.VERSION and origin.kind == "unattended"):
        return check.warn(difference.node, summary, **more)
    if check in (checks.ACCOUNT, checks.REFUSED) and not difference.tag:
        return check.fail(difference.node, summary, check.fix, **more)
    if difference.tag and check in checks.OF_THE_INVENTORY:
        # A login between two nodes is known to both of them.
        limit = "" if check is checks.SSH else f" --limit {difference.node}"
        return check.fail(difference.node, summary, check.fix, f"{checks.REPAIR}{limit}", **more)
    return check.fail(difference.node, summary, **more)


def said(origin: Origin) -> str:
    """Since when, by whom, how; unknown is said."""
    since = f"since {moment(origin.at)}" if origin.at else "since when is unknown"
    if origin.by:
        return f"{since}, by {origin.by}: {origin.how}" if origin.how else f"{since}, by {origin.by}"
    others = f"; it may have been {' or '.join(origin.others)}" if origin.others else ""
    return f"{since}, by whom is unknown{others}"


def moment(at: float) -> str:
    return dt.datetime.fromtimestamp(at, dt.timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")


def as_dict(one: Drifted, status: str) -> dict[str, Any]:
    """For drift.json."""
    difference, origin = one
    return {
        "node": difference.node,
        "id": difference.check.id,
        "status": status,
        "what": difference.what,
        "observed": difference.observed,
        "expected": difference.expected,
        "step": difference.tag,
        "since": moment(origin.at) if origin.at else None,
        "by": origin.by or None,
        "how": origin.how,
        "kind": origin.kind,
        "source": origin.source,
        "others": list(origin.others),
    }
