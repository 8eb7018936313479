"""Who may change this node: one run at a time, for as long as it renews its claim.

Run by Program (plugin_utils), with a verb as argument and a JSON payload on standard input. All verbs need root.

    look   who has the claim
    take   have it, unless another run has
    renew  have it for longer
    free   give it back

The claim is a file in a folder of root's own. It ends with its lease, by a clock that nobody can set and that goes on
while the node sleeps, and with a reboot. One that was freed stays as it is, so that a run that was cut off meanwhile
sees that another one was here. The journal has a line for each that was taken or freed: journalctl -t muster.
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
PATIENCE = 20  # seconds for the others who look at it in this moment; one that is stuck shall not hold us as well
SHOWN = ("who", "doing", "since", "token")


def main() -> None:
    # Launches have what they need below the same folder as the claims, and whoever runs them has to come to it.
    os.umask(0o022)
    verbs: dict[str, Callable[[Json, Json], Json]] = {"look": look, "take": take, "renew": renew, "free": free}
    answer({name: partial(alone, verb) for name, verb in verbs.items()})


def alone(verb: Callable[[Json, Json], Json], request: Json) -> Json:
    """Do one verb, with the claim as it is: {token, who, doing, since, until, freed}, or nothing in it."""
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
    """Return {holder: {who, doing, since, token}}, or None for it."""
    return {"holder": shown(claim) if lives(claim) else None}


def take(request: Json, claim: Json) -> Json:
    """request: {token, who, doing, lease, take_over}. Return {held, holder}: whose it is instead."""
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
    """As take; but whoever came meanwhile, even if they have gone again, is the end of this run's claim. So is its own
    end: a renewal that was under way then may come behind it."""
    if claim and (claim["token"] != request["token"] or claim["freed"]):
        return {"held": False, "holder": shown(claim)}
    have(request, claim)
    return {"held": True, "holder": None}


def free(request: Json, claim: Json) -> Json:
    """request: {token, who, doing, result}."""
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
