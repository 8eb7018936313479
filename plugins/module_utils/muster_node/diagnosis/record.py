"""Records the state of a node at the start and the end of a launch; see NodeRecord in muster/diagnosis/evidence.py.

In an administrator launch, root checks the machine, and the training user checks its own files: script, folders and
environment. In a user launch, the user checks everything, and root-only parts are marked as unseen.
"""

from __future__ import annotations

import os
import re
import socket
import time
from typing import Any

from ..launch import state, written
from ..launch.foreign import parsed
from ..tools import control_group, files, process
from ..tools.as_user import SilentError
from . import hook, kernel, machine, network, observed, program
from .parts import Parts, UnseenError

Json = dict[str, Any]

STARTING, ENDED = "start", "end"
# Time limits in seconds, reached only if a file system, a name server or a driver hangs.
USERS = {STARTING: 2.0, ENDED: 3.0}
NAMES = {STARTING: 0.1, ENDED: 0.3}
GPUS = {STARTING: 0.0, ENDED: 2.0}
SYSTEMCTL = 2.0
LIMIT = re.compile(r"^(Max [a-z ]+?) {2,}(\S+) +(\S+)", re.MULTILINE)
MOST_SPEC = 4_000_000  # bytes
NOT_AT_START = "checked only at the end"
NOT_ROOT = "requires root; this is a user launch"


def started(request: Json, spec: Json) -> Json:
    """Return the node's record at the start of a launch. request: RecordRequest. spec: StartRequest of the launch,
    whose unit was just created."""
    return record(request, spec, STARTING, group_facts(main_process(spec["launch_id"]), {}))


class Ended:
    """The record of a launch that is being stopped. request: RecordRequest."""

    def __init__(self, request: Json) -> None:
        self.request = request
        self.unit: tuple[Json | None, Json] = (None, {})

    def before_stop(self) -> None:
        """Record the control group and the limits of the unit's main process. If the process has ended, use the control
        group data that it wrote."""
        launch_id = self.request["launch_id"]
        self.unit = group_facts(main_process(launch_id), written.read_group(launch_id) or {})

    def record(self) -> Json:
        return record(self.request, read_spec(self.request["launch_id"]), ENDED, self.unit)


def main_process(launch_id: str) -> int:
    asked = state.systemctl("show", state.unit_name(launch_id), "--property=MainPID", "--value", seconds=SYSTEMCTL)
    return int(asked.text.strip() or 0) if asked.text.strip().isdecimal() else 0


def group_facts(pid: int, noted: Json) -> tuple[Json | None, Json]:
    """Return the control group of the unit, and the limits of its main process. noted: data that the main process
    wrote."""
    if not pid:
        return noted or None, {}
    try:
        return control_group.unit_facts(pid), limits(pid)
    except LookupError:
        return noted or None, limits(pid)


def limits(pid: int) -> dict[str, list[int | None]]:
    """Return {limit: [soft, hard]}; None means unlimited."""
    return {
        name.lower().replace(" ", "_"): [number(soft), number(hard)]
        for name, soft, hard in LIMIT.findall(process.read(pid, "limits"))
    }


def number(said: str) -> int | None:
    return int(said) if said.isdecimal() else None


def record(request: Json, spec: Json, moment: str, unit: tuple[Json | None, Json]) -> Json:
    parts = Parts()
    hostname = socket.gethostname()
    theirs = of_the_user(request, spec, moment, hostname)
    parts.look("boot_id", process.boot, "")
    for name, work in (("counters", machine.counters), ("pressure", machine.pressure), ("memory", machine.memory)):
        parts.look(name, work, {})
    parts.look("ip", lambda: network.ask_ip(request["peers"]), ({}, {}))
    addresses, routes = parts.found.pop("ip")
    parts.look("interfaces", lambda: network.interfaces(addresses), {})
    parts.look("fabric", machine.fabric, None)
    parts.look("gpus", lambda: gpus(request, moment), None)
    parts.look("kernel", lambda: kernel_lines(request, moment), None)
    parts.unseen.update(theirs.pop("unseen"))
    facts, limits_ = unit
    if facts is None:
        parts.leave("unit", "the control group no longer exists or is not visible")
    if not limits_:
        parts.leave("limits", "the unit's main process has exited")
    return {
        "at": time.time(),
        "hostname": hostname,
        "routes": routes,
        "limits": limits_,
        "unit": facts,
        **theirs,
        **parts.found,
        "unseen": parts.unseen,
    }


def gpus(request: Json, moment: str) -> list[Json]:
    if not request["gpus"]:
        raise UnseenError("the launch uses no GPUs")
    if not GPUS[moment]:
        raise UnseenError(NOT_AT_START)
    return machine.gpus(GPUS[moment])


def kernel_lines(request: Json, moment: str) -> list[Json]:
    if moment == STARTING:
        raise UnseenError(NOT_AT_START)
    if os.geteuid() != 0:
        raise UnseenError(NOT_ROOT)
    # The unit's program belongs to root, and was written when the launch began.
    try:
        age = time.time() - os.stat(f"{state.state_dir(request['launch_id'])}/node.py").st_mtime
    except OSError:
        raise UnseenError("the launch's state folder no longer exists, so its start time is unknown") from None
    return kernel.since(time.monotonic() - age)


# ---------------------------------------------------------------- as the training user


def of_the_user(request: Json, spec: Json, moment: str, hostname: str) -> Json:
    """Collect the data that the training user can access: {program, disks, names, left, unseen}."""
    table = written.read_table(request["launch_id"])["ranks"] if moment == ENDED else []
    try:
        found: Json = written.in_its_name(
            request, lambda: _of_the_user(request, spec, moment, hostname, table), USERS[moment]
        )
    except SilentError as silent:
        nothing: Json = {"program": None, "disks": [], "names": {}, "left": []}
        return {**nothing, "unseen": dict.fromkeys(nothing, f"failed as the training user: {silent.strerror}")}
    return found


def _of_the_user(request: Json, spec: Json, moment: str, hostname: str, table: list[Json]) -> Json:
    until = time.monotonic() + NAMES[moment]
    resolving = network.Resolving([hostname, *request["names"]])
    parts = Parts()
    work = spec.get("work_dir") or working_folder(spec)
    parts.look("disks", lambda: machine.disks(request["run_dir"], work), [])
    parts.look("program", lambda: program_facts(request, spec, parts), None)
    parts.look("left", lambda: observed.left(table, f"{state.state_dir(request['launch_id'])}/{hook.SOCKETS}"), [])
    names, silent = resolving.answers(until)
    if silent:
        parts.leave("names", f"name resolution did not finish within {NAMES[moment]:g} s for {', '.join(silent)}")
    return {**parts.found, "names": names, "unseen": parts.unseen}


def program_facts(request: Json, spec: Json, parts: Parts) -> Json:
    if not spec:
        raise UnseenError("the launch's state folder no longer exists")
    argv, env, cwd = spec["argv"], spec["env"], working_folder(spec)
    # Files within an image are not visible here.
    executable, interpreter = ("", "") if spec.get("image") else program.behind(argv, env)
    digests, why = program.digests(request["script"], cwd)
    if why:
        parts.leave("digests", why)
    return {
        "argv": program.shortened(argv),
        "executable": executable,
        "interpreter": interpreter,
        "script": request["script"],
        "cwd": cwd,
        "digests": digests,
        "versions": {} if spec.get("image") else program.versions(request["environment"], interpreter),
        "environment": program.environment(env, request["key"]),
    }


def working_folder(spec: Json) -> str:
    image = spec.get("image")
    if isinstance(image, dict):  # podman changes the folder within the container
        return str(image.get("chdir") or spec.get("work_dir", ""))
    return str(spec.get("properties", {}).get("WorkingDirectory", ""))


def read_spec(launch_id: str) -> Json:
    """Return the launch's spec, which its user could have changed since the start; {} if the spec is missing or
    invalid."""
    try:
        found: Any = written.in_its_name({"launch_id": launch_id}, lambda: _spec(launch_id))
    except SilentError:
        return {}
    return found if isinstance(found, dict) and is_spec(found) else {}


def _spec(launch_id: str) -> Any:
    return parsed(files.read(f"{state.state_dir(launch_id)}/spec.json", most=MOST_SPEC))


def is_spec(found: Json) -> bool:
    argv, env = found.get("argv"), found.get("env")
    texts = [*(argv if isinstance(argv, list) else [None]), *(env.values() if isinstance(env, dict) else [None])]
    return all(isinstance(text, str) for text in texts) and isinstance(found.get("properties", {}), dict)
