"""Take snapshots of a bare machine using only the few programs that it has. snapshot.py would need nft and procps."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import snapshot

if TYPE_CHECKING:
    from machines import Machine

LOOKS = {
    "packages": "dpkg-query --show --showformat '${Package} ${Version} ${db:Status-Status}\\n'",
    # Without transient units, such as logins.
    "units": "systemctl list-unit-files --no-legend --plain | grep -v ' transient '",
    "accounts": "cat /etc/passwd /etc/group",
    "folders": "ls -A / /opt /usr/local/bin /usr/local/sbin /var/lib",
    # Counters and random values of the kernel are not settings.
    "network settings": "grep -rs '' /proc/sys/net | grep -vE 'conntrack_count|stable_secret' | sort",
}


def take(machine: Machine) -> dict[str, str]:
    """Return {subject: text}. The firewall is read with this host's tools in the container's network namespace."""
    looks = {subject: machine.inside("sh", "-c", command).stdout for subject, command in LOOKS.items()}
    pid = subprocess.run(
        ["podman", "inspect", "--format", "{{.State.Pid}}", machine.container],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()
    saved = subprocess.run(
        ["nsenter", f"--net=/proc/{pid}/ns/net", "iptables-save"], check=True, capture_output=True, text=True
    ).stdout
    looks["firewall"] = "\n".join(line for line in saved.splitlines() if line.startswith("-"))
    files = snapshot.files(machine)
    # Ubuntu's sudo creates this file at a user's first use.
    return {**looks, **{path: text for path, text in files.items() if not path.endswith("/.sudo_as_admin_successful")}}
