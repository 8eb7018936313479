"""What drift checks, and the differences as findings, with when and who: pure."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any, NamedTuple

from ..verdict.check import Check, Seen
from ..verdict.commands import playbook
from ..verdict.finding import Finding, evidence

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ..verdict.finding import Skipped
    from .model import DriftDifference, Origin

NOT_DRIFT = "muster"
AS_PLANNED = "is as the inventory wants it"
AS_INSTALLED = "is as it was last installed"
REPAIR = playbook("playbooks/drift.yml", repair="true")
ACCEPT = playbook("playbooks/drift.yml", accept="true")
PUT_BACK = "Have what the inventory wants put back on this node alone"
TAKE_OVER = "If that is meant, take it as what is installed from now on"
ASKED = "what a step of site.yml would do in check mode"
RECORDED = "what is there, and the record that the last run of the step pytorch left (/var/lib/muster/installed.json)"


def wanted(identity: str, what: str, seen: Seen = "sandbox") -> Check:
    return Check(
        identity,
        reads=ASKED,
        fires=f"fail: {what}",
        fix=PUT_BACK,
        command=REPAIR,
        seen=seen,
    )


def recorded(identity: str, fires: str, seen: Seen = "stand-in") -> Check:
    return Check(identity, reads=RECORDED, fires=fires, fix=TAKE_OVER, command=ACCEPT, seen=seen)


FILE = wanted("drift.file", "a file that Muster wrote is missing, or has other content, another owner or mode")
PACKAGE = wanted("drift.package", "a package that the inventory wants is missing, or has another version than it wants")
SYSCTL = wanted("drift.sysctl", "a kernel setting in force is another one")
UNIT = wanted("drift.unit", "a unit is not enabled or does not run")
NAMES = wanted("drift.names", "the hosts file does not lead each node's name to its address")
SSH = wanted("drift.ssh", "a key, a line of known_hosts or authorized_keys, or a setting of sshd is another one")
FIREWALL = wanted("drift.firewall", "a rule of Muster's is missing, or one that it took away is back")
MTU = wanted("drift.mtu", "the training interface has another MTU", "stand-in")
SOURCES = wanted("drift.sources", "mirrors, proxies, certificates or repositories are other ones", "stand-in")
DRIVER = wanted("drift.driver", "the driver is not what the inventory comes to", "stand-in")
STACK = wanted("drift.stack", "another part of the GPU stack differs", "stand-in")
ENVIRONMENT = wanted("drift.environment", "the environment of PyTorch is not what the lock says")
USERS = wanted("drift.users", "what people need who launch as themselves is missing", "stand-in")
ACCOUNT = Check(
    "drift.account",
    reads=ASKED,
    fires="fail: the training user is missing, or has rights that training code must not have",
    fix="It is the site's own account, which Muster never alters: take the rights away",
    seen="sandbox",
)
REFUSED = Check(
    "drift.refused",
    reads=ASKED,
    fires="fail: a step of site.yml would refuse the node",
    fix="Fix by hand what the step says",
    seen="stand-in",
)
UNREACHABLE = Check(
    "drift.unreachable",
    reads="whether the node answers",
    fires="unknown: it does not, or not all of it could be looked at",
    fix="Look at the node, and run this again",
    seen="sandbox",
)

KERNEL = recorded("drift.kernel", "fail: another kernel runs than when the node was last installed")
REBOOT = recorded("drift.reboot", "warn: the node was restarted since it was last installed")
LOADED = recorded("drift.driver_loaded", "fail: the loaded driver of NVIDIA's has another version")
GPU = recorded("drift.gpu", "fail: a GPU is gone, or another one is there")
FIRMWARE = recorded("drift.firmware", "fail: a BIOS, VBIOS or an adapter's firmware has another version")
VERSION = recorded(
    "drift.version",
    "fail: a package of Muster's has another version, is gone or is new, and no run of Muster did that; warn:"
    " unattended upgrades did",
    "sandbox",
)
CONTENT = Check(
    "drift.content",
    reads=RECORDED,
    fires="fail: files of the environment were changed on the disk, and no run of Muster did that",
    fix="Have the environment built anew beside it from the lock",
    command=REPAIR,
    seen="sandbox",
)

OF_THE_INVENTORY = (
    *(FILE, PACKAGE, SYSCTL, UNIT, NAMES, SSH, FIREWALL, MTU, SOURCES, DRIVER, STACK, ENVIRONMENT, USERS, ACCOUNT),
    REFUSED,
)
OF_THE_RECORD = (KERNEL, REBOOT, LOADED, GPU, FIRMWARE, VERSION, CONTENT)
CHECKS = (*OF_THE_INVENTORY, UNREACHABLE, *OF_THE_RECORD)


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
            yield UNREACHABLE.unknown(node, look.down)
            continue
        for part, why in look.unseen.items():
            yield UNREACHABLE.unknown(node, f"{part}: {why}")
        if look.stopped:
            yield UNREACHABLE.unknown(
                node, f"{' and '.join(look.stopped)} refused it, and so did not look at all that is there"
            )
        found = {one.difference.check for one in own if one.origin.kind != NOT_DRIFT}
        for check in OF_THE_INVENTORY:
            if check not in found:
                yield check.passed(node, f"what is looked at {AS_PLANNED}")
        for check in OF_THE_RECORD:
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
    if origin.kind == NOT_DRIFT and check in OF_THE_RECORD:
        return check.passed(difference.node, summary, **more)
    if check is REBOOT or (check is VERSION and origin.kind == "unattended"):
        return check.warn(difference.node, summary, **more)
    if check in (ACCOUNT, REFUSED) and not difference.tag:
        return check.fail(difference.node, summary, check.fix, **more)
    if difference.tag and check in OF_THE_INVENTORY:
        # A login between two nodes is known to both of them.
        limit = "" if check is SSH else f" --limit {difference.node}"
        return check.fail(difference.node, summary, check.fix, f"{REPAIR}{limit}", **more)
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
