"""Decides which run is allowed to change this node. Only one run at a time can hold the claim, and must renew it.

Run by NodeProgram (plugin_utils), with a verb as argument and a JSON payload on standard input. All verbs need root.

    look   return the holder
    take   claim the node, unless another run holds the claim
    renew  extend the claim
    free   release the claim

The claim is a file in a folder that only root can access. The claim ends at a reboot or when its lease expires. The
lease uses a clock that cannot be set and that continues during suspend. A released claim is kept, so that an
interrupted run notices that another run was active. The journal has a line for each claim and release: journalctl -t
muster.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import syslog
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from ..tools import files
from ..tools.program import answer

if TYPE_CHECKING:
    from collections.abc import Callable

Json = dict[str, Any]

FOLDER = "/run/muster/claim"
TAG = "muster"
PATIENCE = 20  # seconds to wait for the lock, so that a stuck process does not block this one
SHOWN = ("who", "doing", "since", "token")


def main() -> None:
    # Launches keep files below the same parent folder, which their users must be able to access.
    os.umask(0o022)
    verbs: dict[str, Callable[[Json, Json], Json]] = {"look": look, "take": take, "renew": renew, "free": free}
    answer({name: partial(alone, verb) for name, verb in verbs.items()})


def alone(verb: Callable[[Json, Json], Json], request: Json) -> Json:
    """Run one verb under a lock. It receives the current claim: {token, who, doing, since, until, freed}, or {} if
    there is none."""
    os.makedirs(os.path.dirname(FOLDER), mode=0o755, exist_ok=True)
    os.makedirs(FOLDER, mode=0o700, exist_ok=True)
    with files.folder(FOLDER, owner=os.geteuid()) as folder:
        signal.alarm(PATIENCE)
        fcntl.flock(folder, fcntl.LOCK_EX)
        signal.alarm(0)
        try:
            claim = json.loads(files.read("claim.json", within=folder))
        except FileNotFoundError:
            claim = {}
        return verb(request, claim)


def look(_request: Json, claim: Json) -> Json:
    """Return {holder: {who, doing, since, token}}, or {holder: None}."""
    return {"holder": shown(claim) if lives(claim) else None}


def take(request: Json, claim: Json) -> Json:
    """Claim the node. request: {token, who, doing, lease, take_over}. Return {held, holder}; holder: the other run that
    holds the claim."""
    foreign = claim.get("token") != request["token"]
    if foreign and lives(claim) and not request["take_over"]:
        return {"held": False, "holder": shown(claim)}
    if foreign:
        gone = f", which {claim['who']} had" if lives(claim) else ""
        gone = gone or (f"; {claim['who']} is gone" if claim and not claim["freed"] else "")
        note(f"{request['who']} takes the claim for {request['doing']}{gone}")
    have(request, {} if foreign else claim)
    return {"held": True, "holder": None}


def renew(request: Json, claim: Json) -> Json:
    """Extend the claim; see `take`. A late renewal must not restore a lost claim. The claim is lost if this run
    released it, or if another run has claimed the node since (even if that run has released its claim)."""
    if claim and (claim["token"] != request["token"] or claim["freed"]):
        return {"held": False, "holder": shown(claim)}
    have(request, claim)
    return {"held": True, "holder": None}


def free(request: Json, claim: Json) -> Json:
    """Release the claim. request: {token, who, doing, result}."""
    if claim and claim["token"] == request["token"] and not claim["freed"]:
        save({**claim, "freed": True})
        note(f"{request['who']} frees the claim: {request['doing']}: {request['result']}")
    return {}


def lives(claim: Json) -> bool:
    return bool(claim) and not claim["freed"] and clock() < claim["until"]


def have(request: Json, claim: Json) -> None:
    since = claim.get("since") or time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
    own = {name: request[name] for name in ("token", "who", "doing")}
    save({**own, "since": since, "until": clock() + request["lease"], "freed": False})


def shown(claim: Json) -> Json:
    return {name: claim[name] for name in SHOWN}


def save(claim: Json) -> None:
    files.replace(f"{FOLDER}/claim.json", json.dumps(claim).encode(), mode=0o600)


def clock() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def note(text: str) -> None:
    syslog.openlog(TAG)
    syslog.syslog(syslog.LOG_NOTICE, text)


if __name__ == "__main__":
    main()
