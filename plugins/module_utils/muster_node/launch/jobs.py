"""List the launches of all users on this node, as far as the current user can see them. Changes nothing.

Launches run in units of the system and of users' systemd instances. The kernel shows the unit of a process to every
user. The files of a launch are read as the launch's user.
"""

from __future__ import annotations

import json
import os
import pwd
import re
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from ..tools import files, process
from ..tools.as_user import SilentError, as_user
from ..tools.run import run
from . import foreign, kept, state, written
from .logs import error_files, log_files, log_folder, sizes

if TYPE_CHECKING:
    from collections.abc import Iterator

Json = dict[str, Any]
AGENT = 8192  # bytes of the launcher's own log, which ends with its table of exit codes
ALL_RANKS = 1 << 16  # bytes of all ranks' stderr together
RANK = 8192  # and of one rank's: a traceback of forty frames
MOST_ERROR = 1 << 14  # characters of an error file


# ---------------------------------------------------------------- last output

# The last output of a failed launch on this node, from which the controller finds the rank that failed first.
#
# Read as the launch's user, who controls all of it. Its size is limited, because a list has it for every launch.


def last_words(run_dir: str, result: Json | None, ranks: list[Json]) -> Json | None:
    """Return the last log output and errors by local rank: {agent, stderr, errors, ranks}; None if the launch succeeded
    on this node. ranks: see running.py."""
    if result and (result["reason"], result.get("code")) == ("exit", 0):
        return None
    found: Json = {"agent": "", "stderr": {}, "errors": {}, "ranks": ranks}
    try:
        with log_folder(run_dir) as (logs, uid):
            wanted = {key: path for key, path in log_files(logs) if not key.endswith("/stdout")}
            most = min(RANK, ALL_RANKS // max(1, len(wanted) - 1))
            for key, path in wanted.items():
                text = tail(logs, uid, path, most if "/" in key else AGENT)
                if "/" in key:
                    found["stderr"][key.partition("/")[0]] = text
                else:
                    found["agent"] = text
            errors = error_files(logs, uid)
    except OSError:
        return found
    left = ALL_RANKS
    for local, error in errors.items():
        size = len(json.dumps(error))
        if size <= min(left, MOST_ERROR):
            found["errors"][local] = error
            left -= size
    return found


def tail(logs: int, uid: int, path: str, most: int) -> str:
    try:
        return files.part(path, -most, most, within=logs, owner=uid).decode("utf-8", "replace")
    except OSError:
        return ""


SECONDS = 5.0  # for each launch
ALL_SECONDS = 30.0
MOST = 100  # launches
MOST_USERS = 500
MOST_NODES = 1024
MOST_NAME = 200
MOST_WORDS = 1 << 20  # characters of failed launches' output; of the others, only the last lines are shown
TAIL = 8192  # bytes at the end of a log that are searched for the last lines
SMI_SECONDS = 12.0
SMI = ("--query-gpu=index,utilization.gpu,memory.used,memory.total", "--format=csv,noheader,nounits")


class Root(NamedTuple):
    """The folder with the launches of one owner, and the folder with their state. user: user of user launches; None for
    administrator launches."""

    folder: str
    state: str
    user: pwd.struct_passwd | None


class KeptLaunch(NamedTuple):
    """A launch. pids: processes of its unit in start order."""

    root: Root
    launch_id: str
    pids: list[int]


def jobs(request: Json) -> Json:
    """Return {launches, gpus, left_out}. request: {node, run_root, users_root, ended, lines}.

    ended: number of finished launches to list for each owner. lines: number of last lines of each launch's newest log.
    """
    deadline = time.monotonic() + ALL_SECONDS
    found: list[Json] = []
    left_out = words = 0
    for launch in launches(request):
        if len(found) == MOST or time.monotonic() > deadline:
            left_out += 1
            continue
        found.append(looked_at(launch, request))
        words += len(json.dumps(found[-1]["failed"]))
        if words > MOST_WORDS:
            found[-1]["failed"] = None
    gpus = gpu_facts() if any("gpu" in seat for one in found if not one["over"] for seat in one["seats"]) else {}
    return {"launches": found, "gpus": gpus, "left_out": left_out, "clock": time.time()}


def plan(request: Json) -> Json:
    """Return {plan (packed), run_dir, user, manager, reader} of one launch on this node; empty values if there is no
    such launch.

    request: {launch_id, run_root, users_root}. reader: uid of the account that can inspect the launch without root. A
    running launch has precedence over a folder of the same name, because any user can create one.
    """
    running = process.in_launches()

    def is_aside(root: Root) -> bool:
        return root.user is not None and (root.user.pw_uid, request["launch_id"]) not in running

    for root in sorted(roots(request), key=is_aside):
        run_dir = f"{root.folder}/{request['launch_id']}"
        with suppress(OSError), files.folder(run_dir) as folder:
            owner = os.fstat(folder).st_uid
            if owner != (root.user.pw_uid if root.user else 0):
                continue
            text = files.read(kept.PLAN, most=kept.MOST_PLAN, within=folder, owner=owner)
            return {
                "plan": kept.packed(text),
                "run_dir": run_dir,
                "user": root.user.pw_name if root.user else "",
                "manager": "user" if root.user else "system",
                "reader": _owner(f"{root.state}/{request['launch_id']}/lease"),
            }
    return {"plan": "", "run_dir": "", "user": "", "manager": "", "reader": None}


def follow(request: Json) -> Json:
    """Wait for new output and return {logs, over}: output after the offsets, or the last `tail` bytes.

    Following a launch does not renew its lease.
    request: {launch_id, run_dir, offsets, tail, limit, wait}
    """
    if not request["offsets"]:
        request["offsets"] = {"": 0, **_ends(request)}
    over = all(launch_id != request["launch_id"] for _, launch_id in process.in_launches())
    if not over:
        written.wait_for_news(request)
    return {"logs": written.read_logs(request), "over": over, "offsets": request["offsets"]}


def _ends(request: Json) -> dict[str, int]:
    def sizes_there() -> dict[str, int]:
        with log_folder(request["run_dir"]) as (logs, _):
            return sizes(logs)

    try:
        there: dict[str, int] = written.in_its_name(request, sizes_there)
    except SilentError:
        return {}
    return {key: max(0, size - request["tail"]) for key, size in there.items()}


# ---------------------------------------------------------------- the list


def roots(request: Json) -> list[Root]:
    found = [Root(request["run_root"], state.STATE_ROOT, None)]
    try:
        names = files.names(request["users_root"], links=True, most=MOST_USERS)
    except OSError:
        return found
    for name in names:
        folder = f"{request['users_root']}/{name}"
        with suppress(OSError, KeyError):
            user = pwd.getpwnam(name)
            if os.stat(folder, follow_symlinks=False).st_uid == user.pw_uid:
                found.append(Root(f"{folder}/launches", state.OWN_ROOT.format(user.pw_uid), user))
    return found


def launches(request: Json) -> Iterator[KeptLaunch]:
    """Yield running launches, launches whose end was not recorded, and the newest finished launches of each owner."""
    running = process.in_launches()
    for root in roots(request):
        uid = root.user.pw_uid if root.user else None
        here = {launch_id: pids for (owner, launch_id), pids in running.items() if owner == uid}
        unseen = kept.launches(root.state)
        over = [one for one in kept.launches(root.folder) if one not in here and one not in unseen]
        for launch_id in sorted({*here, *unseen, *over[: request["ended"]]}, reverse=True):
            yield KeptLaunch(root, launch_id, here.get(launch_id, []))
    known = {root.user.pw_uid if root.user else None for root in roots(request)}
    for (owner, launch_id), pids in running.items():
        if owner not in known:
            with suppress(KeyError):
                user = pwd.getpwuid(owner or 0)
                yield KeptLaunch(Root("", state.OWN_ROOT.format(owner), user), launch_id, pids)


# ---------------------------------------------------------------- one launch


def looked_at(launch: KeptLaunch, request: Json) -> Json:
    """Return the description of a launch; see Job in muster/launch/jobs.py."""
    run_dir = f"{launch.root.folder}/{launch.launch_id}"
    known = {
        "launch_id": launch.launch_id,
        "manager": "user" if launch.root.user else "system",
        "user": launch.root.user.pw_name if launch.root.user else _name(launch.pids, f"{run_dir}/logs"),
        "seconds": process.age(launch.pids[0]) if launch.pids else None,
        "over": not launch.pids,
    }
    nothing: Json = {"state": "", "seats": [], "nodes": [], "lines": [], "log": "", "why": ""}
    nothing.update(result=None, failed=None)
    owner = _user(_owner(f"{run_dir}/logs"))
    if owner is None:
        return {**nothing, **known, "hidden": True}
    try:
        seen = as_user(owner, lambda: _facts(launch, run_dir, request), seconds=SECONDS)
    except SilentError as silent:
        return {**nothing, **known, "hidden": True, "why": f"could not be checked: {silent.strerror}"}
    hidden = os.geteuid() not in {0, owner.pw_uid}
    if hidden and launch.pids:
        seen["state"] = "running"  # the state in its main process's files is not readable
    return {**nothing, **known, **seen, "hidden": hidden}


def _facts(launch: KeptLaunch, run_dir: str, request: Json) -> Json:
    """Read the data of a launch. Runs as the launch's user."""
    unit = f"{launch.root.state}/{launch.launch_id}/unit"
    table = foreign.table(_json(unit, "ranks.json"))
    end = kept.read_end(run_dir)
    result = foreign.result(_json(unit, "result.json")) or (end or {}).get("result")
    until, word = state.lease(f"{launch.root.state}/{launch.launch_id}")
    log, lines = last_lines(run_dir, request["lines"])
    failed = None if launch.pids else last_words(run_dir, result, table["ranks"] or (end or {}).get("ranks", []))
    return {
        "state": state_of(launch, table, word, ended=bool(result or end)),
        "result": result,
        "why": (end or {}).get("why", ""),
        "ended_at": (end or {}).get("at") or (result or {}).get("ended_at"),
        "detached": until == float("inf"),
        "log": log,
        "lines": lines,
        "failed": failed,
        **of_plan(kept.read_plan(run_dir) or {}, request["node"]),
    }


def state_of(launch: KeptLaunch, table: Json, word: str, *, ended: bool) -> str:
    if launch.pids:
        if table["ending"]:
            return "ending"
        if any(rank["gone_at"] is None for rank in table["ranks"]):
            return "running"
        return "waiting" if word in {state.TAKE, state.LET_GO} and not table["ranks"] else "starting"
    return "ended" if ended else "gone"


def of_plan(plan: Json, node: str) -> Json:
    """Return the parts of a plan that the list needs. The plan is untrusted, because a user might have written it."""
    entries = [one for one in plan["nodes"] if isinstance(one, dict)] if isinstance(plan.get("nodes"), list) else []
    here = next((one for one in entries if one.get("node") == node), {})
    said = plan.get("begun")
    begun: Json = said if isinstance(said, dict) else {}
    known = plan.get("watched")
    watched: Json = known if isinstance(known, dict) else {}
    return {
        "nodes": [str(one.get("node"))[:MOST_NAME] for one in entries[:MOST_NODES]],
        "ranks": here.get("ranks"),
        "launcher": str(plan.get("launcher") or "")[:MOST_NAME],
        "world_size": plan.get("world_size"),
        "what": str(plan.get("what") or "")[:MOST_NAME],
        "by": str(begun.get("by") or "")[:MOST_NAME],
        "began": begun.get("at"),
        "attempt": plan.get("attempt"),
        "watched": {name: str(watched.get(name))[:MOST_NAME] for name in ("node", "launch_id")} if watched else None,
        "seats": [str(seat)[:MOST_NAME] for seat in here.get("seats") or []][:MOST_NODES],
    }


def last_lines(run_dir: str, most: int) -> tuple[str, list[str]]:
    """Return the key (see logs.py) and the last lines of the log with the most recent output."""
    try:
        with log_folder(run_dir) as (logs, uid):
            there = []
            for key, path in log_files(logs):
                with suppress(OSError):
                    seen = os.stat(path, dir_fd=logs, follow_symlinks=False)
                    if seen.st_size:
                        there.append((seen.st_mtime_ns, key, path))
            if not there or not most:
                return "", []
            _, key, path = max(there)
            text = files.part(path, -TAIL, TAIL, within=logs, owner=uid).decode("utf-8", "replace")
    except OSError:
        return "", []
    lines = [line for line in re.split(r"[\r\n]+", text) if line.strip()]
    return key, [line[:MOST_NAME] for line in lines[-most:]]


def _json(folder: str, name: str) -> Any:
    try:
        with files.folder(folder) as unit:
            return foreign.parsed(files.read(name, most=1_000_000, within=unit, owner=os.fstat(unit).st_uid))
    except OSError:
        return None


def _owner(path: str) -> int | None:
    try:
        return os.stat(path, follow_symlinks=False).st_uid
    except OSError:
        return None


def _user(uid: int | None) -> pwd.struct_passwd | None:
    try:
        return None if uid is None else pwd.getpwuid(uid)
    except KeyError:
        return None


def _name(pids: list[int], folder: str) -> str:
    """Return the user that the ranks of an administrator launch run as."""
    owner = _user(_owner(folder))
    return owner.pw_name if owner else process.owner(pids[-1]) if pids else ""


# ---------------------------------------------------------------- GPUs


def gpu_facts() -> Json:
    """Return {busy (percent), used (MiB), total (MiB)} by GPU number, or {why} after an error."""
    answer = run("nvidia-smi", *SMI, seconds=SMI_SECONDS)
    if answer.code != 0:
        return {"why": answer.why}
    found: Json = {}
    for line in answer.text.splitlines():
        words = [word.strip() for word in line.split(",")]
        if len(words) == 4 and words[0].isdecimal():
            values = [int(word) if word.isdecimal() else None for word in words[1:]]
            found[words[0]] = dict(zip(("busy", "used", "total"), values, strict=True))
    return found
