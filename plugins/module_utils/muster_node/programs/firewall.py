"""The part of the role firewall that runs on a node: inspects everything that filters incoming packets, and applies a
plan.

Run by NodeProgram (plugin_utils), with a verb as argument and a JSON payload on standard input. All verbs need root.

    look   return installed tools, configured rules and active rules; changes nothing
    apply  run the steps of a plan in order, until one fails
"""

from __future__ import annotations

import fcntl
import os
import re
from contextlib import suppress
from threading import Thread
from typing import Any

from ..tools import files, process
from ..tools.program import answer
from ..tools.run import failure, run
from ..tools.sockets import LISTENING, sockets

Json = dict[str, Any]

SSHD = "/usr/sbin/sshd"
SSH_UNITS = ("ssh.service", "sshd.service", "ssh.socket", "sshd.socket")
UFW_FOLDER = "/etc/ufw"
UFW_FILES = ("user.rules", "user6.rules", "before.rules", "before6.rules", "after.rules", "after6.rules")
UNITS = "/etc/systemd/system"
FORWARDS = {"ip": "/proc/sys/net/ipv4/ip_forward", "ip6": "/proc/sys/net/ipv6/conf/all/forwarding"}
PORT_RANGE = "/proc/sys/net/ipv4/ip_local_port_range"
SYSCTL_FOLDERS = ("/usr/lib/sysctl.d", "/usr/local/lib/sysctl.d", "/run/sysctl.d", "/etc/sysctl.d")
COMMAND_TIMEOUT = 60
NO_CODE = -1  # code of an installed command that did not end
MOST = 64_000_000  # bytes; must not be truncated, because it may be restored later
MOST_CONNECTED = 50  # addresses for each port
# Two queues, the local port, and the remote address.
ESTABLISHED = re.compile(r"^\d+\s+\d+\s+\S+:(\d+)\s+\[?(?:::ffff:)?([^\]\s]+)\]?:\d+", re.MULTILINE)


def main() -> None:
    answer({"look": look, "apply": apply})


# ---------------------------------------------------------------- look


def look(request: Json) -> Json:
    """Return the state of the firewall. request: {guard, table, rules, unit, sysctl, record}: paths of this role's
    files."""
    commands = {
        "addresses": ["ip", "-json", "address"],
        "listeners": ["ss", "-H", "-l", "-n", "-t", "-u", "-p"],
        "connections": ["ss", "-H", "-n", "-t", "state", "established"],
        "iptables": ["iptables-save"],
        "ip6tables": ["ip6tables-save"],
        "ruleset": ["nft", "-j", "list", "ruleset"],
        "own_live": ["nft", "-s", "list", "table", "inet", request["table"]],
        "active": ["systemctl", "is-active", "firewalld.service", os.path.basename(request["unit"])],
    }
    if os.path.exists(request["rules"]):
        # The file in the format of the installed nft: loaded in an empty network namespace, and listed.
        script = 'nft -f "$1" && nft -s list table inet "$2"'
        commands["own_file"] = ["unshare", "--net", "sh", "-c", script, "sh", request["rules"], request["table"]]
    said = run_all(commands)
    listening, established = said["listeners"]["out"], said.pop("connections")["out"]
    client, server = ssh_connection()
    return {
        "guarded": os.path.exists(os.path.join(request["guard"], "state.json")),
        "said": said,
        "ssh_client": client,
        "ssh_server": server,
        "sshd_ports": sshd_ports(),
        "ssh_sockets": ssh_sockets(listening),
        "connected": connected(listening, established),
        "units": {pid: process.unit(int(pid)) for pid in set(re.findall(r",pid=(\d+),", listening))},
        "record": read(request["record"]),
        "ufw": ufw(),
        "own": {
            "rules": read(request["rules"]),
            "unit": read(request["unit"]),
            "at_boot": os.path.lexists(os.path.join(UNITS, "sysinit.target.wants", os.path.basename(request["unit"]))),
        },
        "nftables_at_boot": os.path.lexists(os.path.join(UNITS, "sysinit.target.wants/nftables.service")),
        "forwards": {name: (read(path) or "").strip() for name, path in FORWARDS.items()},
        "port_range": {
            "live": (read(PORT_RANGE) or "").split(),
            "file": read(request["sysctl"]),
            "others": others_port_range(request["sysctl"]),
        },
    }


def run_all(commands: dict[str, list[str]]) -> Json:
    """Run commands in parallel; return {name: {code, out, err}}. code is None if the tool is not installed."""
    answers: Json = {}

    def ask(name: str, argv: list[str]) -> None:
        said = run(*argv, seconds=COMMAND_TIMEOUT, most=MOST)
        answers[name] = {
            "code": said.code if said.missing or said.code is not None else NO_CODE,
            "out": said.text,
            "err": said.why if said.code is None else said.aside.strip(),
        }

    threads = [Thread(target=ask, args=command) for command in commands.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers


def connected(listening: str, established: str) -> dict[str, list[str]]:
    """Return the addresses of other hosts that are connected to each listening TCP port, MOST_CONNECTED at most.

    Both parameters are output of ss, which omits the state column in a list of one state.
    """
    sockets = (line.split() for line in listening.splitlines())
    ports = {words[4].rpartition(":")[2] for words in sockets if len(words) > 4 and words[0] == "tcp"}
    found: dict[str, list[str]] = {}
    for port, address in ESTABLISHED.findall(established):
        there = found.setdefault(port, []) if port in ports and not re.match(r"127\.|::1$", address) else None
        if there is not None and address not in there and len(there) < MOST_CONNECTED:
            there.append(address)
    return found


def ssh_connection() -> tuple[list[str], list[str]]:
    """Return the addresses and ports of client and server that sshd set for the session of this process.

    sudo removes the variable, so it is read from parent processes. If the port is forwarded, only this variable shows
    which port of the node was used.
    """
    pid = os.getpid()
    while pid > 1:
        words = process.environment(pid).get("SSH_CONNECTION", "").split()
        if len(words) == 4:
            return words[:2], words[2:]
        seen = process.status(pid)
        pid = seen.parent if seen else 0
    return [], []


def sshd_ports() -> list[int]:
    """Return the TCP ports on which sshd listens. The name of a process proves nothing, because its user can choose
    it."""
    found = [pid for pid in process.ids() if is_sshd(pid)]
    names = {name for pid in found for name in process.opened(pid)}
    return sorted({one.port for one in sockets() if one.state == LISTENING and f"socket:[{one.inode}]" in names})


def is_sshd(pid: int) -> bool:
    """Return whether a process of root runs the node's sshd. After an upgrade, sshd may run from a file that has been
    removed, and a sshd of the site may have another path: then the unit decides. A container may have its own sshd."""
    if process.user_id(pid) != 0:
        return False
    name = os.path.basename(process.executable(pid)).removesuffix(" (deleted)")
    with suppress(OSError):
        if os.path.samefile(f"/proc/{pid}/exe", SSHD):
            return True
    return name == "sshd" and process.outermost_unit(pid) in SSH_UNITS


def ssh_sockets(listeners: str) -> list[str]:
    """Return the addresses on which systemd listens for SSH (Ubuntu since 22.10). Query systemd only if it listens on
    any port."""
    if '"systemd"' not in listeners:
        return []
    said = run("systemctl", "show", "--value", "--property=Listen", "ssh.socket", "sshd.socket")
    return re.findall(r"(\S+) \(Stream\)", said.text)


def ufw() -> Json | None:
    if not os.path.exists("/usr/sbin/ufw"):
        return None
    unit = os.path.join(UNITS, "ufw.service")
    return {
        "conf": read(os.path.join(UFW_FOLDER, "ufw.conf")),
        "defaults": read("/etc/default/ufw"),
        "files": {name: read(os.path.join(UFW_FOLDER, name)) for name in UFW_FILES},
        "at_boot": os.path.lexists(os.path.join(UNITS, "multi-user.target.wants/ufw.service")),
        "masked": os.path.islink(unit) and os.readlink(unit) == "/dev/null",
    }


def others_port_range(own: str) -> str:
    """Return the port range that other sysctl files set. The last file by name takes precedence, as at boot."""
    files = {}
    for folder in SYSCTL_FOLDERS:
        for name in os.listdir(folder) if os.path.isdir(folder) else []:
            files[name] = os.path.join(folder, name)
    paths = [files[name] for name in sorted(files) if files[name] != own and name.endswith(".conf")]
    found = ""
    for path in [*paths, "/etc/sysctl.conf"]:
        for line in (read(path) or "").splitlines():
            match = re.match(r"\s*-?net[./]ipv4[./]ip_local_port_range\s*=\s*(\d+)\s+(\d+)", line)
            if match:
                found = f"{match[1]} {match[2]}"
    return found


# ---------------------------------------------------------------- apply


def apply(plan: Json) -> Json:
    """Run the steps of a plan in order. plan: {steps}; a step is {write, text, mode}, {remove} or {run, text?}."""
    # ufw's own lock, so that no `ufw allow` runs in between.
    with open("/run/ufw.lock", "w") as lock:
        fcntl.lockf(lock, fcntl.LOCK_EX)
        for step in plan["steps"]:
            if "run" in step and step["run"][0] == "ufw":
                # ufw takes the lock itself.
                fcntl.lockf(lock, fcntl.LOCK_UN)
            failure = carry_out(step)
            if failure:
                return {"failed": failure}
            fcntl.lockf(lock, fcntl.LOCK_EX)
    return {"failed": ""}


def carry_out(step: Json) -> str:
    """Run one step. Return the error, or an empty string."""
    if "run" in step:
        argv = step["run"]
        return failure(argv, run(*argv, stdin=step.get("text", ""), seconds=COMMAND_TIMEOUT))
    try:
        if "remove" in step:
            files.remove(step["remove"])
        elif step["write"].startswith("/proc/"):
            files.overwrite(step["write"], step["text"].encode())
        else:
            content = step["text"].encode()
            files.replace(step["write"], content, mode=step["mode"], keep=True, parents=True, links=True)
    except OSError as exc:
        return str(exc)
    return ""


def read(path: str) -> str | None:
    return files.text(path, links=True)


if __name__ == "__main__":
    main()
