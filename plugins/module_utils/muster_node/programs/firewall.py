"""What the role does on one node: look at everything that decides which packets come in, and carry out a plan.

plugins/action/firewall.py pipes this file into the node's own Python (3.10+, standard library only), with a verb as
argument and a JSON payload behind it on standard input. Every verb prints one JSON object; all need root.

    look   what is installed, configured and in force; reads only
    apply  the steps of a plan, in order, until one fails
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import subprocess
import sys
from typing import Any

Json = dict[str, Any]

UFW_FOLDER = "/etc/ufw"
UFW_FILES = ("user.rules", "user6.rules", "before.rules", "before6.rules", "after.rules", "after6.rules")
UNITS = "/etc/systemd/system"
PORT_RANGE = "/proc/sys/net/ipv4/ip_local_port_range"
SYSCTL_FOLDERS = ("/usr/lib/sysctl.d", "/usr/local/lib/sysctl.d", "/run/sysctl.d", "/etc/sysctl.d")
COMMAND_TIMEOUT = 60


def main(verb: str, payload: Json) -> Json:
    # Not the login's: the same words whatever the administrator's language, and the tools of root.
    os.environ.update(LC_ALL="C", PATH="/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
    return {"look": look, "apply": apply}[verb](payload)


# ---------------------------------------------------------------- look


def look(request: Json) -> Json:
    """request: {guard, table, rules, unit, sysctl}: where this role keeps its own things."""
    commands = {
        "addresses": ["ip", "-json", "address"],
        "listeners": ["ss", "-H", "-l", "-n", "-t", "-u", "-p"],
        "iptables": ["iptables-save"],
        "ip6tables": ["ip6tables-save"],
        "ruleset": ["nft", "-j", "list", "ruleset"],
        "own_live": ["nft", "-s", "list", "table", "inet", request["table"]],
        "active": ["systemctl", "is-active", "firewalld.service", os.path.basename(request["unit"])],
    }
    if os.path.exists(request["rules"]):
        # What the file means, in the words of this very nft: loaded where it protects nobody, and listed.
        script = 'nft -f "$1" && nft -s list table inet "$2"'
        commands["own_file"] = ["unshare", "--net", "sh", "-c", script, "sh", request["rules"], request["table"]]
    said = run_all(commands)
    client, server = ssh_connection()
    return {
        "guarded": os.path.exists(os.path.join(request["guard"], "state.json")),
        "said": said,
        "ssh_client": client,
        "ssh_server": server,
        "ssh_sockets": ssh_sockets(said["listeners"]["out"]),
        "ufw": ufw(),
        "own": {
            "rules": read(request["rules"]),
            "unit": read(request["unit"]),
            "at_boot": os.path.lexists(os.path.join(UNITS, "sysinit.target.wants", os.path.basename(request["unit"]))),
        },
        "nftables_at_boot": os.path.lexists(os.path.join(UNITS, "sysinit.target.wants/nftables.service")),
        "port_range": {
            "live": (read(PORT_RANGE) or "").split(),
            "file": read(request["sysctl"]),
            "others": others_port_range(request["sysctl"]),
        },
    }


def run_all(commands: dict[str, list[str]]) -> Json:
    """Run commands side by side; a tool that is not installed has no code."""
    running = {}
    answers: Json = {}
    for name, argv in commands.items():
        try:
            running[name] = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        except FileNotFoundError:
            answers[name] = {"code": None, "out": "", "err": f"{argv[0]} is not installed"}
    for name, process in running.items():
        out, err = process.communicate(timeout=COMMAND_TIMEOUT)
        answers[name] = {"code": process.returncode, "out": out, "err": err.strip()}
    return answers


def ssh_connection() -> tuple[list[str], list[str]]:
    """Address and port of the client and of the server, as sshd told the session that this process belongs to.

    sudo keeps the variable from us, so it is looked for in those above. Behind a forwarded port it is the only place
    that knows on which port the node itself was reached.
    """
    pid = os.getpid()
    while pid > 1:
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                environment = file.read().split(b"\0")
            with open(f"/proc/{pid}/stat") as file:
                pid = int(file.read().rpartition(")")[2].split()[1])
        except OSError:
            break
        for entry in environment:
            if entry.startswith(b"SSH_CONNECTION="):
                words = entry.partition(b"=")[2].decode().split()
                if len(words) == 4:
                    return words[:2], words[2:]
    return [], []


def ssh_sockets(listeners: str) -> list[str]:
    """Where systemd listens for ssh (Ubuntu since 22.10). Asked only where systemd listens for anything."""
    if '"systemd"' not in listeners:
        return []
    argv = ["systemctl", "show", "--value", "--property=Listen", "ssh.socket", "sshd.socket"]
    ended = subprocess.run(argv, check=False, capture_output=True, text=True)
    return re.findall(r"(\S+) \(Stream\)", ended.stdout)


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
    """The range that the other files of sysctl ask for; the last one by its name wins, as at boot."""
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
    """plan: {steps}; a step is {write, text, mode}, {remove} or {run, text?}."""
    # ufw's own lock, as it takes it: nobody's `ufw allow` comes between.
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
    try:
        if "write" in step:
            write(step["write"], step["text"], step["mode"])
        elif "remove" in step:
            if os.path.lexists(step["remove"]):
                os.unlink(step["remove"])
        else:
            argv = step["run"]
            ended = subprocess.run(
                argv,
                check=False,
                input=step.get("text", ""),
                capture_output=True,
                text=True,
                timeout=COMMAND_TIMEOUT,
            )
            if ended.returncode:
                said = " ".join((ended.stderr or ended.stdout).split()) or "nothing"
                return f"{' '.join(argv)} ended with code {ended.returncode} and said: {said}"
    except (OSError, subprocess.TimeoutExpired) as exc:
        return str(exc)
    return ""


def write(path: str, text: str, mode: int) -> None:
    """Replace a file in one step; one that was there keeps its owner and mode."""
    if path.startswith("/proc/"):
        with open(path, "w") as file:
            file.write(text)
        return
    os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
    path = os.path.realpath(path)
    owner = (0, 0)
    if os.path.exists(path):
        about = os.stat(path)
        mode, owner = about.st_mode & 0o7777, (about.st_uid, about.st_gid)
    new = f"{path}.muster-new"
    with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(text)
        os.fchown(file.fileno(), *owner)
        os.fchmod(file.fileno(), mode)
        file.flush()
        os.fsync(file.fileno())
    os.replace(new, path)


def read(path: str) -> str | None:
    try:
        with open(path, errors="replace") as file:
            return file.read()
    except OSError:
        return None


if __name__ == "__main__":
    json.dump(main(sys.argv[1], json.loads(sys.stdin.buffer.read())), sys.stdout)
    sys.stdout.write("\n")
