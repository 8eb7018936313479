"""What a bare machine is like, by what even a bare machine has: snapshot.py's looks need nft and procps."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import snapshot

if TYPE_CHECKING:
    from machines import Machine

LOOKS = {
    "packages": "dpkg-query --show --showformat '${Package} ${Version} ${db:Status-Status}\\n'",
    # Logins are listed as well, as long as they last.
    "units": "systemctl list-unit-files --no-legend --plain | grep -v ' transient '",
    "accounts": "cat /etc/passwd /etc/group",
    "folders": "ls -A / /opt /usr/local/bin /usr/local/sbin /var/lib",
    # What the kernel counts or draws by itself is no setting.
    "network settings": "grep -rs '' /proc/sys/net | grep -vE 'conntrack_count|stable_secret' | sort",
}


def take(machine: Machine) -> dict[str, str]:
    """Return texts by subject; the firewall is seen with this machine's own tools in the other one's network."""
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
    # Ubuntu's sudo notes so whoever used it for the first time.
    return {**looks, **{path: text for path, text in files.items() if not path.endswith("/.sudo_as_admin_successful")}}
