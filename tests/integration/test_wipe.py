"""A wiped node keeps nothing of Muster: its states before Muster, with Muster and after the wipe are compared.

The third node is recreated, configured, filled with files of users, and wiped. The same is repeated with options that
only some labs use.
"""

from __future__ import annotations

import re
import subprocess
from typing import TYPE_CHECKING

import pytest

from conftest import UP_TO_NETWORK
from gpu_node import put
from http_proxy import Proxy
from machines import find_machine, make_bare
from paths import INVENTORY, SANDBOX
from people import people
from snapshot import differences, take
from waiting import PATIENCE, until

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from machines import Machine, Play, Result

pytestmark = pytest.mark.slow
NODE = "node3"
LISTED, PINNED = INVENTORY / "hosts_more.yml", SANDBOX / "known_hosts"
WIPE = {"node": NODE, "wipe": "true", "trust_known_hosts": str(PINNED)}
LAUNCH = "muster-launch-20261124-101010-abcd"
# Files of users, next to Muster's files.
THEIRS = {
    "/home/muster/thesis.txt": "years of work\n",
    "/home/muster/.ssh/authorized_keys": "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIBkV7bhlbbnRSYSaJ34ycfu2s somebody\n",
    "/var/lib/muster/work/20261124-101010-abcd/model.pt": "weights\n",
    "/etc/sysctl.d/95-site.conf": "net.core.somaxconn = 20000\n",
    "/opt/muster/pytorch/envs/mine/notes": "an environment that somebody made by hand\n",
    "/opt/muster-site/tool": "of a site that is called like it\n",
}
# Files of packages that stay, and files that change with every installation or account.
OF_PACKAGES = re.compile(
    r"/etc/(chrony|ufw|default/(ufw|chrony)|logrotate\.d|rsyslog\.d|init\.d|rc\d\.d|dhcp|ppp|apparmor\.d|ssl/certs|"
    r"ca-certificates|alternatives|ld\.so\.cache|systemd/system/[a-z-]+\.target\.wants|systemd/system/chronyd\.service|"
    r"(passwd|group|shadow|gshadow|subuid|subgid)-?$|iproute2|python3|perl|cron\.|network|insserv|bash_completion)"
    r"|/usr/local/(lib/python|share/ca-cert)|/etc$|/etc/\.pwd\.lock|/etc/iproute2"
)


# The site's own firewall, so that Muster uses an nftables table; the interface configuration; and anna's files.
SITE = "flush ruleset; table inet site { chain in { type filter hook input priority -5; tcp dport 5555 drop; }; }"
INTERFACES = "/etc/network/interfaces.d/training"
FILES_OF_ANNA = {"/home/anna/thesis.txt": "years of work\n", "/var/lib/muster/users/anna/result": "hers\n"}
FOLDERS_OF_ANNA = ("/var/lib/muster", "/var/lib/muster/users", "/var/lib/muster/users/anna")
SOURCES = "grep -rhoE 'https?://[^ ]+' /etc/apt/sources.list* | sort -u"


@pytest.fixture(scope="module")
def listed(play: Play, networked: list[Machine], tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Yield the node's inventory entry. Restore the entry and the node afterwards."""
    del networked
    listed, pinned = LISTED.read_text(), PINNED.read_text()
    yield listed
    LISTED.write_text(listed)
    PINNED.write_text(pinned)
    make_bare(tmp_path_factory.mktemp("again"), NODE)
    assert play("site.yml", tags=f"{UP_TO_NETWORK},pytorch").rc == 0


@pytest.fixture(scope="module")
def bare(listed: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return the state of the node before Muster."""
    return take(make_bare(tmp_path_factory.mktemp("bare"), NODE))


@pytest.fixture(scope="module")
def lived_in(bare: dict[str, str], play: Play) -> Machine:
    """Configure the node completely, add files of users, and return the node."""
    done = play("site.yml", tags=f"{UP_TO_NETWORK},pytorch")
    assert done.rc == 0, done.stdout
    machine = find_machine(NODE)
    for path, text in THEIRS.items():
        machine.inside("sh", "-ec", 'mkdir -p "$(dirname "$1")"; printf %s "$2" >>"$1"', "sh", path, text)
    machine.inside("ufw", "allow", "8080/tcp")
    return machine


def of_muster(machine: Machine) -> list[str]:
    """Return the paths whose names contain muster, except for paths that belong to users."""
    find = "find / -xdev -iname '*muster*' -not -path '/proc/*' -not -path '/sys/*' -not -path '*/.ansible/*'"
    found = machine.inside("sh", "-c", f"{find} 2>/dev/null", check=False).stdout.splitlines()
    ours = ("/opt/muster", "/opt/muster/pytorch", "/var/lib/muster", "/home/muster", "/opt/muster-site")
    return [path for path in found if path not in ours and not path.startswith("/opt/muster-site/")]


def as_before(bare: dict[str, str], after: dict[str, str], allowed: Sequence[str]) -> None:
    """Check that the states differ only in these files and in files of packages."""
    subjects = ("packages", "units", "firewall", "network settings", "/etc/hosts", *allowed)
    changed = [path for path in {*bare, *after} if bare.get(path) != after.get(path) and path not in subjects]
    unexplained = [path for path in changed if not OF_PACKAGES.match(path) and not path.startswith("/home/muster")]
    assert after["/etc/hosts"].split() == bare["/etc/hosts"].split()  # a space may have become a tab
    assert sorted(unexplained) == [], differences(
        {path: bare.get(path, "") for path in unexplained}, {path: after.get(path, "") for path in unexplained}
    )


@pytest.fixture(scope="module")
def as_listed(lived_in: Machine) -> tuple[str, str]:
    return LISTED.read_text(), PINNED.read_text()


@pytest.fixture(scope="module")
def wiped(lived_in: Machine, as_listed: tuple[str, str], play: Play) -> Result:
    done = play("playbooks/retire.yml", extravars=WIPE)
    assert done.rc == 0, done.stdout
    return done


def test_wipe_is_refused_during_a_launch(lived_in: Machine, play: Play) -> None:
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


def test_check_mode_shows_everything_and_changes_nothing(lived_in: Machine, play: Play) -> None:
    before = take(lived_in)
    checked = play("playbooks/retire.yml", extravars=WIPE, check=True)
    assert checked.rc == 0, checked.stdout
    assert differences(before, take(lived_in)) == []
    for line in (
        "-/etc/sysctl.d/90-muster.conf",
        "-/opt/muster/pytorch/current",
        "-/var/lib/muster/installed.json",
        "-account muster (its home is kept)",
        f"-{find_machine('node1').address} node1",
    ):
        assert line in checked.stdout, line


def test_wipe_removes_everything_of_muster(wiped: Result, bare: dict[str, str], lived_in: Machine) -> None:
    assert of_muster(lived_in) == []
    after = take(lived_in)
    assert "muster" not in after["units"]
    assert "muster" not in after["firewall"].replace("muster: ssh", "")
    work = ("/var/lib/muster", "/var/lib/muster/work", "/var/lib/muster/work/20261124-101010-abcd")
    as_before(bare, after, (*work, *THEIRS))


def test_files_and_rules_of_users_are_kept(wiped: Result, lived_in: Machine) -> None:
    for path, text in THEIRS.items():
        assert lived_in.inside("cat", path).stdout == text, path
    assert "8080/tcp" in lived_in.inside("ufw", "show", "added").stdout
    assert lived_in.inside("ufw", "status").stdout == "Status: inactive\n"  # as before Muster
    said = wiped.results("Remove the training user if Muster created it")[NODE]["left"]
    assert said == ["/home/muster is kept, because the home of muster might contain user data"]
    assert lived_in.inside("getent", "passwd", "muster", check=False).returncode == 2


def test_wiped_node_accepts_logins(wiped: Result, lived_in: Machine) -> None:
    assert wiped.results("Test a new login")[NODE]["msg"].startswith(f"{NODE}: a new login works")
    assert lived_in.ssh("sudo true").returncode == 0
    lived_in.podman("restart", "--time=2")
    until(lived_in.ssh_answers, PATIENCE, "the node answers after a restart")


def test_other_nodes_forget_the_wiped_node(wiped: Result) -> None:
    assert NODE not in LISTED.read_text()
    assert find_machine("node1").inside("grep", NODE, "/etc/hosts", check=False).returncode == 1


def test_second_wipe_removes_nothing(wiped: Result, as_listed: tuple[str, str], lived_in: Machine, play: Play) -> None:
    """The inventory still lists the node, as after a run that was killed before it changed the inventory."""
    before = take(lived_in)
    for path, text in zip((LISTED, PINNED), as_listed, strict=True):
        path.write_text(text)
    again = play("playbooks/retire.yml", extravars=WIPE)
    assert again.rc == 0, again.stdout
    assert [one for one in again.changed if one.startswith(NODE)] == []
    assert differences(before, take(lived_in)) == []
    assert NODE not in LISTED.read_text()


def test_wipe_of_an_unlisted_node_changes_nothing(wiped: Result, lived_in: Machine, play: Play) -> None:
    listed, pinned = LISTED.read_text(), PINNED.read_text()
    before = take(lived_in)
    again = play("playbooks/retire.yml", extravars=WIPE)
    assert (again.rc, again.changed) == (0, []), again.stdout
    assert f"{NODE}: no files were removed from the node, because its connection settings are no longer" in again.stdout
    assert (listed, pinned) == (LISTED.read_text(), PINNED.read_text())
    assert differences(before, take(lived_in)) == []


# ---------------------------------------------------------------- options that only some labs use


def certificate(folder: Path) -> str:
    """Create an unknown certificate authority. Return its file."""
    options = ["-x509", "-newkey", "rsa:2048", "-nodes", "-days", "365", "-subj", "/CN=muster-test"]
    argv = ["openssl", "req", *options, "-keyout", "key.pem", "-out", "ca.pem"]
    subprocess.run(argv, check=True, capture_output=True, cwd=folder)
    return str(folder / "ca.pem")


def without_ufw(folder: Path) -> Machine:
    """Recreate the node without ufw, with nftables rules and an interface managed by ifupdown."""
    machine = make_bare(folder, NODE)
    machine.inside("sh", "-c", "DEBIAN_FRONTEND=noninteractive apt-get -q -y purge ufw")
    put(machine.container, "/etc/nftables.conf", SITE)
    put(machine.container, INTERFACES, "auto eth0\niface eth0 inet manual\n")
    machine.inside("systemctl", "enable", "--now", "nftables")
    return machine


def of_the_site(machine: Machine) -> dict[str, str]:
    """Return state that is not visible in files: firewall rules, groups, linger, and package sources."""
    looks = {
        "tables": "nft list tables",
        "groups": "id -nG anna",
        "linger": "ls /var/lib/systemd/linger 2>/dev/null; true",
        "sources": SOURCES,
        "trusted": "sha256sum /etc/ssl/certs/ca-certificates.crt",
    }
    return {subject: machine.inside("sh", "-c", command).stdout for subject, command in looks.items()}


def test_wipe_removes_optional_components(listed: str, play: Play, tmp_path: Path) -> None:
    """The components are an nftables table, a training MTU, a launch user, a mirror and a certificate."""
    LISTED.write_text(listed)
    machine = without_ufw(tmp_path)
    with people([machine], anna=2001) as (anna,):
        before, bare = take(machine), of_the_site(machine)
        uris = [uri.rstrip("/") for uri in bare["sources"].split()]
        archive = next(uri for uri in uris if "security" not in uri)
        security = next((uri for uri in uris if "security" in uri), archive)
        gateway = machine.address.rpartition(".")[0] + ".1"
        with Proxy(gateway, {"/archive/": f"{archive}/", "/security/": f"{security}/"}).running() as mirror:
            variables = {
                "launch_users": ["anna"],
                "mtu_training": 1400,
                "cluster_extra_ca": certificate(tmp_path),
                "cluster_mirror": "custom",
                "cluster_mirror_urls": {name: f"{mirror.url}/{name}/" for name in ("archive", "security")},
            }
            done = play("site.yml", tags="baseline,network,launch_users", limit=NODE, extravars=variables)
            assert done.rc == 0, done.stdout
            there = of_the_site(machine)
            assert "inet muster" in there["tables"]
            assert machine.inside("cat", "/sys/class/net/eth0/mtu").stdout.strip() == "1400"
            assert ("muster-launch" in there["groups"], "anna" in there["linger"]) == (True, True)
            assert mirror.url in there["sources"]
            assert there["trusted"] != bare["trusted"]
            for path, text in FILES_OF_ANNA.items():
                anna.ssh(machine, f"printf '{text}' > {path}")
            gone = play("playbooks/retire.yml", extravars={**WIPE, **variables})
        assert gone.rc == 0, gone.stdout
        assert of_muster(machine) == []
        assert of_the_site(machine) == bare
        as_before(before, take(machine), (*FOLDERS_OF_ANNA, *FILES_OF_ANNA))
        said = gone.results("Test a new login")[NODE]["msg"]
        assert said.startswith(f"{NODE}: a new login works")
        machine.podman("restart", "--time=2")
        until(machine.ssh_answers, PATIENCE, "the node answers after a restart")
        assert machine.inside("cat", "/sys/class/net/eth0/mtu").stdout.strip() == "1500"
        assert of_the_site(machine) == bare
        assert {path: anna.ssh(machine, f"cat {path}").stdout for path in FILES_OF_ANNA} == FILES_OF_ANNA
    assert NODE not in LISTED.read_text()
