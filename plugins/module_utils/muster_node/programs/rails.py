"""Runs the RDMA test on one node: the tools of rdma-core and perftest, as the training user.

Run by NodeProgram (plugin_utils), with a verb as argument and a JSON payload on standard input.

    serve   start the listening ends, and return their ports once they listen; each one ends when its caller ends or
            after its time limit
    call    run the calling ends: all rails in parallel, the steps of each rail in order
    end     end remaining listeners, for example after a calling end has failed

The controller defines the commands (muster/rails/plan.py).
"""

from __future__ import annotations

import os
import pwd
import resource
import shutil
import signal
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from ..tools import process
from ..tools.program import answer
from ..tools.run import CLEAN, CommandResult, run
from ..tools.sockets import LISTENING, can_listen, sockets

Json = dict[str, Any]
READY = 5.0  # seconds for a tool to open its adapter and listen
MOST = 8000  # bytes of a tool's output


def main() -> None:
    # RDMA pins memory. A launch has no memlock limit (unit_properties), so its test has none either. In a container
    # root may not be able to raise the limit; the existing limit is used then.
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    answer({"serve": serve, "call": call, "end": end})


def serve(request: Json) -> Json:
    """Start the listening ends. request: {user, ports: [low, high, excluded port], rails: [[argv of each step]],
    seconds: time limit of each step}.

    Returns {rails: [[{port, why, missing, pid, started}]]}.
    """
    user = identity(request["user"])
    low, high, other = request["ports"]
    free = iter(port for port in range(high, low - 1, -1) if port != other and can_listen(port))
    rails = [[started(argv, next(free, 0), user, request["seconds"]) for argv in rail] for rail in request["rails"]]
    until = time.monotonic() + READY
    while time.monotonic() < until:
        waited_for = {each["port"] for rail in rails for each in rail if each["process"]} - listening()
        dead = {
            each["port"] for rail in rails for each in rail if each["process"] and each["process"].poll() is not None
        }
        if not waited_for - dead:
            break
        time.sleep(0.05)
    ready = listening()
    return {"rails": [[told(each, ready) for each in rail] for rail in rails]}


def identity(name: str) -> pwd.struct_passwd | None:
    """Return the user to run as, or None to keep the current user if this process is not root."""
    if os.geteuid() != 0:
        return None
    with suppress(KeyError):
        return pwd.getpwnam(name)
    raise SystemExit(f"the training user {name} does not exist")


def started(argv: list[str], port: int, user: pwd.struct_passwd | None, seconds: float) -> Json:
    """Start one listening end with a time limit. The output goes to an anonymous file."""
    if not port or not shutil.which(argv[0], path=CLEAN["PATH"]):
        why = f"{argv[0]} is not installed" if port else "no port of firewall_launch_ports is free"
        return {"port": 0, "process": None, "said": None, "why": why, "missing": bool(port)}
    said = os.memfd_create("said")
    as_whom: dict[str, Any] = {}
    if user is not None:
        groups = os.getgrouplist(user.pw_name, user.pw_gid)
        as_whom = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": groups}
    begun = subprocess.Popen(
        ["timeout", "--kill-after=1", f"{seconds:.0f}", *argv, "-p", str(port)],
        stdin=subprocess.DEVNULL,
        stdout=said,
        stderr=said,
        env=CLEAN,
        cwd="/",
        start_new_session=True,
        **as_whom,
    )
    return {"port": port, "process": begun, "said": said, "why": "", "missing": False}


def listening() -> set[int]:
    """Return the ports with a listener."""
    return {one.port for one in sockets() if one.state == LISTENING}


def told(each: Json, ready: set[int]) -> Json:
    why = each["why"]
    if each["process"] and each["port"] not in ready:
        why = " ".join(last_words(each["said"]).split()) or "the tool did not start listening"
    pid = each["process"].pid if each["process"] else 0
    seen = process.status(pid) if pid else None
    return {
        **{key: each[key] for key in ("port", "missing")},
        "why": why,
        "pid": pid,
        "started": seen.started if seen else 0,
    }


def last_words(said: int) -> str:
    return os.pread(said, MOST, 0).decode(errors="replace")[-300:]


def call(request: Json) -> Json:
    """Run the calling ends. request: {user, rails: [[argv of each step, with the address to call]], seconds: time limit
    of each step}.

    Returns {rails: [[{text, aside, why, missing}]]}: the results of each rail's steps, up to the first failed step.
    """
    user = identity(request["user"])
    rails: list[list[Json]] = [[] for _ in request["rails"]]
    with ThreadPoolExecutor(max_workers=max(1, len(rails))) as pool:
        for step in range(max(map(len, request["rails"]), default=0)):
            able = [
                number
                for number, rail in enumerate(request["rails"])
                if step < len(rail) and not any(said["why"] for said in rails[number])
            ]
            asked = [
                pool.submit(run, *request["rails"][number][step], seconds=request["seconds"], user=user, most=MOST)
                for number in able
            ]
            for number, each in zip(able, asked, strict=True):
                rails[number].append(shown(each.result()))
    return {"rails": rails}


def shown(said: CommandResult) -> Json:
    return {"text": said.text, "aside": said.aside, "why": said.why, "missing": said.missing}


def end(request: Json) -> Json:
    """End remaining listeners. request: {ends: [{pid, started}]}. Each process has its own session."""
    for each in request["ends"]:
        if each["started"] and process.runs(each["pid"], each["started"]):
            with suppress(ProcessLookupError):
                os.killpg(each["pid"], signal.SIGTERM)
    return {"ended": True}


if __name__ == "__main__":
    main()
