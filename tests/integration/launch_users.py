"""Accounts for user launches, created without the role launch_users."""

from __future__ import annotations

from typing import TYPE_CHECKING

from paths import SANDBOX

if TYPE_CHECKING:
    from collections.abc import Iterable

    from machines import Machine

GROUP = "muster-launch"
USERS = "/var/lib/muster/users"
SEATS = "/run/muster/reservations"
# On a node without GPUs. Every step is idempotent.
MAKE = f"""
set -eu
getent group {GROUP} >/dev/null || groupadd --system {GROUP}
getent passwd $1 >/dev/null || useradd --create-home --shell /bin/bash $1
usermod --append --groups {GROUP} $1
install -d -m 0700 -o $1 -g $1 /home/$1/.ssh
install -m 0600 -o $1 -g $1 /dev/null /home/$1/.ssh/authorized_keys
echo "$2" > /home/$1/.ssh/authorized_keys
install -d -m 0755 /run/muster /var/lib/muster {USERS}
install -d -m 0700 -o $1 -g $1 {USERS}/$1
printf 'd %s 0750 root %s\nf %s/cpu 0644 root root\n' {SEATS} {GROUP} {SEATS} > /etc/tmpfiles.d/muster-test.conf
systemd-tmpfiles --create /etc/tmpfiles.d/muster-test.conf
loginctl enable-linger $1
uid=$(id -u $1)
until test -S /run/user/$uid/systemd/private; do sleep 0.1; done
"""
# All members of the group were created by MAKE.
FORGET = f"""
for name in $(getent group {GROUP} | cut -d: -f4 | tr , ' '); do
    loginctl disable-linger $name
    uid=$(id -u $name)
    loginctl terminate-user $name
    systemctl stop user-$uid.slice
    # The next account may get its number, and logind ends what it still holds for the old one: up to ten seconds later.
    for _ in $(seq 100); do test -e /run/systemd/users/$uid || break; sleep 0.2; done
    userdel --force --remove $name
    rm -rf {USERS}/$name
done
rm -rf /etc/tmpfiles.d/muster-test.conf {SEATS}
groupdel {GROUP}
true
"""


def forget_launch_users(machine: Machine) -> None:
    """Remove the launch users of earlier tests. Each test creates its own."""
    machine.inside("bash", "-c", FORGET, "forget")


def make_launch_user(name: str, machines: Iterable[Machine]) -> None:
    """Create an account for user launches on each machine. The account accepts the sandbox's SSH key."""
    key = (SANDBOX / "id_ed25519.pub").read_text().strip()
    for machine in machines:
        machine.inside("bash", "-c", MAKE, "make", name, key)
