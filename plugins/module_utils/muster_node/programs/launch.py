"""What a launch does on one node: prepare, start, run, look, stop.

The supervisor on the controller runs it by Program (plugin_utils), with a verb as argument and a JSON payload on
standard input. Every verb prints one JSON object.

    identity  user   says who looks
    prepare   root   reads what a start depends on; writes nothing
    start     root   makes the run directory, the state directory and the unit
    run       user   the unit's main process: keeps the lease, runs torchrun, watches its ranks
    look      user   renews the lease; returns the unit, the ranks and what was logged since the last look
    logs      user   returns what was logged since the last look, after the end
    freeze    root   stops the ranks where they are
    stop      root   ends the unit, looks that nothing of it is left, and gives the last report

Two directories belong to a launch:
    /run/muster/launches/ID   the state: small, in memory, so that a full disk cannot hide what happened
    RUN_ROOT/ID               logs and whatever the job writes into its working directory
"""

from __future__ import annotations

import base64
import codecs
import errno
import fcntl
import glob
import json
import os
import pwd
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
from typing import Any

from ..tools import files, process
from ..tools.program import answer, own_text
from ..tools.run import run as command

Json = dict[str, Any]

STATE_ROOT = "/run/muster/launches"
LEASE_FORMAT = "{:>20.3f}\n"  # of one width, so that it is overwritten in place by a single write
# Only the training user and the group of the one who looks come past these two directories; what is inside is readable
# to whoever got that far. (A set-group-ID bit instead would be lost: the training user is not in that group.)
OUTER_MODE = 0o750
INNER_MODE = 0o755
LIMIT_SLACK = 60  # seconds behind the time limit after which systemd ends a unit whose main process did not
SIOCGIFADDR = 0x8915
SYSTEMCTL_SECONDS = 30
STOP_SECONDS = 600  # systemd itself ends what takes longer to stop than launch_stop_timeout
MOST_ERROR = 1_000_000  # bytes of an error.json
MOST_SOCKETS = 64_000_000  # bytes of the kernel's list of sockets


def main() -> None:
    if sys.argv[1] == "run":
        run(sys.argv[2])
        return
    answer(
        {
            "identity": identity,
            "prepare": prepare,
            "start": start,
            "look": look,
            "logs": logs,
            "freeze": freeze,
            "stop": stop,
        }
    )


# ---------------------------------------------------------------- prepare


def identity(_request: Json) -> Json:
    """Who the controller logs in as: the one who will look, and must be able to read."""
    return {"uid": os.getuid(), "gid": os.getgid()}


def prepare(request: Json) -> Json:
    """Facts that decide whether this node may start; reads only.

    request: {user, executable, script?, chdir?, run_root, address, interface, port?}; port only on the head node.
    """
    return {
        "hostname": socket.gethostname(),
        "uid": os.getuid(),
        "python": list(sys.version_info[:3]),
        "systemd": os.path.isdir("/run/systemd/system"),
        "cpus": len(os.sched_getaffinity(0)),
        "gpus": len([name for name in os.listdir("/dev") if name.startswith("nvidia") and name[6:].isdigit()]),
        "user": user_facts(request["user"]),
        "executable": file_facts(request["executable"], request["user"], os.X_OK),
        "script": file_facts(request["script"], request["user"], os.R_OK) if request.get("script") else None,
        "chdir": file_facts(request["chdir"], request["user"], os.X_OK) if request.get("chdir") else None,
        "disk": disk_facts(request["run_root"]),
        "interfaces": sorted(name for _, name in socket.if_nameindex()),
        "interface_of_address": interface_of(request["address"]),
        "port": port_facts(request["port"]) if request.get("port") else None,
        "launches": active_launches(),
    }


def user_facts(name: str) -> Json | None:
    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        return None
    return {"uid": entry.pw_uid, "gid": entry.pw_gid, "home": entry.pw_dir}


def file_facts(path: str, user: str, mode: int) -> Json:
    """Whether a path exists, and whether that user may use it: asked as that user, in a child process."""
    exists = os.path.exists(path)
    usable = False
    if exists:
        try:
            entry = pwd.getpwnam(user)
        except KeyError:
            entry = None
        if entry is not None and os.getuid() == 0:
            child = os.fork()
            if child == 0:
                try:
                    os.setgroups(os.getgrouplist(user, entry.pw_gid))
                    os.setgid(entry.pw_gid)
                    os.setuid(entry.pw_uid)
                    os._exit(0 if os.access(path, mode) else 1)
                finally:
                    os._exit(2)
            usable = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        else:
            usable = os.access(path, mode)
    return {"path": path, "exists": exists, "usable": usable}


def disk_facts(path: str) -> Json:
    """Free bytes where the run directory will be: of its nearest existing parent."""
    while not os.path.isdir(path):
        path = os.path.dirname(path) or "/"
    usage = os.statvfs(path)
    return {
        "path": path,
        "free": usage.f_bavail * usage.f_frsize,
        "total": usage.f_blocks * usage.f_frsize,
        "inodes_free": usage.f_favail if usage.f_files else None,
        "read_only": bool(usage.f_flag & os.ST_RDONLY),
    }


def interface_of(address: str) -> str | None:
    """Name of the interface that carries this address, or None."""
    if ":" in address:
        return interface_of_ipv6(address)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        for _, name in socket.if_nameindex():
            request = struct.pack("256s", name.encode()[:15])
            try:
                reply = fcntl.ioctl(sock.fileno(), SIOCGIFADDR, request)
            except OSError:
                continue  # an interface without an IPv4 address
            if socket.inet_ntoa(reply[20:24]) == address:
                return name
    return secondary_interface_of(address)


def secondary_interface_of(address: str) -> str | None:
    """The ioctl above returns only an interface's first address; `ip` knows the others."""
    try:
        links = json.loads(command("ip", "-json", "address", "show").text)
    except ValueError:
        return None
    for link in links:
        if any(entry.get("local") == address for entry in link.get("addr_info", [])):
            return str(link["ifname"])
    return None


def interface_of_ipv6(address: str) -> str | None:
    wanted = socket.inet_pton(socket.AF_INET6, address).hex()
    for line in (files.text("/proc/net/if_inet6") or "").splitlines():
        fields = line.split()
        if fields and fields[0] == wanted:
            return fields[5]
    return None


def port_facts(port: int) -> Json:
    """Is the port free to listen on, as the rendezvous store will (wildcard address)? If not, who holds it."""
    return {"port": port, "free": can_listen(port), "holders": port_holders(port)}


def can_listen(port: int) -> bool:
    for family in (socket.AF_INET6, socket.AF_INET):
        try:
            with socket.socket(family, socket.SOCK_STREAM) as sock:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                sock.bind(("", port))
                sock.listen(1)
        except OSError as exc:
            if exc.errno == errno.EADDRINUSE:
                return False
            # no IPv6 here: the IPv4 answer decides
    return True


def port_holders(port: int) -> list[Json]:
    """Processes that listen on the port, or else talk from it: [{pid, command, user, unit}].

    pid is null when it cannot be seen.
    """
    listening: set[str] = set()
    talking: set[str] = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in (files.text(table, most=MOST_SOCKETS) or "").splitlines()[1:]:
            fields = line.split()
            if int(fields[1].rsplit(":", 1)[1], 16) == port and fields[9] != "0":
                (listening if fields[3] == "0A" else talking).add("socket:[%s]" % fields[9])
    inodes = listening or talking
    if not inodes:
        return []
    holders = [process.who(pid) for pid in process.ids() if inodes & process.opened(pid)]
    return holders or [{"pid": None, "command": "", "user": "", "unit": ""}]


def active_launches() -> list[Json]:
    """Launches of this project that run on this node now: [{launch_id, port, user}]."""
    found = []
    for path in sorted(glob.glob(STATE_ROOT + "/*/spec.json")):
        launch_id = os.path.basename(os.path.dirname(path))
        if unit_state(unit_name(launch_id))["ActiveState"] in ("active", "activating", "deactivating"):
            found.append({"launch_id": launch_id})
    return found


# ---------------------------------------------------------------- start


def start(spec: Json) -> Json:
    """Make the two directories and the unit. spec: see roles/launch."""
    launch_id = spec["launch_id"]
    entry = pwd.getpwnam(spec["user"])
    reader_uid, reader_gid = spec["reader"]["uid"], spec["reader"]["gid"]
    state, run_dir = state_dir(launch_id), spec["run_dir"]
    os.umask(0o022)  # whatever the one says who logs in
    os.makedirs(os.path.dirname(run_dir), mode=0o755, exist_ok=True)
    forget_ended_launches()
    drop_old_runs(os.path.dirname(run_dir), spec["keep"])
    os.makedirs(STATE_ROOT, mode=0o755, exist_ok=True)
    files.make_folder(state, mode=0o755)
    files.make_folder(run_dir, mode=0o700)
    # What root writes for the training user is written before they may change anything beside it.
    if spec.get("script_name"):
        path, body = os.path.join(run_dir, spec["script_name"]), base64.b64decode(spec.pop("script_body"))
        files.replace(path, body, mode=0o644, owner=(entry.pw_uid, entry.pw_gid))
    # Written by the training user, readable by the user who looks (without sudo: a look each second must not fill the
    # journal), and by nobody else.
    files.give_folder(run_dir, mode=OUTER_MODE, owner=(entry.pw_uid, reader_gid))
    files.make_folder(state + "/unit", mode=OUTER_MODE, owner=(entry.pw_uid, reader_gid))
    program = state + "/node.py"
    files.replace(program, own_text().encode(), mode=0o644)
    # The environment may hold tokens: it travels in a file that only root and the training user read, never in argv.
    files.replace(state + "/spec.json", json.dumps(spec).encode(), mode=0o640, owner=(0, entry.pw_gid))
    lease = LEASE_FORMAT.format(time.monotonic() + spec["lease"])
    files.replace(state + "/lease", lease.encode(), mode=0o644, owner=(reader_uid, reader_gid))
    # Every process of the launch carries the mark by which `stop` looks for what is left.
    properties = {**spec["properties"], "Environment": process.LAUNCH_MARK + "=" + launch_id}
    if spec["time_limit"]:
        properties["RuntimeMaxSec"] = "%ds" % (spec["time_limit"] + LIMIT_SLACK)
    argv = ["systemd-run", "--quiet", "--unit", unit_name(launch_id), "--description", "Muster launch " + launch_id]
    argv += [word for name, value in properties.items() for word in ("--property", "%s=%s" % (name, value))]
    argv += ["--", sys.executable, "-I", "-S", program, "run", state]
    done = command(*argv, seconds=SYSTEMCTL_SECONDS)
    return {"started": done.code == 0, "error": done.aside.strip() or done.why, "time": time.time()}


def forget_ended_launches() -> None:
    """Clear away the state of launches that ended when no supervisor could reach this node."""
    for path in glob.glob(STATE_ROOT + "/*"):
        unit = unit_name(os.path.basename(path))
        if unit_state(unit)["ActiveState"] in ("inactive", "failed"):
            command("systemctl", "reset-failed", unit, seconds=SYSTEMCTL_SECONDS)
            shutil.rmtree(path, ignore_errors=True)


def drop_old_runs(root: str, keep: int) -> None:
    """Of finished launches, keep the newest `keep` run directories."""
    # The folder may be one that the user has other things in.
    runs = [
        entry
        for entry in os.scandir(root)
        if entry.is_dir(follow_symlinks=False) and process.LAUNCH_ID.match(entry.name)
    ]
    finished = [entry for entry in runs if not os.path.isdir(state_dir(entry.name))]
    for entry in sorted(finished, key=lambda one: one.stat().st_mtime, reverse=True)[max(keep - 1, 0) :]:
        shutil.rmtree(entry.path, ignore_errors=True)


# ---------------------------------------------------------------- run (inside the unit, as the training user)


def run(state: str) -> None:
    """Run torchrun until it ends, the lease is old, or the time is up. The unit's cgroup takes the rest with it.

    How it ended is in the result, and the exit status is 0 whatever that was: a failed unit stays until somebody
    collects it, and after a lost connection nobody might.
    """
    spec = json.loads(files.read(state + "/spec.json"))
    signalled: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _frame: signalled.append(number))
    log = open_agent_log(spec["run_dir"])
    try:
        agent = subprocess.Popen(spec["argv"], env=spec["env"], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    except (OSError, ValueError) as exc:  # ValueError: a NUL in an argument or in the environment
        write_result(state, "exec", error=str(exc))
        return
    ranks: dict[int, Json] = {}
    last_moment = time.monotonic() + (spec["time_limit"] or float("inf"))
    while True:
        code = agent.poll()
        open_log_folder(spec["run_dir"])
        if watch_ranks(agent.pid, ranks):
            replace_json(state + "/unit/ranks.json", {"agent": agent.pid, "ranks": list(ranks.values())})
        if code is not None:
            write_result(state, "stopped" if signalled else "exit", code=code)
            return
        if not signalled and not lease_is_held(state):
            write_result(state, "lease")
            return
        if not signalled and time.monotonic() > last_moment:
            write_result(state, "limit")
            return
        time.sleep(0.1)


def open_agent_log(run_dir: str) -> int:
    """torchrun's own output; nowhere, when the disk takes no new file (the ranks then fail and say so)."""
    try:
        return os.open(run_dir + "/agent.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o640)
    except OSError:
        return os.open(os.devnull, os.O_WRONLY)


def open_log_folder(run_dir: str) -> None:
    """torchrun makes its log folder with mkdtemp (0700): let in whoever the run directory above it lets in."""
    for path in glob.glob(run_dir + "/torchrun/*"):
        if os.stat(path).st_mode & 0o005 == 0:
            os.chmod(path, INNER_MODE)


def watch_ranks(agent: int, ranks: dict[int, Json]) -> bool:
    """Bring the table of ranks {pid: {...}} up to date from the agent's children; True when it changed."""
    changed = False
    alive = set(process.children(agent))
    for pid in alive - set(ranks):
        rank = rank_facts(pid)
        if rank is not None:
            ranks[pid] = rank
            changed = True
    for pid, rank in ranks.items():
        if rank["gone_at"] is None and (pid not in alive or not process.runs(pid)):
            rank["gone_at"] = time.time()
            changed = True
    return changed


def rank_facts(pid: int) -> Json | None:
    """{rank, local_rank, pid, gone_at} when this child of the agent is a rank, else None."""
    environ = process.environment(pid)
    try:
        rank, local_rank = int(environ["RANK"]), int(environ["LOCAL_RANK"])
    except (KeyError, ValueError):
        return None  # not yet exec'ed, or a helper process of the agent
    return {"rank": rank, "local_rank": local_rank, "pid": pid, "gone_at": None}


def lease_is_held(state: str) -> bool:
    """A deadline on the monotonic clock: a stepped wall clock neither ends nor prolongs a launch."""
    try:
        return time.monotonic() < float(files.text(state + "/lease") or "0")
    except ValueError:
        return False


def write_result(state: str, reason: str, **more: Any) -> None:
    """Leave the reason for the supervisor, and in the journal for whoever looks there."""
    result = {"reason": reason, **more, "ended_at": time.time()}
    replace_json(state + "/unit/result.json", result)
    print("ended:", json.dumps(result), file=sys.stderr)


def replace_json(path: str, value: Any) -> None:
    files.replace(path, json.dumps(value).encode())


# ---------------------------------------------------------------- look


def look(request: Json) -> Json:
    """Renew the lease, wait up to `wait` seconds for news, and report.

    request: {launch_id, run_dir, lease, wait, offsets: {log: bytes seen}, limit: bytes to send at most}
    """
    state = state_dir(request["launch_id"])
    renew_lease(state, request["lease"])
    deadline = time.monotonic() + request["wait"]
    while time.monotonic() < deadline and not has_news(state, request):
        time.sleep(0.05)
    return report(request)


def logs(request: Json) -> Json:
    return {"logs": new_log_text(request["run_dir"], request["offsets"], request["limit"])}


def report(request: Json) -> Json:
    """What is known of the launch here: {unit, result, ranks, errors, logs, disk, clock}."""
    state = state_dir(request["launch_id"])
    # The unit before its result: one that is seen to be over has written it.
    unit = unit_state(unit_name(request["launch_id"]))
    table = read_json(state + "/unit/ranks.json") or {"ranks": []}
    result = read_json(state + "/unit/result.json")
    for rank in table["ranks"]:
        seen = process.status(rank["pid"])
        rank["state"], rank["cpu"] = (seen.state, seen.cpu) if seen else ("", 0.0)
        rank["wchan"] = process.read(rank["pid"], "wchan")
    return {
        "unit": unit,
        "result": result,
        "ranks": table["ranks"],
        "errors": error_files(request["run_dir"]),
        "logs": new_log_text(request["run_dir"], request["offsets"], request["limit"]),
        "disk": disk_facts(request["run_dir"]),
        # Taken last: the controller compares it with the time of receipt.
        "clock": time.time(),
    }


def renew_lease(state: str, seconds: float) -> None:
    try:
        files.overwrite(state + "/lease", LEASE_FORMAT.format(time.monotonic() + seconds).encode())
    except OSError:
        return  # ended and cleared away meanwhile: the report says so


def has_news(state: str, request: Json) -> bool:
    if os.path.exists(state + "/unit/result.json"):
        return True
    return any(os.path.getsize(path) > request["offsets"].get(key, 0) for key, path in log_files(request["run_dir"]))


def log_files(run_dir: str) -> list[tuple[str, str]]:
    """[(key, path)] of every log there is: 'agent', and 'LOCAL_RANK/stdout' and 'LOCAL_RANK/stderr' of each rank."""
    found = []
    if os.path.exists(run_dir + "/agent.log"):
        found.append(("agent", run_dir + "/agent.log"))
    # stderr of all ranks comes first: a rank that floods its stdout must not keep the reason of another's end back.
    paths = glob.glob(run_dir + "/torchrun/*/attempt_0/*/std*.log")
    for path in sorted(paths, key=lambda one: (os.path.basename(one), one)):
        folder, name = os.path.split(path)
        found.append((os.path.basename(folder) + "/" + name[: -len(".log")], path))
    return found


def new_log_text(run_dir: str, offsets: dict[str, int], limit: int) -> dict[str, Json]:
    """{key: {begin, offset, text, more}}: what is behind each offset, `limit` bytes of all logs together at most.

    Where there is more, the text ends with a line; it never ends within a character, unless the log does.
    """
    found = {}
    for key, path in log_files(run_dir):
        offset = offsets.get(key, 0)
        try:
            with files.folder(run_dir) as within:
                data = files.part(path.removeprefix(run_dir + "/"), offset, limit + 1, within=within)
        except OSError:
            continue
        if not data:
            continue
        more = len(data) > limit
        data = data[:limit]
        if more and b"\n" in data:
            data = data[: data.rindex(b"\n") + 1]
        data = whole_characters(data) or (b"" if more else data)
        limit -= len(data)
        text = data.decode("utf-8", "replace")
        found[key] = {"begin": offset, "offset": offset + len(data), "text": text, "more": more}
    return found


def whole_characters(data: bytes) -> bytes:
    """Without the beginning of a UTF-8 character at its end, whose rest is still to come."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    decoder.decode(data)
    begun = len(decoder.getstate()[0])
    return data[: len(data) - begun]


def error_files(run_dir: str) -> Json:
    """{LOCAL_RANK: error.json}: written by ranks whose main function is under torch's @record."""
    found = {}
    for path in glob.glob(run_dir + "/torchrun/*/attempt_0/*/error.json"):
        content = error_file(run_dir, path.removeprefix(run_dir + "/"))
        if content is not None:
            found[os.path.basename(os.path.dirname(path))] = content
    return found


def error_file(run_dir: str, name: str) -> Any:
    try:
        with files.folder(run_dir) as within:
            return json.loads(files.read(name, most=MOST_ERROR, within=within))
    except (OSError, ValueError):
        return None


# ---------------------------------------------------------------- stop


def stop(request: Json) -> Json:
    """End the unit, and report for the last time what happened and what is left of it: nothing, or by name.

    request: as for look, with dump: first ask every rank, which `freeze` has stopped on all
    nodes, for its Python stack, so that a standstill leaves evidence.
    """
    launch_id = request["launch_id"]
    unit = unit_name(launch_id)
    if request["dump"]:
        dump_stacks(launch_id)
    before = unit_state(unit)
    stopped = command("systemctl", "stop", unit, seconds=STOP_SECONDS)
    command("systemctl", "reset-failed", unit, seconds=SYSTEMCTL_SECONDS)
    leftovers = [process.who(pid) for pid in process.of_launch(launch_id)]
    last = report(request)
    over = last["unit"]["ActiveState"] in ("inactive", "failed")
    last.update(
        unit_before=before,
        error="" if over else stopped.aside.strip() or "the unit is still " + last["unit"]["ActiveState"],
        leftovers=leftovers,
        clean=over and not leftovers,
    )
    if last["clean"]:
        shutil.rmtree(state_dir(launch_id), ignore_errors=True)
    return last


def freeze(request: Json) -> Json:
    """Stop the agent and the ranks where they are, so that none sees another die before it has shown its own stack."""
    agent, ranks = agent_and_ranks(request["launch_id"])
    send(signal.SIGSTOP, agent + ranks)
    return {"frozen": len(ranks)}


def agent_and_ranks(launch_id: str) -> tuple[list[int], list[int]]:
    table = read_json(state_dir(launch_id) + "/unit/ranks.json") or {"agent": None, "ranks": []}
    ours = set(process.of_launch(launch_id))
    ranks = [rank["pid"] for rank in table["ranks"] if rank["pid"] in ours]
    return [table["agent"]] if table["agent"] in ours else [], ranks


def send(number: signal.Signals, pids: list[int]) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue


def dump_stacks(launch_id: str) -> None:
    """SIGABRT, which PYTHONFAULTHANDLER=1 answers on stderr before anything else is done."""
    _, asked = agent_and_ranks(launch_id)
    send(signal.SIGABRT, asked)
    send(signal.SIGCONT, asked)
    deadline = time.monotonic() + 1.5
    while time.monotonic() < deadline and any(map(may_answer, asked)):
        time.sleep(0.05)


def may_answer(pid: int) -> bool:
    seen = process.status(pid)
    return seen is not None and seen.state not in (*process.GONE, "T")


# ---------------------------------------------------------------- shared


def state_dir(launch_id: str) -> str:
    return STATE_ROOT + "/" + launch_id


def unit_name(launch_id: str) -> str:
    return process.LAUNCH_UNIT.format(launch_id)


def unit_state(unit: str) -> dict[str, str]:
    names = ("LoadState", "ActiveState", "SubState", "Result", "ExecMainCode", "ExecMainStatus")
    done = command("systemctl", "show", unit, "--property", ",".join(names), seconds=SYSTEMCTL_SECONDS)
    state = dict.fromkeys(names, "")
    for line in done.text.splitlines():
        name, _, value = line.partition("=")
        state[name] = value
    return state


def read_json(path: str) -> Any:
    """Return what a file holds; None where there is none, or none that is JSON."""
    try:
        return json.loads(files.text(path) or "")
    except ValueError:
        return None


if __name__ == "__main__":
    main()
