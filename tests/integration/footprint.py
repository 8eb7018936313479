"""Everything that a machine shows of its setup, taken from outside the product and without its lists.

footprint.py take FILE MACHINE         writes the footprint of a machine of the sandbox
footprint.py compare BEFORE AFTER      prints the differences and exits with 1 if there are any

Without arguments, the program runs on the machine itself and prints its own footprint.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

FOLDERS = ("/etc", "/usr/local", "/opt", "/var/lib", "/srv", "/root", "/home", "/lib/systemd", "/run/systemd")
SMALL = 1_000_000  # bytes of a file whose content is compared
# Changes on an idle machine, too: the runtime state of systemd and logins, and counters of the kernel.
MOVING = re.compile(
    r"/run/systemd/(ask-password|inhibit|journal|machines|netif|notify|resolve|seats|sessions|timesync|units|users"
    r"|transient/session-|private|propagate|userdb|io\.|machine-id|shutdown|fsck|container|host|inaccessible|nspawn|default-hostname)"
    r"|.*/__pycache__(/|$)"
)
COUNTER = re.compile(
    r"/proc/sys/(fs/(dentry-state|file-nr|inode-|aio-nr|quota)|kernel/(random|ns_last_pid|pty/nr|perf_|sched_)"
    r"|net/.*(conntrack_count|flush|nf_log)|vm/stat_refresh|fs/binfmt_misc)|.*/(stable_secret|compact_memory)"
)
OF_A_LOGIN = re.compile(r"(user@|user-runtime-dir@|run-user-|session-|systemd-|getty|apt-daily|dpkg-db)")
RULES = ("iptables-save", "ip6tables-save", "nft --stateless list ruleset", "ufw status verbose")


def files(owners: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for top in FOLDERS:
        for folder, names, leaves in os.walk(top):
            for path in (f"{folder}/{name}" for name in (*names, *leaves)):
                if not MOVING.match(path):
                    yield f"file {path}", described(path, owners.get(path) or owners.get(f"/usr{path}") or "")


def described(path: str, package: str) -> str:
    seen = os.lstat(path)
    words = [stat.filemode(seen.st_mode), f"{seen.st_uid}:{seen.st_gid}"]
    if stat.S_ISLNK(seen.st_mode):
        words.append(str(Path(path).readlink()))
    elif stat.S_ISREG(seen.st_mode):
        is_small = seen.st_size <= SMALL
        words.append(hashlib.sha256(Path(path).read_bytes()).hexdigest()[:16] if is_small else str(seen.st_size))
    return " ".join([*words, f"package {package}"] if package else words)


def owners() -> dict[str, str]:
    """Return the package of each file."""
    lists = Path("/var/lib/dpkg/info").glob("*.list")
    return {line: path.stem.partition(":")[0] for path in lists for line in path.read_text().splitlines()}


def output(command: str) -> list[str]:
    done = subprocess.run(["sh", "-c", command], check=False, capture_output=True, text=True)
    return done.stdout.splitlines()


def packages() -> Iterator[tuple[str, str]]:
    for line in output("dpkg-query --show --showformat '${Package} ${Version} ${db:Status-Abbrev}\\n'"):
        name, _, rest = line.partition(" ")
        yield f"package {name}", rest.strip()


def units() -> Iterator[tuple[str, str]]:
    for line in output("systemctl list-unit-files --no-legend --plain"):
        name, state, *_ = line.split()
        if state not in ("transient", "generated") and not OF_A_LOGIN.match(name):
            yield f"unit {name}", state
    kinds = "service,socket,timer,mount,path"
    for line in output(f"systemctl list-units --no-legend --plain --full --state=active --type={kinds}"):
        name = line.split()[0]
        if not OF_A_LOGIN.match(name):
            yield f"active {name}", "active"


def accounts() -> Iterator[tuple[str, str]]:
    for kind, path in (("account", "/etc/passwd"), ("group", "/etc/group")):
        for line in Path(path).read_text().splitlines():
            name, _, rest = line.partition(":")
            yield f"{kind} {name}", rest


def rules() -> Iterator[tuple[str, str]]:
    for command in RULES:
        found = [re.sub(r"\[\d+:\d+\]", "", line) for line in output(command) if not line.startswith("#")]
        yield f"rules {command.split()[0]}", "\n".join(found)


def settings() -> Iterator[tuple[str, str]]:
    for folder, _, leaves in os.walk("/proc/sys"):
        for path in (f"{folder}/{name}" for name in leaves):
            if not COUNTER.match(path):
                try:
                    yield f"setting {path}", Path(path).read_text()
                except (OSError, UnicodeDecodeError):
                    continue


def listeners() -> Iterator[tuple[str, str]]:
    for name, state in (("tcp", "0A"), ("tcp6", "0A"), ("udp", "07"), ("udp6", "07")):
        for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]:
            _, local, _, at, *_ = line.split()
            if at == state:
                address, _, port = local.rpartition(":")
                yield f"listener {name} {address} {int(port, 16)}", "open"


def own() -> dict[str, str]:
    subjects = (files(owners()), packages(), units(), accounts(), rules(), settings(), listeners())
    return {key: value for subject in subjects for key, value in subject}


def take(container: str) -> dict[str, str]:
    """Return the footprint of a container of the sandbox."""
    argv = ["podman", "exec", "--interactive", container, "python3", "-"]
    done = subprocess.run(argv, check=True, capture_output=True, text=True, input=Path(__file__).read_text())
    return dict(json.loads(done.stdout))


def differences(before: Mapping[str, str], after: Mapping[str, str]) -> dict[str, str]:
    """Return the differences as texts, by their subject."""
    keys = sorted({*before, *after})
    return {key: f"{before.get(key)} -> {after.get(key)}" for key in keys if before.get(key) != after.get(key)}


def main(verb: str, first: str, second: str) -> int:
    if verb == "take":
        Path(first).write_text(json.dumps(take(second)))
        return 0
    found = differences(*(json.loads(Path(path).read_text()) for path in (first, second)))
    print("\n".join(f"{key}: {text}" for key, text in found.items()))
    return 1 if found else 0


if __name__ == "__main__":
    if len(sys.argv) == 4:
        sys.exit(main(*sys.argv[1:]))
    print(json.dumps(own()))
