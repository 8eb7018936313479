"""What a launch does on one node: prepare, start, run, look, stop.

The supervisor on the controller pipes this file into the node's own Python (3.10+, standard library only), with a
verb as argument and a JSON payload behind it on standard input. Every verb prints one JSON object.

    identity  user   tells who looks
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
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

Json = dict[str, Any]

STATE_ROOT = "/run/muster/launches"
LEASE_FORMAT = "{:>20.3f}\n"  # of one width, so that it is overwritten in place by a single write
# Only the training user and the group of the one who looks come past these two directories; what is inside is readable
# to whoever got that far. (A set-group-ID bit instead would be lost: the training user is not in that group.)
OUTER_MODE = 0o750
INNER_MODE = 0o755
LAUNCH_ID = re.compile(r"\d{8}-\d{6}-[0-9a-f]{4}\Z")
LIMIT_SLACK = 60  # seconds behind the time limit after which systemd ends a unit whose main process did not
SIOCGIFADDR = 0x8915


def main(verb: str, payload: Any) -> None:
    verbs: dict[str, Callable[[Any], Json | None]] = {
        "identity": identity,
        "prepare": prepare,
        "start": start,
        "run": run,
        "look": look,
        "logs": logs,
        "freeze": freeze,
        "stop": stop,
    }
    result = verbs[verb](payload)
    if result is not None:
        json.dump(result, sys.stdout)
        sys.stdout.write("\n")


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
    done = command(["ip", "-json", "address", "show"])
    try:
        links = json.loads(done.stdout)
    except ValueError:
        return None
    for link in links:
        if any(entry.get("local") == address for entry in link.get("addr_info", [])):
            return str(link["ifname"])
    return None


def interface_of_ipv6(address: str) -> str | None:
    wanted = socket.inet_pton(socket.AF_INET6, address).hex()
    for line in read_text("/proc/net/if_inet6").splitlines():
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
        for line in read_text(table).splitlines()[1:]:
            fields = line.split()
            if int(fields[1].rsplit(":", 1)[1], 16) == port and fields[9] != "0":
                (listening if fields[3] == "0A" else talking).add("socket:[%s]" % fields[9])
    inodes = listening or talking
    if not inodes:
        return []
    holders = [process_facts(pid) for pid in process_ids() if inodes & open_sockets(pid)]
    return holders or [{"pid": None, "command": "", "user": "", "unit": ""}]


def open_sockets(pid: int) -> set[str]:
    links = set()
    try:
        for name in os.listdir("/proc/%d/fd" % pid):
            try:
                links.add(os.readlink("/proc/%d/fd/%s" % (pid, name)))
            except OSError:
                continue  # closed between the listing and the look
    except OSError:
        return set()
    return links


def process_ids() -> list[int]:
    return sorted(int(name) for name in os.listdir("/proc") if name.isdigit())


def process_facts(pid: int) -> Json:
    try:
        owner = pwd.getpwuid(os.stat("/proc/%d" % pid).st_uid).pw_name
    except (OSError, KeyError):
        owner = ""
    unit = ""
    for line in read_text("/proc/%d/cgroup" % pid).splitlines():
        leaf = line.rsplit("/", 1)[-1]
        if leaf.endswith((".service", ".scope")):
            unit = leaf
    cmdline = read_text("/proc/%d/cmdline" % pid).replace("\0", " ").strip()
    return {"pid": pid, "command": cmdline[:200], "user": owner, "unit": unit}


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
    """Make the two directories and the unit. spec: see roles/launch, plus `program` (this file's text)."""
    launch_id = spec["launch_id"]
    entry = pwd.getpwnam(spec["user"])
    reader_uid, reader_gid = spec["reader"]["uid"], spec["reader"]["gid"]
    state, run_dir = state_dir(launch_id), spec["run_dir"]
    os.umask(0o022)  # whatever the one says who logs in
    os.makedirs(os.path.dirname(run_dir), mode=0o755, exist_ok=True)
    forget_ended_launches()
    drop_old_runs(os.path.dirname(run_dir), spec["keep"])
    os.makedirs(STATE_ROOT, mode=0o755, exist_ok=True)
    os.mkdir(state, 0o755)
    # Written by the training user, readable by the user who looks (without sudo: a look each second must not fill the
    # journal), and by nobody else.
    for path in (run_dir, state + "/unit"):
        os.mkdir(path, 0o750)
        os.chown(path, entry.pw_uid, reader_gid)
        os.chmod(path, OUTER_MODE)
    if spec.get("script_name"):
        path = os.path.join(run_dir, spec["script_name"])
        write_file(path, base64.b64decode(spec.pop("script_body")), 0o644, entry.pw_uid, entry.pw_gid)
    program = state + "/node.py"
    write_file(program, spec.pop("program").encode(), 0o644, 0, 0)
    # The environment may hold tokens: it travels in a file that only root and the training user read, never in argv.
    write_file(state + "/spec.json", json.dumps(spec).encode(), 0o640, 0, entry.pw_gid)
    lease = LEASE_FORMAT.format(time.monotonic() + spec["lease"])
    write_file(state + "/lease", lease.encode(), 0o644, reader_uid, reader_gid)
    # Every process of the launch carries the mark by which `stop` looks for what is left.
    properties = {**spec["properties"], "Environment": "MUSTER_LAUNCH_ID=" + launch_id}
    if spec["time_limit"]:
        properties["RuntimeMaxSec"] = "%ds" % (spec["time_limit"] + LIMIT_SLACK)
    argv = ["systemd-run", "--quiet", "--unit", unit_name(launch_id), "--description", "Muster launch " + launch_id]
    argv += [word for name, value in properties.items() for word in ("--property", "%s=%s" % (name, value))]
    argv += ["--", sys.executable, "-I", "-S", program, "run", state]
    done = command(argv)
    return {"started": done.returncode == 0, "error": done.stderr.strip(), "time": time.time()}


def forget_ended_launches() -> None:
    """Clear away the state of launches that ended when no supervisor could reach this node."""
    for path in glob.glob(STATE_ROOT + "/*"):
        unit = unit_name(os.path.basename(path))
        if unit_state(unit)["ActiveState"] in ("inactive", "failed"):
            command(["systemctl", "reset-failed", unit])
            shutil.rmtree(path, ignore_errors=True)


def drop_old_runs(root: str, keep: int) -> None:
    """Of finished launches, keep the newest `keep` run directories."""
    # The folder may be one that the user has other things in.
    runs = [entry for entry in os.scandir(root) if entry.is_dir(follow_symlinks=False) and LAUNCH_ID.match(entry.name)]
    finished = [entry for entry in runs if not os.path.isdir(state_dir(entry.name))]
    for entry in sorted(finished, key=lambda one: one.stat().st_mtime, reverse=True)[max(keep - 1, 0) :]:
        shutil.rmtree(entry.path, ignore_errors=True)


def write_file(path: str, data: bytes, mode: int, uid: int, gid: int) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "wb") as stream:
        stream.write(data)
    os.chown(path, uid, gid)
    os.chmod(path, mode)


# ---------------------------------------------------------------- run (inside the unit, as the training user)


def run(state: str) -> None:
    """Run torchrun until it ends, the lease is old, or the time is up. The unit's cgroup takes the rest with it.

    How it ended is in the result, and the exit status is 0 whatever that was: a failed unit stays until somebody
    collects it, and after a lost connection nobody might.
    """
    with open(state + "/spec.json", encoding="utf-8") as stream:
        spec = json.load(stream)
    told_to_stop: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _frame: told_to_stop.append(number))
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
            write_result(state, "stopped" if told_to_stop else "exit", code=code)
            return
        if not told_to_stop and not lease_is_held(state):
            write_result(state, "lease")
            return
        if not told_to_stop and time.monotonic() > last_moment:
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
    alive = set(children_of(agent))
    for pid in alive - set(ranks):
        rank = rank_facts(pid)
        if rank is not None:
            ranks[pid] = rank
            changed = True
    for pid, rank in ranks.items():
        if rank["gone_at"] is None and (pid not in alive or process_state(pid)[0] in ("Z", "X", "")):
            rank["gone_at"] = time.time()
            changed = True
    return changed


def children_of(pid: int) -> list[int]:
    """Child processes. The kernel lists them per thread where it is built to; else all processes are read."""
    found = []
    try:
        for task in os.listdir("/proc/%d/task" % pid):
            with open("/proc/%d/task/%s/children" % (pid, task), encoding="ascii") as stream:
                found += [int(word) for word in stream.read().split()]
    except FileNotFoundError:
        return [one for one in process_ids() if parent_of(one) == pid]
    except OSError:
        pass  # it ended between two of these reads
    return found


def parent_of(pid: int) -> int:
    fields = read_text("/proc/%d/stat" % pid).rpartition(")")[2].split()
    return int(fields[1]) if fields else 0


def rank_facts(pid: int) -> Json | None:
    """{rank, local_rank, pid, gone_at} when this child of the agent is a rank, else None."""
    try:
        with open("/proc/%d/environ" % pid, "rb") as stream:
            environ = dict(item.split(b"=", 1) for item in stream.read().split(b"\0") if b"=" in item)
        rank, local_rank = int(environ[b"RANK"]), int(environ[b"LOCAL_RANK"])
    except (OSError, KeyError, ValueError):
        return None  # not yet exec'ed, or a helper process of the agent
    return {"rank": rank, "local_rank": local_rank, "pid": pid, "gone_at": None}


def process_state(pid: int) -> tuple[str, float]:
    """(state letter, CPU seconds) from /proc/PID/stat; ('', 0.0) when the process is gone."""
    fields = read_text("/proc/%d/stat" % pid).rpartition(")")[2].split()
    if len(fields) < 13:
        return "", 0.0
    return fields[0], (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def lease_is_held(state: str) -> bool:
    """A deadline on the monotonic clock: a stepped wall clock neither ends nor prolongs a launch."""
    try:
        return time.monotonic() < float(read_text(state + "/lease") or "0")
    except ValueError:
        return False


def write_result(state: str, reason: str, **more: Any) -> None:
    """Leave the reason for the supervisor, and in the journal for whoever looks there."""
    result = {"reason": reason, **more, "ended_at": time.time()}
    replace_json(state + "/unit/result.json", result)
    print("ended:", json.dumps(result), file=sys.stderr)


def replace_json(path: str, value: Any) -> None:
    with open(path + ".new", "w", encoding="utf-8") as stream:
        json.dump(value, stream)
    os.replace(path + ".new", path)


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
        rank["state"], rank["cpu"] = process_state(rank["pid"])
        rank["wchan"] = read_text("/proc/%d/wchan" % rank["pid"])
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
        handle = os.open(state + "/lease", os.O_WRONLY)
    except OSError:
        return  # ended and cleared away meanwhile: the report says so
    try:
        os.pwrite(handle, LEASE_FORMAT.format(time.monotonic() + seconds).encode(), 0)
    finally:
        os.close(handle)


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
            with open(path, "rb") as stream:
                stream.seek(offset)
                data = stream.read(limit + 1)
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
        content = read_json(path)
        if content is not None:
            found[os.path.basename(os.path.dirname(path))] = content
    return found


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
    stopped = command(["systemctl", "stop", unit])
    command(["systemctl", "reset-failed", unit])
    leftovers = [process_facts(pid) for pid in launch_processes(launch_id)]
    last = report(request)
    over = last["unit"]["ActiveState"] in ("inactive", "failed")
    last.update(
        unit_before=before,
        error="" if over else stopped.stderr.strip() or "the unit is still " + last["unit"]["ActiveState"],
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
    ours = set(launch_processes(launch_id))
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
    while time.monotonic() < deadline and any(process_state(pid)[0] not in ("Z", "X", "", "T") for pid in asked):
        time.sleep(0.05)


def launch_processes(launch_id: str) -> list[int]:
    """Processes that carry this launch's mark in their environment, whatever cgroup they are in."""
    mark = b"MUSTER_LAUNCH_ID=" + launch_id.encode()
    found = []
    for pid in process_ids():
        try:
            with open("/proc/%d/environ" % pid, "rb") as stream:
                if mark in stream.read().split(b"\0"):
                    found.append(pid)
        except OSError:
            continue
    return found


# ---------------------------------------------------------------- shared


def state_dir(launch_id: str) -> str:
    return STATE_ROOT + "/" + launch_id


def unit_name(launch_id: str) -> str:
    return "muster-launch-%s.service" % launch_id


def unit_state(unit: str) -> dict[str, str]:
    names = ("LoadState", "ActiveState", "SubState", "Result", "ExecMainCode", "ExecMainStatus")
    done = command(["systemctl", "show", unit, "--property", ",".join(names)])
    state = dict.fromkeys(names, "")
    for line in done.stdout.splitlines():
        name, _, value = line.partition("=")
        state[name] = value
    return state


def command(argv: list[str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(argv, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    except OSError as exc:
        return subprocess.CompletedProcess(argv, 127, "", str(exc))


def read_text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            return stream.read()
    except OSError:
        return ""


def read_json(path: str) -> Any:
    try:
        return json.loads(read_text(path))
    except ValueError:
        return None


if __name__ == "__main__":
    if sys.argv[1] == "run":
        main("run", sys.argv[2])
    else:
        main(sys.argv[1], json.loads(sys.stdin.buffer.read()))
