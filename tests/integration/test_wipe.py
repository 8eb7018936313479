"""A node leaves the cluster with nothing of Muster's on it: its files before Muster, with it, and behind it.

The third node is made anew, looked at, provisioned, lived on by people, and wiped.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from conftest import UP_TO_NETWORK
from machines import find_machine, make_bare
from paths import INVENTORY, SANDBOX
from snapshot import differences, take
from waiting import PATIENCE, until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from machines import Machine, Play, Result

pytestmark = pytest.mark.slow
NODE = "node3"
LISTED, PINNED = INVENTORY / "hosts_more.yml", SANDBOX / "known_hosts"
WIPE = {"node": NODE, "wipe": "true", "trust_known_hosts": str(PINNED)}
LAUNCH = "muster-launch-20261124-101010-abcd"
# People's own, in places where Muster has something as well.
THEIRS = {
    "/home/muster/thesis.txt": "years of work\n",
    "/home/muster/.ssh/authorized_keys": "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIBkV7bhlbbnRSYSaJ34ycfu2s somebody\n",
    "/var/lib/muster/work/20261124-101010-abcd/model.pt": "weights\n",
    "/etc/sysctl.d/95-site.conf": "net.core.somaxconn = 20000\n",
    "/opt/muster/pytorch/envs/mine/notes": "an environment that somebody made by hand\n",
    "/opt/muster-site/tool": "of a site that is called like it\n",
}
# What packages bring that stay, and what is written whenever something is installed or an account goes.
OF_PACKAGES = re.compile(
    r"/etc/(chrony|ufw|default/(ufw|chrony)|logrotate\.d|rsyslog\.d|init\.d|rc\d\.d|dhcp|ppp|apparmor\.d|ssl/certs|"
    r"ca-certificates|alternatives|ld\.so\.cache|systemd/system/[a-z-]+\.target\.wants|systemd/system/chronyd\.service|"
    r"(passwd|group|shadow|gshadow|subuid|subgid)-?$|iproute2|python3|perl|cron\.|network|insserv|bash_completion)"
    r"|/usr/local/(lib/python|share/ca-cert)|/etc$|/etc/\.pwd\.lock|/etc/iproute2"
)


@pytest.fixture(scope="module")
def bare(play: Play, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What the node is like before Muster was there."""
    return take(make_bare(tmp_path_factory.mktemp("bare"), NODE))


@pytest.fixture(scope="module")
def lived_in(bare: dict[str, str], play: Play, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """The node with all of Muster on it, and with people's own beside that."""
    listed, pinned = LISTED.read_text(), PINNED.read_text()
    done = play("site.yml", tags=f"{UP_TO_NETWORK},pytorch")
    assert done.rc == 0, done.stdout
    machine = find_machine(NODE)
    for path, text in THEIRS.items():
        machine.inside("sh", "-ec", 'mkdir -p "$(dirname "$1")"; printf %s "$2" >>"$1"', "sh", path, text)
    machine.inside("ufw", "allow", "8080/tcp")
    yield machine
    LISTED.write_text(listed)
    PINNED.write_text(pinned)
    make_bare(tmp_path_factory.mktemp("again"), NODE)
    assert play("site.yml", tags=f"{UP_TO_NETWORK},pytorch").rc == 0


def of_muster(machine: Machine) -> list[str]:
    """The paths outside people's homes that carry its name, and are not people's own here."""
    find = "find / -xdev -iname '*muster*' -not -path '/proc/*' -not -path '/sys/*' -not -path '*/.ansible/*'"
    found = machine.inside("sh", "-c", f"{find} 2>/dev/null", check=False).stdout.splitlines()
    ours = ("/opt/muster", "/opt/muster/pytorch", "/var/lib/muster", "/home/muster", "/opt/muster-site")
    return [path for path in found if path not in ours and not path.startswith("/opt/muster-site/")]


@pytest.fixture(scope="module")
def as_listed(lived_in: Machine) -> tuple[str, str]:
    return LISTED.read_text(), PINNED.read_text()


@pytest.fixture(scope="module")
def wiped(lived_in: Machine, as_listed: tuple[str, str], play: Play) -> Result:
    done = play("playbooks/retire.yml", extravars=WIPE)
    assert done.rc == 0, done.stdout
    return done


def test_it_is_refused_under_a_launch(lived_in: Machine, play: Play) -> None:
    lived_in.inside("systemd-run", f"--unit={LAUNCH}", "--uid=muster", "sleep", "infinity")
    before = take(lived_in)
    try:
        refused = play("playbooks/retire.yml", extravars=WIPE)
        assert lived_in.inside("systemctl", "is-active", LAUNCH).stdout.strip() == "active"
        after = take(lived_in)
    finally:
        lived_in.inside("systemctl", "stop", LAUNCH)
    assert refused.rc != 0
    assert LAUNCH.removeprefix("muster-launch-") in refused.stdout
    assert differences(before, after) == []
    assert NODE in LISTED.read_text()


def test_a_check_shows_it_all_and_changes_nothing(lived_in: Machine, play: Play) -> None:
    before = take(lived_in)
    checked = play("playbooks/retire.yml", extravars=WIPE, check=True)
    assert checked.rc == 0, checked.stdout
    assert differences(before, take(lived_in)) == []
    for line in (
        "-/etc/sysctl.d/90-muster.conf",
        "-/opt/muster/pytorch/current",
        "-/var/lib/muster/installed.json",
        "-account muster, without its home",
        f"-{find_machine('node1').address} node1",
    ):
        assert line in checked.stdout, line


def test_nothing_of_muster_is_left(wiped: Result, bare: dict[str, str], lived_in: Machine) -> None:
    assert of_muster(lived_in) == []
    after = take(lived_in)
    assert "muster" not in after["units"]
    assert "muster" not in after["firewall"].replace("muster: ssh", "")
    subjects = ("packages", "units", "firewall", "network settings")
    changed = [path for path in {*bare, *after} if bare.get(path) != after.get(path) and path not in subjects]
    unexplained = [path for path in changed if not OF_PACKAGES.match(path) and not path.startswith("/home/muster")]
    assert after["/etc/hosts"].split() == bare["/etc/hosts"].split()  # a space may have become a tab
    allowed = {
        "/etc/hosts",
        "/var/lib/muster",
        "/var/lib/muster/work",
        "/var/lib/muster/work/20261124-101010-abcd",
        *THEIRS,
    }
    assert sorted({*unexplained} - allowed) == [], differences(
        {path: bare.get(path, "") for path in unexplained}, {path: after.get(path, "") for path in unexplained}
    )


def test_what_is_peoples_stays(wiped: Result, lived_in: Machine) -> None:
    for path, text in THEIRS.items():
        assert lived_in.inside("cat", path).stdout == text, path
    assert "8080/tcp" in lived_in.inside("ufw", "status").stdout
    said = wiped.results("Take the training user off, if Muster has made it")[NODE]["left"]
    assert said == ["/home/muster stays: what is in the home of muster is people's"]
    assert lived_in.inside("getent", "passwd", "muster", check=False).returncode == 2


def test_it_can_be_logged_in_on(wiped: Result, lived_in: Machine) -> None:
    assert wiped.results("See that the node can still be logged in on")[NODE]["msg"].startswith(
        f"{NODE}: a new login works"
    )
    assert lived_in.ssh("sudo true").returncode == 0
    lived_in.podman("restart", "--time=2")
    until(lived_in.ssh_answers, PATIENCE, "it answers behind a restart, too")


def test_the_cluster_has_forgotten_it(wiped: Result) -> None:
    assert NODE not in LISTED.read_text()
    assert find_machine("node1").inside("grep", NODE, "/etc/hosts", check=False).returncode == 1


def test_once_more_takes_nothing_off(wiped: Result, as_listed: tuple[str, str], lived_in: Machine, play: Play) -> None:
    """As a run does that was cut off before the inventory has lost it."""
    before = take(lived_in)
    for path, text in zip((LISTED, PINNED), as_listed, strict=True):
        path.write_text(text)
    again = play("playbooks/retire.yml", extravars=WIPE)
    assert again.rc == 0, again.stdout
    assert [one for one in again.changed if one.startswith(NODE)] == []
    assert differences(before, take(lived_in)) == []
    assert NODE not in LISTED.read_text()


def test_when_it_is_gone_nothing_changes(wiped: Result, lived_in: Machine, play: Play) -> None:
    listed, pinned = LISTED.read_text(), PINNED.read_text()
    before = take(lived_in)
    again = play("playbooks/retire.yml", extravars=WIPE)
    assert (again.rc, again.changed) == (0, []), again.stdout
    assert f"{NODE}: nothing was taken off it, because only the inventory knew the way to it." in again.stdout
    assert (listed, pinned) == (LISTED.read_text(), PINNED.read_text())
    assert differences(before, take(lived_in)) == []
