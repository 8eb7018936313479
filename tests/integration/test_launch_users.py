"""Launch users get permissions and limits, checked over SSH as these users, and lose them on removal."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from launch_users import forget_launch_users
from people import check_out, people
from waiting import PATIENCE, until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from machines import Machine, Play, Result
    from people import Person

TASK = "launch_users : Configure user launches"
TORCHRUN = "/usr/local/lib/muster/bin/torchrun"
# Paths that the role may leave or change. The users' own folders are checked separately.
OURS = (
    "/etc/tmpfiles.d /etc/profile.d /etc/security/limits.d /etc/systemd/system /usr/local/lib /var/lib/systemd/linger"
)
SLOT = "/run/muster/reservations/cpu"
TAKE_A_SLOT = f"flock --nonblock {SLOT} true"
UNIT = "muster-launch-20261123-101500-ab12"
RUNTIME = "export XDG_RUNTIME_DIR=/run/user/$(id -u)"


@pytest.fixture(scope="module")
def machine(with_pytorch: None, node: Callable[[str], Machine]) -> Machine:
    forget_launch_users(node("node1"))
    return node("node1")


@pytest.fixture
def anna_and_ben(machine: Machine, play: Play) -> Iterator[tuple[Person, Person]]:
    with people([machine], anna=2001, ben=2002) as (anna, ben):
        try:
            yield anna, ben
        finally:
            for person in (anna, ben):
                machine.inside("systemctl", "stop", f"user@{person.uid}.service")
            assert given(play).rc == 0


def given(play: Play, *users: str | dict[str, str], check: bool = False, **more: Any) -> Result:
    variables = {"launch_users": list(users), **more}
    return play("site.yml", tags="launch_users", limit="node1", extravars=variables, check=check)


def state(machine: Machine) -> str:
    look = f"find {OURS} -path '*multi-user*' -prune -o -type f -print0 | sort -z | xargs -0 sha256sum"
    look += "; ls -ld /run/muster/reservations; getent group muster-launch; find /usr/local/lib/muster /var/lib/muster"
    return machine.inside("sh", "-c", f"{look} -maxdepth 1 | grep -v claim | sort; true", check=False).stdout


def without_shared_lines(state: str) -> list[str]:
    """Return the lines without those about records of checks and about empty folders that other steps also create."""
    stay = re.compile(
        r"/usr/local/lib/muster|/var/lib/muster(/users|/looks|/installed\.json)?"
        r"|d.* root root .* /run/muster/reservations"
    )
    return [line for line in state.splitlines() if not stay.fullmatch(line)]


def test_users_are_added_and_removed(machine: Machine, play: Play, anna_and_ben: tuple[Person, Person]) -> None:
    anna, ben = anna_and_ben
    bare = state(machine)
    assert anna.ssh(machine, TAKE_A_SLOT, check=False).returncode != 0
    checked = given(play, "anna", {"name": "ben", "nofile": "4096:8192"}, check=True)
    assert checked.rc == 0, checked.stdout
    assert checked.changed == [f"node1: {TASK.partition(' : ')[2]}"]
    assert "+linger of anna: yes" in checked.stdout
    assert state(machine) == bare

    made = given(play, "anna", {"name": "ben", "nofile": "4096:8192"})
    assert made.rc == 0, made.stdout
    again = given(play, "anna", {"name": "ben", "nofile": "4096:8192"})
    assert again.rc == 0, again.stdout
    assert again.changed == []
    verified = given(play, "anna", {"name": "ben", "nofile": "4096:8192"}, launch_users_mode="verify")
    assert verified.rc == 0, verified.stdout

    check_as_the_users(machine, anna, ben)

    left = given(play, "ben")
    assert left.rc == 0, left.stdout
    assert anna.ssh(machine, TAKE_A_SLOT, check=False).returncode != 0
    assert ben.ssh(machine, TAKE_A_SLOT).returncode == 0
    kept = machine.inside("cat", "/var/lib/muster/users/anna/result").stdout
    assert kept == "hers\n"
    assert "the files of anna in /var/lib/muster/users/anna are kept" in left.stdout

    none = given(play)
    assert none.rc == 0, none.stdout
    assert without_shared_lines(state(machine)) == without_shared_lines(bare)
    assert given(play).changed == []


def check_as_the_users(machine: Machine, anna: Person, ben: Person) -> None:
    """Check the permissions and limits of the users."""
    assert "muster-launch" in anna.ssh(machine, "id -nG").stdout.split()
    assert anna.ssh(machine, "bash -lc 'command -v torchrun'").stdout.strip() == TORCHRUN
    assert "usage: torchrun" in anna.ssh(machine, "bash -lc 'torchrun --help'").stdout
    # The environment's python does not precede the system's python.
    assert anna.ssh(machine, "bash -lc 'command -v python3'").stdout.strip() == "/usr/bin/python3"
    assert "torchrun" not in machine.inside("su", "--login", "muster", "-c", "command -v torchrun", check=False).stdout
    assert anna.ssh(machine, TAKE_A_SLOT).returncode == 0
    refused = (
        *("touch /run/muster/reservations/mine", f"rm -f {SLOT}", f"sh -c 'echo x >> {SLOT}'"),
        *("ls /var/lib/muster/users/ben", "touch /var/lib/muster/users/mine", "sudo -n true"),
    )
    for command in refused:
        assert anna.ssh(machine, command, check=False).returncode != 0, command
    anna.ssh(machine, "echo hers > /var/lib/muster/users/anna/result")
    assert machine.inside("stat", "--format=%U %a", "/var/lib/muster/users/anna").stdout == "anna 700\n"
    # Units of the user manager have the limits and the group, and survive the logout.
    unit = f"{RUNTIME}; systemd-run --user --quiet --unit=mine"
    look = "id -nG > /var/lib/muster/users/ben/groups; cat /proc/self/limits > /var/lib/muster/users/ben/limits"
    ben.ssh(machine, f"{unit} sh -c '{look}; exec sleep 4711'")
    folder = "/var/lib/muster/users/ben"
    until(lambda: machine.inside("pgrep", "-fx", "sleep 4711", check=False).stdout, PATIENCE, "the unit runs")
    limits = machine.inside("cat", f"{folder}/limits").stdout
    assert next(line for line in limits.splitlines() if line.startswith("Max open files")).split()[4] == "8192"
    assert next(line for line in limits.splitlines() if line.startswith("Max open files")).split()[3] != "1024"
    assert "muster-launch" in machine.inside("cat", f"{folder}/groups").stdout.split()
    sessions = "loginctl show-user ben --property=Sessions --value"
    until(lambda: not machine.inside("sh", "-c", sessions).stdout.strip(), PATIENCE, "ben has logged out")
    assert machine.inside("pgrep", "-fx", "sleep 4711").stdout
    ben.ssh(machine, f"{RUNTIME}; systemctl --user stop mine")


def test_missing_accounts_are_reported_and_nothing_changes(
    machine: Machine, play: Play, anna_and_ben: tuple[Person, Person]
) -> None:
    bare = state(machine)
    refused = given(play, "anna", "nobody-here", "neither-here")
    assert refused.rc != 0
    message = refused.results("Configure user launches")["node1"]["msg"]
    assert "account nobody-here does not exist: create it with your site's tools" in message
    assert "account neither-here does not exist" in message
    assert state(machine) == bare
    verified = given(play, "anna", launch_users_mode="verify")
    assert verified.rc != 0
    assert "anna is not in the group muster-launch" in verified.stdout
    assert state(machine) == bare


def test_running_launch_keeps_permissions_and_busy_manager_is_not_restarted(
    machine: Machine, play: Play, anna_and_ben: tuple[Person, Person]
) -> None:
    anna, _ = anna_and_ben
    # Her user manager is older than the role's run and busy: it has neither the group nor the limits.
    machine.inside("loginctl", "enable-linger", "anna")
    until(
        lambda: machine.inside("test", "-e", "/run/user/2001/systemd/private", check=False).returncode == 0,
        PATIENCE,
        "the user manager runs",
    )
    begin = f"{RUNTIME}; systemd-run --user --quiet --unit={UNIT} sleep 4711"
    anna.ssh(machine, begin)
    main = machine.inside("systemctl", "show", "--property=MainPID", "user@2001.service").stdout
    busy = given(play, "anna")
    assert busy.rc == 0, busy.stdout
    said = " ".join(busy.stdout.split())
    assert "the user manager of anna is not in the group muster-launch and " in said
    assert ', but is not restarted because "sleep" (' in said
    assert machine.inside("systemctl", "show", "--property=MainPID", "user@2001.service").stdout == main

    left = given(play)
    assert left.rc == 0, left.stdout
    assert "its launch 20261123-101500-ab12 is running: the setup of the account is" in " ".join(left.stdout.split())
    assert left.changed == []
    assert anna.ssh(machine, TAKE_A_SLOT).returncode == 0

    anna.ssh(machine, f"{RUNTIME}; systemctl --user stop {UNIT}")
    idle = given(play, "anna")
    assert idle.rc == 0, idle.stdout
    assert machine.inside("systemctl", "show", "--property=MainPID", "user@2001.service").stdout != main
    left = given(play)
    assert left.rc == 0, left.stdout
    # She had linger before.
    assert machine.inside("ls", "/var/lib/systemd/linger").stdout.split() == ["anna"]


def test_shared_inventory_works_for_another_user_and_checkout(
    machine: Machine, play: Play, anna_and_ben: tuple[Person, Person]
) -> None:
    anna, _ = anna_and_ben
    folder = anna.folder / "lab"
    shown = play("playbooks/share.yml", extravars={"share_to": str(folder)}, check=True)
    assert shown.rc == 0, shown.stdout
    assert not folder.exists()
    assert "ansible_host: " + machine.address in shown.stdout
    shared = play("playbooks/share.yml", extravars={"share_to": str(folder)})
    assert shared.rc == 0, shared.stdout
    assert sorted(path.name for path in folder.iterdir()) == ["README.md", "hosts.yml", "known_hosts"]
    text = "".join(path.read_text() for path in folder.iterdir())
    assert not [
        word for word in ("id_ed25519", "ansible_user", "become", str(machine.folder), "admin:") if word in text
    ]
    assert play("playbooks/share.yml", extravars={"share_to": str(folder)}).changed == []

    check_out(anna)
    pinged = anna.run("ansible", "node1", "-i", "../lab", "-m", "ansible.builtin.ping")
    assert pinged.returncode == 0, pinged.stdout + pinged.stderr
    planned = anna.run("ansible-playbook", "playbooks/plan.yml", "-i", "../lab", "-e", "launch_script=/srv/train.py")
    assert planned.returncode == 0, planned.stdout + planned.stderr
    # No connection to another machine at node1's address.
    known = folder / "known_hosts"
    lines = known.read_text().splitlines()
    swapped = next(line for line in lines if machine.address in line).split()[:1]
    other = next(line for line in lines if line.endswith("muster:node2")).split()[1:3]
    known.write_text(" ".join([*swapped, *other]) + "\n")
    anew = "--ssh-common-args=-o ControlPath=none"
    refused = anna.run("ansible", "node1", "-i", "../lab", "-m", "ansible.builtin.ping", anew)
    assert refused.returncode != 0
    assert "Host key verification failed" in refused.stdout + refused.stderr

    mine = folder / "hosts.yml"
    mine.write_text("# mine\n")
    kept = play("playbooks/share.yml", extravars={"share_to": str(folder)})
    assert kept.rc != 0
    assert mine.read_text() == "# mine\n"
