"""A bare machine becomes a member during a launch on other members, and seven unsuitable machines do not."""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
import yaml

import net_faults
from drill import Drill, processes
from killable import Run, moments
from lab import SANDBOX_KNOWS, at, make_lab
from machines import find_machine, make_bare
from paths import NAME, SANDBOX
from snapshot import differences, take
from waiting import PATIENCE, until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

    from machines import Machine, Play, Result

NEW, MEMBERS = "node3", ("node1", "node2")
ONBOARD = "playbooks/onboard.yml"
READY = "baseline,network,pytorch"
TRUSTED = {"trust_confirmed": True}
# Names, keys and the firewall. Nothing else of an existing node may change.
MAY_CHANGE = (
    *("/etc/hosts", "/etc/ufw/", "/home/muster/.ssh/", "/var/lib/muster/ssh/muster/proved.json", "firewall"),
    "/var/lib/muster/launches/",
)
MOMENTS = (
    *("Pin the host keys", "Add the new nodes to this run", "Authorize logins between", "Apply the firewall rules"),
    "Train on each node alone",
)
PYTHON = "/usr/bin/python3"
BESIDE = "  # by the window"


class Lab:
    """A hand-written inventory with two members, and a machine that is not listed."""

    def __init__(self, folder: Path, play: Play) -> None:
        self.play = play
        self.machines = {name: find_machine(name) for name in (*MEMBERS, NEW)}
        lab = {"cluster_name": "sandbox" if NAME == "muster" else NAME, "pytorch_lock": f"{SANDBOX}/pytorch.lock.txt"}
        self.folder = make_lab(folder / "lab", at(*(self.machines[name] for name in MEMBERS)), **lab)
        self.hosts = self.folder / "hosts.yml"
        second = self.address("node2")
        self.hosts.write_text(self.hosts.read_text().replace(f" {second}\n", f" {second}{BESIDE}\n"))
        self.written = self.hosts.read_text()
        lines = SANDBOX_KNOWS.read_text().splitlines(keepends=True)
        known = [line for line in lines if line.startswith(tuple(f"{self.address(name)} " for name in MEMBERS))]
        (self.folder / "known_hosts").write_text("".join(known))
        self.pinned = (self.folder / "known_hosts").read_text()

    def address(self, name: str) -> str:
        return self.machines[name].address

    def onboard(self, **more: Any) -> Result:
        variables = {"node": NEW, "address": self.address(NEW), **TRUSTED, **more.pop("extravars", {})}
        return self.play(ONBOARD, inventory=self.folder, extravars=variables, **more)

    def run_as_user(self, tmp_path: Path, *more: str) -> Run:
        """Run the playbook as a user does."""
        words = [ONBOARD, "-e", f"node={NEW}", "-e", f"address={self.address(NEW)}", "-e", "trust_confirmed=true"]
        return Run(tmp_path, *words, *more, inventory=self.folder).end()

    def of(self, name: str) -> dict[str, Any]:
        """Return the inventory variables of a node."""
        found: dict[str, Any] = yaml.safe_load(self.hosts.read_text())["gpu_nodes"]["hosts"].get(name, {})
        return found

    def reason(self) -> str:
        return str(self.of(NEW)["cluster_quarantined"]["reason"])

    def write_interrupted_entry(self, variables: dict[str, str]) -> None:
        """Write the inventory entry that a killed run leaves behind."""
        listed = yaml.safe_load(self.written)
        own = {"ansible_host": self.address(NEW), "cluster_quarantined": {"reason": "being onboarded"}, **variables}
        listed["gpu_nodes"]["hosts"][NEW] = own
        self.hosts.write_text(yaml.safe_dump(listed))

    def restore(self) -> None:
        self.hosts.write_text(self.written)
        (self.folder / "known_hosts").write_text(self.pinned)


def last_line(shown: str) -> str:
    return shown.rstrip().splitlines()[-1]


def verdict(result: Result) -> str:
    """Return the final message of a run through ansible-runner, whose callback does not print the message."""
    return str(result.results("Fail if a node was not accepted")["localhost"]["msg"])


def log_in(machine: Machine, name: str) -> str:
    command = f"ssh -oBatchMode=yes -oConnectTimeout=5 {name} hostname"
    return machine.inside("runuser", "-l", "muster", "-c", command, check=False).stdout.strip()


@pytest.fixture(scope="module")
def lab(play: Play, with_pytorch: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Yield an inventory of two ready nodes that have no record of the third machine, which is bare."""
    folder = tmp_path_factory.mktemp("onboard")
    make_bare(folder, NEW)
    here = Lab(folder, play)
    forgotten = play("playbooks/network.yml", inventory=here.folder)
    assert forgotten.rc == 0, forgotten.stdout
    yield here
    result = play("site.yml", tags=READY)
    assert result.rc == 0, result.stdout


# ---------------------------------------------------------------- refused before anything is written


@contextmanager
def no_sudo(machine: Machine) -> Iterator[None]:
    machine.inside("chmod", "0", "/usr/bin/sudo")
    machine.inside("mv", "/usr/bin/sudo", "/usr/bin/sudo.kept")
    try:
        yield
    finally:
        machine.inside("mv", "/usr/bin/sudo.kept", "/usr/bin/sudo")
        machine.inside("chmod", "4755", "/usr/bin/sudo")


@contextmanager
def sudo_with_password(machine: Machine) -> Iterator[None]:
    rules = "/etc/sudoers.d/zz-muster-test"
    machine.inside("sh", "-c", f"echo 'admin ALL=(ALL) PASSWD: ALL' >{rules}")
    try:
        yield
    finally:
        machine.inside("rm", rules)


@contextmanager
def older_python(machine: Machine) -> Iterator[None]:
    """Replace Python with a stub that only prints an old version."""
    machine.inside("mv", PYTHON, f"{PYTHON}.kept")
    machine.inside("sh", "-c", f"printf '#!/bin/sh\\necho 3.8\\n' >{PYTHON} && chmod 755 {PYTHON}")
    try:
        yield
    finally:
        machine.inside("mv", f"{PYTHON}.kept", PYTHON)


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        (no_sudo, "sudo is missing; Muster requires sudo, also for logins as root."),
        (sudo_with_password, "The password of admin is required for sudo. Add --ask-become-pass"),
        (older_python, "/usr/bin/python3 is Python 3.8; Muster requires 3.10 or newer."),
    ],
)
def test_unsuitable_machine_is_not_added_to_the_inventory(
    lab: Lab, tmp_path: Path, fault: Callable[[Machine], AbstractContextManager[None]], why: str
) -> None:
    with fault(lab.machines[NEW]):
        refused = lab.run_as_user(tmp_path)
    assert refused.rc != 0
    assert last_line(refused.shown).startswith(f"NOT ONBOARDED: {NEW} is not a member: {why}"), refused.shown
    assert lab.hosts.read_text() == lab.written
    lab.restore()


def test_changed_host_key_is_refused(lab: Lab, tmp_path: Path) -> None:
    other = lab.pinned.split()[1:3]
    (lab.folder / "known_hosts").write_text(f"{lab.pinned}{lab.address(NEW)} {' '.join(other)}\n")
    refused = lab.run_as_user(tmp_path)
    assert refused.rc != 0
    line = last_line(refused.shown)
    said = f"NOT ONBOARDED: {NEW} is not a member: host key rejected (CHANGED): the known key is SHA256:"
    assert line.startswith(said), line
    assert f"-e node={NEW} -e address={lab.address(NEW)} -e host_key=SHA256:" in line
    assert lab.hosts.read_text() == lab.written
    lab.restore()


def test_all_problems_are_reported_at_once(lab: Lab) -> None:
    nodes = {"node1": "10.1.2.3", "b c": lab.address("node2"), "node8": "10.0.0.300"}
    refused = lab.play(ONBOARD, inventory=lab.folder, extravars={"nodes": nodes})
    assert refused.rc != 0
    for sentence in (
        "- node1 is in the inventory with the address ",
        "- nodes, b c: 'b c' is not a valid host name.",
        "- node8: 10.0.0.300 is not a valid IP address.",
    ):
        assert sentence in refused.stdout
    assert "; no node was contacted." in refused.stdout


# ---------------------------------------------------------------- onboarding during a launch


class Story:
    """The runs, and the state of the members before and after."""

    def __init__(self, lab: Lab, drill: Drill) -> None:
        self.checked = lab.onboard(check=True)
        self.untouched = lab.hosts.read_text(), (lab.folder / "known_hosts").read_text()
        self.drill = drill.begin().in_step(2)
        self.before = {name: take(lab.machines[name]) for name in MEMBERS}
        self.at_work = processes(drill.launch_id).keys()
        self.step = self.steps()
        self.onboarded = lab.onboard()
        self.after = {name: take(lab.machines[name]) for name in MEMBERS}
        self.still_at_work = processes(drill.launch_id).keys()
        self.later_step = self.steps()

    def steps(self) -> int:
        """Return the number of steps of the slowest rank."""
        return min(log.read_text().count("\n") for log in self.drill.run.glob("logs/*/rank*.stdout.log"))


@pytest.fixture(scope="module")
def story(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    drill = Drill(tmp_path_factory.mktemp("launch"), {"cluster_nproc_per_node": 1})
    head = lab.machines[MEMBERS[0]]
    try:
        yield Story(lab, drill)
    finally:
        drill.open_gate(head)
        until(lambda: not drill.is_running(), PATIENCE, "the launch ends")
        head.inside("rm", drill.gate)


@pytest.mark.slow
@pytest.mark.moment
def test_check_mode_changes_nothing(lab: Lab, story: Story) -> None:
    assert story.checked.rc == 0, story.checked.stdout
    assert story.untouched == (lab.written, lab.pinned)
    assert f"+    {NEW}:" in story.checked.stdout or f"+      {NEW}:" in story.checked.stdout
    assert verdict(story.checked) == f"CHECKED: nothing was changed; run without --check to onboard {NEW}"


@pytest.mark.slow
@pytest.mark.moment
def test_machine_becomes_a_member(lab: Lab, story: Story) -> None:
    assert story.onboarded.rc == 0, story.onboarded.stdout
    assert verdict(story.onboarded) == f"ONBOARDED: {NEW} is a member (node rank 2) now"
    assert lab.of(NEW) == {"ansible_host": lab.address(NEW)}
    assert BESIDE in lab.hosts.read_text()
    new = lab.machines[NEW]
    for name in MEMBERS:
        assert log_in(new, name) == name
        assert log_in(lab.machines[name], NEW) == NEW


@pytest.mark.slow
@pytest.mark.moment
def test_only_names_keys_and_firewall_change_on_members(story: Story) -> None:
    for name in MEMBERS:
        assert story.onboarded.changing_roles(name) <= {"cluster_hosts", "ssh_mesh", "firewall"}
        before, after = story.before[name], story.after[name]
        same = {subject for subject in {*before, *after} if not subject.startswith(MAY_CHANGE)}
        assert differences(*({subject: state.get(subject, "") for subject in same} for state in (before, after))) == []


@pytest.mark.slow
@pytest.mark.moment
def test_launch_continues_and_acceptance_with_a_member_is_skipped(story: Story) -> None:
    assert story.still_at_work == story.at_work
    assert story.later_step > story.step
    why = f"because none is idle (node1: launch {story.drill.launch_id}"
    assert f"{NEW}: it was not tested with a member, {why}" in story.onboarded.stdout


@pytest.mark.slow
@pytest.mark.moment
def test_second_run_changes_nothing(lab: Lab, story: Story) -> None:
    again = lab.onboard()
    assert again.rc == 0, again.stdout
    assert again.changed == []
    assert set(again.stats["ok"]) == {"localhost"}
    assert verdict(again) == f"DONE: {NEW} is a member already"


# ---------------------------------------------------------------- listed machines that stay quarantined


@contextmanager
def no_space(machine: Machine) -> Iterator[dict[str, str]]:
    machine.inside("sh", "-c", "mkdir -p /opt/muster && mount -t tmpfs -o size=64k tmpfs /opt/muster")
    try:
        yield {}
    finally:
        machine.inside("umount", "/opt/muster")


@contextmanager
def another_clock(machine: Machine) -> Iterator[dict[str, str]]:
    with net_faults.wrong_clock(machine, 90) as python:
        yield {"ansible_python_interpreter": python}


@contextmanager
def filtered_port(machine: Machine) -> Iterator[dict[str, str]]:
    """Block the port for one member, verified by a scan. The step network finds the rule without a connection."""
    port = net_faults.PORT
    with net_faults.shut(machine, find_machine(MEMBERS[0]), port, str(port), "drop", refused=False):
        yield {}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "why"),
    [(no_space, "/opt/muster"), (another_clock, "clock"), (filtered_port, f"port {net_faults.PORT}")],
)
def test_faulty_machine_stays_quarantined_with_the_reason(
    lab: Lab, tmp_path: Path, fault: Callable[[Machine], AbstractContextManager[dict[str, str]]], why: str
) -> None:
    lab.restore()
    with fault(lab.machines[NEW]) as variables:
        lab.write_interrupted_entry(variables)
        red = lab.run_as_user(tmp_path)
    assert red.rc != 0, red.shown
    assert lab.reason().startswith("not accepted: ")
    assert why in lab.reason()
    assert last_line(red.shown).startswith(f"NOT ONBOARDED: {NEW} is not a member and stays quarantined: ")
    planned = lab.play("playbooks/plan.yml", inventory=lab.folder).results("Launch the acceptance test")["node1"][
        "plan"
    ]
    assert [entry["node"] for entry in planned["nodes"]] == list(MEMBERS)


def has_come_to(run: Run, task: str) -> bool:
    return task in run.shown or run.process.poll() is not None


@pytest.mark.slow
def test_run_killed_at_each_step_converges_when_repeated(lab: Lab, tmp_path: Path) -> None:
    lab.restore()
    request = [ONBOARD, "-e", f"node={NEW}", "-e", f"address={lab.address(NEW)}"]
    for task in MOMENTS:
        # Forces every role to run, also on a machine that an earlier test has nearly finished.
        run = Run(tmp_path, *request, "-e", "trust_confirmed=true", "-e", "full=true", inventory=lab.folder)
        until(partial(has_come_to, run, task), PATIENCE, task)
        run.kill()
        assert task in run.shown, run.shown
        assert all(machine.ssh_answers() for machine in lab.machines.values())
        assert lab.of(NEW).get("cluster_quarantined", {"reason": "being onboarded"})["reason"] == "being onboarded"
    whole = lab.onboard()
    assert whole.rc == 0, whole.stdout
    assert verdict(whole) == f"ONBOARDED: {NEW} is a member (node rank 2) now"
    assert lab.of(NEW) == {"ansible_host": lab.address(NEW)}


def launches(machine: Machine) -> str:
    return machine.inside("systemctl", "list-units", "--plain", "--no-legend", "muster-launch-*").stdout


@pytest.mark.slow
def test_repeated_run_waits_for_the_acceptance_launch_of_a_killed_run(lab: Lab, tmp_path: Path) -> None:
    """A launch that has just started is not ended before its first minute is over."""
    lab.restore()
    words = [ONBOARD, "-e", f"node={NEW}", "-e", f"address={lab.address(NEW)}", "-e", "trust_confirmed=true"]
    run = Run(tmp_path, *words, inventory=lab.folder)
    until(lambda: bool(launches(lab.machines[NEW])) or run.over_within(0), PATIENCE, "the acceptance launch runs")
    run.kill()
    assert launches(lab.machines[NEW]), run.shown
    again = lab.run_as_user(tmp_path)
    assert again.rc == 0, again.shown
    assert last_line(again.shown).startswith(f"ONBOARDED: {NEW} is a member (node rank 2) now")
    once_more = lab.play("site.yml", tags=READY, inventory=lab.folder, extravars={"full": True})
    assert (once_more.rc, once_more.changed) == (0, []), once_more.stdout


@pytest.mark.slow
def test_runs_killed_at_ten_moments_lock_nobody_out_and_converge(lab: Lab, tmp_path: Path) -> None:
    """Two runs start with a bare machine. Every other run starts with the state that the previous run left."""
    request = [ONBOARD, "-e", f"node={NEW}", "-e", f"address={lab.address(NEW)}", "-e", "trust_confirmed=true"]
    lab.restore()
    whole = Run(tmp_path, *request, "-e", "full=true", inventory=lab.folder).end()
    assert whole.rc == 0, whole.shown
    for number, moment in enumerate(moments(10, whole.seconds)):
        lab.restore()
        if number % 5 == 0:
            (folder := tmp_path / f"bare{number}").mkdir()
            make_bare(folder, NEW)
        run = Run(tmp_path, *request, "-e", "full=true", inventory=lab.folder)
        run.over_within(moment)
        run.kill()
        assert all(machine.ssh_answers() for machine in lab.machines.values()), run.task
        # The node is listed as quarantined until it is a member.
        assert lab.of(NEW).get("cluster_quarantined", {"reason": "being onboarded"})["reason"] == "being onboarded"
    again = lab.run_as_user(tmp_path)
    assert again.rc == 0, again.shown
    # The last run may have been killed after the acceptance.
    ended = (f"ONBOARDED: {NEW} is a member (node rank 2) now", f"DONE: {NEW} is a member already")
    assert last_line(again.shown).startswith(ended)
    assert lab.of(NEW) == {"ansible_host": lab.address(NEW)}
    once_more = lab.play("site.yml", tags=READY, inventory=lab.folder, extravars={"full": True})
    assert (once_more.rc, once_more.changed) == (0, []), once_more.stdout
