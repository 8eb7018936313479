"""The drift checks, and the findings: each difference with its time and author. Pure functions."""

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
AS_PLANNED = "matches the inventory"
AS_INSTALLED = "matches the last installation"
REPAIR = playbook("playbooks/drift.yml", repair="true")
ACCEPT = playbook("playbooks/drift.yml", accept="true")
PUT_BACK = "Restore the state of the inventory on this node"
TAKE_OVER = "If the change is intended, record it as the installed state"
ASKED = "the steps of site.yml in check mode"
RECORDED = "the current state and the record of the last run of the step pytorch (/var/lib/muster/installed.json)"


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


FILE = wanted("drift.file", "a Muster file is missing, or its content, owner or mode differs")
PACKAGE = wanted("drift.package", "a required package is missing or has a different version")
SYSCTL = wanted("drift.sysctl", "a kernel setting has a different value")
UNIT = wanted("drift.unit", "a systemd unit is not enabled or not running")
NAMES = wanted("drift.names", "the hosts file does not resolve every node's name to its address")
SSH = wanted("drift.ssh", "a key, a line of known_hosts or authorized_keys, or an sshd setting differs")
FIREWALL = wanted("drift.firewall", "a Muster rule is missing, or a rule that Muster removed is back")
MTU = wanted("drift.mtu", "the training interface has a different MTU", "stand-in")
SOURCES = wanted("drift.sources", "mirrors, proxies, certificates or apt repositories differ", "stand-in")
DRIVER = wanted("drift.driver", "the driver differs from the one selected for the inventory", "stand-in")
STACK = wanted("drift.stack", "another part of the GPU stack differs from the plan", "stand-in")
ENVIRONMENT = wanted("drift.environment", "the PyTorch environment differs from the lock")
USERS = wanted("drift.users", "the setup for user launches is incomplete", "stand-in")
ACCOUNT = Check(
    "drift.account",
    reads=ASKED,
    fires="fail: the training user is missing, or has rights that training code must not have",
    fix="Remove these rights. Muster does not change accounts that it did not create",
    seen="sandbox",
)
REFUSED = Check(
    "drift.refused",
    reads=ASKED,
    fires="fail: a step of site.yml rejects the node",
    fix="Fix the reported problem on the node",
    seen="stand-in",
)
UNREACHABLE = Check(
    "drift.unreachable",
    reads="the connection to the node",
    fires="unknown: the node does not respond, or was not checked completely",
    fix="Check the node, and run the playbook again",
    seen="sandbox",
)

KERNEL = recorded("drift.kernel", "fail: the running kernel differs from the one at the last installation")
REBOOT = recorded("drift.reboot", "warn: the node was rebooted since the last installation")
LOADED = recorded("drift.driver_loaded", "fail: the loaded NVIDIA driver differs from the installed state")
GPU = recorded("drift.gpu", "fail: a GPU was removed or added since the last installation")
FIRMWARE = recorded("drift.firmware", "fail: the version of a BIOS, VBIOS or adapter firmware changed")
VERSION = recorded(
    "drift.version",
    "fail: a package that Muster manages was changed, removed or added by something other than Muster; warn: by"
    " unattended upgrades",
    "sandbox",
)
CONTENT = Check(
    "drift.content",
    reads=RECORDED,
    fires="fail: files of the environment were changed by something other than Muster",
    fix="Build the environment again from the lock",
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
    """A difference and its origin."""

    difference: DriftDifference
    origin: Origin


class Looked(NamedTuple):
    """The result of inspecting one node.

    unseen: the parts that could not be checked, with reasons. no_record: why the record is missing. stopped: tags of
    the steps that rejected the node and therefore did not check it completely. advice: findings that are no
    differences, about the next boot and the security floors.
    """

    down: str = ""
    unseen: Mapping[str, str] = {}
    no_record: str = ""
    stopped: tuple[str, ...] = ()
    advice: tuple[Finding | Skipped, ...] = ()


def findings(drifted: Sequence[Drifted], looked: Mapping[str, Looked]) -> Iterator[Finding | Skipped]:
    """Yield the findings of all nodes. looked: the inspection result of each node."""
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
                node, f"{' and '.join(look.stopped)} rejected the node and did not check it completely"
            )
        yield from look.advice
        found = {one.difference.check for one in own if one.origin.kind != NOT_DRIFT}
        for check in OF_THE_INVENTORY:
            if check not in found:
                yield check.passed(node, f"the checked state {AS_PLANNED}")
        for check in OF_THE_RECORD:
            if look.no_record:
                yield check.skip(look.no_record, node)
            elif check not in found:
                yield check.passed(node, f"the checked state {AS_INSTALLED}")


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
        # An SSH login between two nodes is configured on both.
        limit = "" if check is SSH else f" --limit {difference.node}"
        return check.fail(difference.node, summary, check.fix, f"{REPAIR}{limit}", **more)
    return check.fail(difference.node, summary, **more)


def said(origin: Origin) -> str:
    """Describe when, by whom and how something was changed, as far as known."""
    since = f"since {moment(origin.at)}" if origin.at else "time unknown"
    if origin.by:
        return f"{since}, by {origin.by}: {origin.how}" if origin.how else f"{since}, by {origin.by}"
    others = f"; possibly {' or '.join(origin.others)}" if origin.others else ""
    return f"{since}, author unknown{others}"


def moment(at: float) -> str:
    return dt.datetime.fromtimestamp(at, dt.timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")


def as_dict(one: Drifted, status: str) -> dict[str, Any]:
    """Return the difference as an entry of drift.json."""
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
