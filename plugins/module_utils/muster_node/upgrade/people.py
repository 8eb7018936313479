"""What people run on this node, which ends when it is started anew."""

from __future__ import annotations

from ..tools import process

FIRST, NOBODY = 1000, 65534  # as adduser and useradd give uids to people
# What a login brings, and what waits for somebody to type.
OF_A_LOGIN = (
    *("sshd", "sshd-session", "sftp-server", "systemd", "(sd-pam)", "dbus-daemon", "dbus-broker", "dbus-broker-lau"),
    *("ssh-agent", "gpg-agent", "sh", "bash", "dash", "zsh", "fish", "tmux: server", "tmux: client", "screen", "sudo"),
)


def is_at_work(pid: int) -> bool:
    """Whether it is somebody's, and more than a login."""
    uid = process.user_id(pid)
    if uid is None or not FIRST <= uid < NOBODY:
        return False
    return process.known(pid)["name"].lower() not in OF_A_LOGIN
