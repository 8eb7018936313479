"""Finds running launchers of PyTorch ranks on this node, started by any user, and their ranks.

A launcher is recognized by its command line. A rank without a known launcher (for example under srun) counts as its own
launcher. Root sees the processes of all users. Other users see only their own processes.
"""

from __future__ import annotations

import os
import pwd
import time
from collections import defaultdict
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from ..launch import state
from ..launch.foreign import number
from ..tools import files, process
from ..tools.as_user import SilentError, as_user
from . import hook, observed, program, shots

if TYPE_CHECKING:
    from collections.abc import Iterator

Json = dict[str, Any]

SECONDS, SHOTS_SECONDS = 10.0, 3.0  # a hanging launch may keep a node busy; used only on request
MOST_PROCESSES = 1 << 16  # inspected processes
MOST_AGENTS = 32
MOST_USERS = 8
MOST_DEPTH = 50  # followed parents of a process
PROGRAMS = ("torchrun", "accelerate", "accelerate-launch", "deepspeed")
MODULES = (
    "torch.distributed.run",
    "torch.distributed.launch",
    "accelerate.commands.launch",
    "deepspeed.launcher.launch",
)
PARTS_OF_PATH = ("torch/distributed/run.py", "torch/distributed/launch.py", "deepspeed/launcher/launch.py")


class Seen(NamedTuple):
    pid: int
    parent: int
    started: int
    uid: int
    argv: list[str]
    env: dict[str, str]


def agents(request: Json) -> Json:
    """Return {agents, unseen}. request: {key}; see Agent in muster/diagnosis/evidence.py."""
    unseen: dict[str, str] = {}
    if os.geteuid() != 0:
        unseen["others"] = "only root can see whether other users' processes are ranks"
    try:
        found: list[Json] = as_user(None, lambda: _agents(request["key"]), seconds=SECONDS)
    except SilentError as silent:
        return {"agents": [], "unseen": {**unseen, "agents": f"the processes could not be listed: {silent.strerror}"}}
    by_user: defaultdict[int, list[Json]] = defaultdict(list)
    for agent in found:
        by_user[agent.pop("uid")].append(agent)
    for uid, theirs in list(by_user.items())[:MOST_USERS]:
        try:
            pictured = as_user(account(uid, theirs[0]["pid"]), partial(with_shots, theirs), seconds=SHOTS_SECONDS)
        except OSError as why:  # the process is gone, or the check timed out
            unseen[f"ranks of {files.user_name(uid)}"] = str(why)
            pictured = [{**agent, "ranks": []} for agent in theirs]
        by_user[uid] = pictured
    return {"agents": [agent for theirs in by_user.values() for agent in theirs], "unseen": unseen}


def account(uid: int, pid: int) -> pwd.struct_passwd:
    """Return the account of a process. The uid of a process in a container can be unknown on this node. Raises
    OSError."""
    try:
        return pwd.getpwuid(uid)
    except KeyError:
        return pwd.struct_passwd((str(uid), "x", uid, os.stat(f"/proc/{pid}").st_gid, "", "/", ""))


def with_shots(theirs: list[Json]) -> list[Json]:
    return [{**agent, "ranks": shots.shots(agent["ranks"], {}, partial(observe, agent["pid"]))} for agent in theirs]


def observe(agent: int, pids: list[int]) -> dict[int, Json]:
    """Observe ranks through their sockets if they belong to a Muster launch, and with py-spy otherwise."""
    launch = process.launch_at(agent)
    return observed.all_observed(pids, f"{state.dir_of(launch)}/{hook.SOCKETS}" if launch else "")


def _agents(key: str) -> list[Json]:
    seen = {each.pid: each for each in processes()}
    launchers = {pid for pid, each in seen.items() if is_launcher(each.argv)}
    ranks: defaultdict[int, list[Json]] = defaultdict(list)
    for pid, each in seen.items():
        rank = rank_of(each)
        if rank is None or pid in launchers:
            continue
        above = list(ancestors(pid, seen))
        if any(rank_of(seen[one]) is not None and one not in launchers for one in above):
            continue  # a child process of a rank, with the same environment
        ranks[next((one for one in above if one in launchers), pid)].append(rank)
    # In nested launchers, such as torch's within accelerate, the innermost has the ranks.
    outer = {one for pid in launchers for one in ancestors(pid, seen) if one in launchers and pid in ranks}
    wanted = [pid for pid in seen if pid in ranks or (pid in launchers and pid not in outer)]
    return [agent(seen[pid], ranks[pid], key) for pid in wanted[:MOST_AGENTS]]


def processes() -> Iterator[Seen]:
    for pid in process.ids()[:MOST_PROCESSES]:
        status = process.status(pid)
        argv = process.words(pid)
        if status is None or not argv or status.state in process.GONE:
            continue  # gone meanwhile, or a kernel thread
        uid = process.user_id(pid)
        if uid is not None:
            yield Seen(pid, status.parent, status.started, uid, argv, process.environment(pid))


def is_launcher(argv: list[str]) -> bool:
    """Return whether a command line starts a launcher, directly or as a script or module of Python."""
    what, words = argv[0], iter(argv[1:])
    if os.path.basename(what).startswith("python"):
        what = next((word for word in words if word == "-m" or not word.startswith("-")), "")
        if what == "-m":
            return next(words, "") in MODULES
    return os.path.basename(what) in PROGRAMS or what.endswith(PARTS_OF_PATH)


def rank_of(each: Seen) -> Json | None:
    rank, local = (number(each.env.get(name, "")) for name in ("RANK", "LOCAL_RANK"))
    if rank is None:
        return None
    return {"rank": rank, "local_rank": local or 0, "pid": each.pid, "started": each.started}


def ancestors(pid: int, seen: dict[int, Seen]) -> Iterator[int]:
    for _ in range(MOST_DEPTH):
        pid = seen[pid].parent
        if pid not in seen:
            return
        yield pid


def agent(each: Seen, ranks: list[Json], key: str) -> Json:
    status, age = process.status(each.pid), process.age(each.pid)
    try:
        cwd = os.readlink(f"/proc/{each.pid}/cwd")
    except OSError:
        cwd = ""
    return {
        "uid": each.uid,
        "pid": each.pid,
        "user": files.user_name(each.uid),
        "argv": program.shortened(each.argv),
        "cwd": cwd,
        "started": 0 if age is None else time.time() - age,
        "state": status.state if status else "",
        "environment": program.environment(each.env, key),
        "ranks": ranks,
        "unit": process.unit(each.pid),
    }
