"""An existing server becomes a node and keeps all files, rules and settings of its users."""

from __future__ import annotations

import re
import subprocess
from typing import TYPE_CHECKING

import pytest

from conftest import UP_TO_NETWORK
from machines import find_machine, make_bare
from outside import PAYLOADS, listeners, scan
from snapshot import differences, lost, take
from waiting import PATIENCE, until

if TYPE_CHECKING:
    from machines import Machine, Play

pytestmark = pytest.mark.moment

NAME = "node3"
PORTAL = 8443  # open to everybody by the site's own rule
PUBLISHED = 8080  # by the container engine
FORBIDDEN = 5555  # by the site's own nft rule
# Lines that may go: the loopback line of the node's name, and files that packages rewrite.
MAY_GO = re.compile(r"/etc/hosts: 127\.0\.1\.1|/etc/ld\.so\.cache|/etc/(passwd|group|shadow|gshadow|subuid|subgid)-:")
UPGRADE = "site-upgrade"
BUSY_APT = "/run/muster-test-busy-apt.py"
AT_WORK = "/run/muster-test-apt-is-at-work"
# New keys are unknown before they are generated.
BY_CHANCE = ("Check the user, the key and the host keys", "Authorize logins between the nodes")


class Story:
    """The machine's state before and after, and the results of the runs."""

    def __init__(self, play: Play, machine: Machine) -> None:
        self.machine = machine
        self.before = take(machine)
        self.collision = play("site.yml", tags="baseline", limit=NAME, extravars=COLLISION)
        self.check = play("site.yml", tags=UP_TO_NETWORK, check=True)
        self.checked = take(machine)
        self.upgrade()
        self.converge = play("site.yml", tags=UP_TO_NETWORK)
        self.after = take(machine)
        self.again = play("site.yml", tags=UP_TO_NETWORK)

    def upgrade(self) -> None:
        """Start the machine's own package installation, which keeps apt busy until the baseline waits for the lock."""
        program = (PAYLOADS / "busy_apt.py").read_text()
        keep = ["podman", "exec", "--interactive", self.machine.container, "sh", "-c", f"cat >{BUSY_APT}"]
        subprocess.run(keep, input=program, check=True, capture_output=True, text=True)
        hook = f"--option=DPkg::Pre-Invoke::=python3 {BUSY_APT} {AT_WORK}"
        options = ["--quiet", "--yes", "--no-install-recommends", hook]
        self.machine.inside("systemd-run", "--quiet", f"--unit={UPGRADE}", "apt-get", *options, "install", "bc")
        until(lambda: not self.machine.inside("test", "-e", AT_WORK, check=False).returncode, PATIENCE, "apt is busy")


# The new user would get alice's uid.
COLLISION = {"cluster_user": "trainer", "node_baseline_user_uid": "1001"}


@pytest.fixture(scope="module")
def story(play: Play, turn: int, tmp_path_factory: pytest.TempPathFactory) -> Story:
    machine = make_bare(tmp_path_factory.mktemp("bare"), NAME)
    dress = ["podman", "exec", "--interactive", machine.container, "sh", "-s"]
    program = (PAYLOADS / "lived_in.sh").read_text()
    done = subprocess.run(dress, input=program, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return Story(play, machine)


def test_occupied_uid_is_refused_and_its_owner_is_reported(story: Story) -> None:
    assert story.collision.rc != 0
    assert re.search(r"uid 1001.*alice|alice.*uid 1001", story.collision.stdout), story.collision.stdout
    assert story.machine.inside("id", "trainer", check=False).returncode != 0


def test_refusal_and_check_mode_change_nothing(story: Story) -> None:
    assert story.check.rc == 0, story.check.stdout
    assert differences(story.before, story.checked) == []


def test_server_becomes_a_node_while_apt_is_busy(story: Story) -> None:
    assert story.converge.rc == 0, story.converge.stdout
    assert story.machine.inside("systemctl", "show", "-p", "Result", UPGRADE).stdout == "Result=success\n"
    assert story.machine.inside("dpkg-query", "-W", "bc").returncode == 0


def test_check_mode_shows_the_changes(story: Story) -> None:
    assert story.check.changing_roles(NAME) == story.converge.changing_roles(NAME)
    for shown in story.check.events:
        task = shown.get("event_data", {}).get("task", "")
        if shown["event"] == "runner_on_ok" and shown["event_data"]["host"] == NAME and task not in BY_CHANCE:
            would = shown["event_data"]["res"].get("diff")
            done = story.converge.results(task).get(NAME, {}).get("diff")
            assert not would or not done or would == done, task


def test_second_run_changes_nothing(story: Story) -> None:
    assert story.again.rc == 0, story.again.stdout
    assert story.again.changed == []


def test_existing_lines_are_kept(story: Story) -> None:
    # Kernel settings count only by their files, which are included: a larger value may replace a smaller one.
    gone = lost(story.before, {**story.after, "network settings": story.before["network settings"]})
    assert [line for line in gone if not MAY_GO.match(line)] == []


def test_rules_of_the_site_stay_active(story: Story) -> None:
    with listeners(story.machine, [PORTAL, FORBIDDEN, 8888]):
        outsider, peer = find_machine("outsider"), find_machine("node1")
        assert scan(outsider, story.machine.address, 22, PORTAL, FORBIDDEN, 8888).open == [22, PORTAL]
        assert FORBIDDEN not in scan(peer, story.machine.address, FORBIDDEN).open


def test_published_port_of_a_container_stays_open(story: Story) -> None:
    assert scan(find_machine("outsider"), story.machine.address, PUBLISHED).open == [PUBLISHED]


def test_existing_time_daemon_is_kept(story: Story) -> None:
    assert story.machine.inside("systemctl", "is-enabled", "ntpsec").stdout == "enabled\n"
    assert "chrony " not in story.after["packages"]


def test_existing_settings_stay_active(story: Story) -> None:
    assert story.machine.inside("sysctl", "-n", "net.ipv4.ip_forward").stdout == "1\n"
    assert "maxauthtries 4" in story.machine.inside("sshd", "-T").stdout


def test_users_keep_their_ids_and_files(story: Story) -> None:
    assert story.machine.inside("id", "-u", "alice").stdout == "1001\n"
    assert story.machine.inside("id", "-u", "muster").stdout == "1500\n"
    assert (
        story.machine.inside("sudo", "-u", "alice", "cat", "/home/alice/thesis.tex").stdout == "three years of work\n"
    )
    archive = story.machine.inside("sudo", "-Hu", "muster", "ssh", "-G", "archive").stdout
    assert "hostname archive.site.example" in archive
    assert "user keeper" in archive
