"""Real Slurm on three nodes: installed by one run, exported jobs, drains by the nodes' own checks, and removal.

In the sandbox, Slurm cannot use cgroups, so processes are tracked without them and devices are not confined.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from conftest import UP_TO_NETWORK
from machines import find_machine
from paths import BIN, ENVIRONMENT, INVENTORY, ROOT, SANDBOX
from waiting import PATIENCE, until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from machines import Machine, Play

WITHOUT_CGROUPS = {"ProctrackType": "proctrack/linuxproc", "TaskPlugin": "task/none", "HealthCheckInterval": 0}
ON = {"slurm_mode": "manage", "watch_mode": "manage", "slurm_config": WITHOUT_CGROUPS}
OFF = {**ON, "slurm_mode": "absent", "watch_mode": "absent"}
PORTS = ("6817", "6818")
SCRIPT = "/srv/slurm_ranks.py"
FOLDER = "/home/muster/slurm"
LAUNCHES = "/var/lib/muster/launches"
OF_THE_SITE = "/etc/slurm/gres.conf"
HOOK = "/usr/local/sbin/muster-slurm-"
KEY = "/etc/munge/munge.key"
LISTED, PINNED = INVENTORY / "hosts_more.yml", SANDBOX / "known_hosts"


def slurm(play: Play, variables: dict[str, Any], *, check: bool = False) -> Any:
    for book in ("playbooks/watch.yml", "playbooks/slurm.yml"):
        result = play(book, extravars=variables, check=check)
        assert result.rc == 0, result.stdout
    return result


@pytest.fixture(scope="module")
def nodes(three_nodes: dict[str, Machine], play: Play) -> Iterator[dict[str, Machine]]:
    before = {name: listening(machine) for name, machine in three_nodes.items()}
    slurm(play, ON)
    for machine in three_nodes.values():
        machine.podman_copy(ROOT / "tests/integration/payloads/slurm_ranks.py", SCRIPT)
        machine.inside("install", "-d", "-o", "muster", FOLDER)
    yield three_nodes
    three_nodes["node2"].inside("sh", "-c", f"echo '# of the site' > {OF_THE_SITE}")
    slurm(play, OFF)
    assert three_nodes["node2"].inside("cat", OF_THE_SITE).stdout == "# of the site\n"
    three_nodes["node2"].inside("rm", OF_THE_SITE)
    for name, machine in three_nodes.items():
        machine.inside("rm", "-r", SCRIPT, FOLDER)
        assert listening(machine) == before[name]
        assert machine.inside("pgrep", "-x", "slurmd|slurmctld|munged", check=False).stdout == ""
        assert machine.inside("ls", "/etc/slurm/slurm.conf", "/etc/munge/munge.key", check=False).stdout == ""
    assert not slurm(play, OFF).changed


def listening(machine: Machine) -> set[str]:
    return {line.split()[3] for line in machine.inside("ss", "-Hltn").stdout.splitlines()}


@pytest.fixture
def export(tmp_path: Path) -> Callable[..., Path]:
    """Export a launch as a user does, and return the batch script."""

    def run(**variables: Any) -> Path:
        file = tmp_path / "job.sbatch"
        given = {"launch_script": SCRIPT, "launch_chdir": FOLDER, "launch_export_file": str(file), **variables}
        argv = [str(BIN / "ansible-playbook"), "playbooks/export.yml", "-i", str(INVENTORY), "-e", json.dumps(given)]
        done = subprocess.run(argv, cwd=ROOT, env=ENVIRONMENT, check=False, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout
        return file

    return run


def submit(machine: Machine, file: Path, *options: str) -> str:
    """Submit a batch script as the training user; return the job's id."""
    machine.podman_copy(file, f"{FOLDER}/job.sbatch")
    machine.inside("chown", "muster", f"{FOLDER}/job.sbatch")
    sbatch = ("sbatch", "--parsable", f"--chdir={FOLDER}", *options, f"{FOLDER}/job.sbatch")
    return machine.inside("runuser", "-u", "muster", "--", *sbatch).stdout.strip()


def field(machine: Machine, kind: str, name: str, what: str) -> str:
    text = machine.inside("scontrol", "-o", "show", kind, name).stdout
    found = re.search(rf"\b{what}=(.*?)(?= \w+=|$)", text)
    return found[1] if found else ""


def ended(machine: Machine, job: str) -> str:
    """Wait for the end of a job, and return its state."""
    running = ("PENDING", "CONFIGURING", "RUNNING", "COMPLETING")
    return str(until(lambda: (state := field(machine, "job", job, "JobState")) not in running and state, PATIENCE))


def output(machine: Machine, job: str) -> str:
    return machine.inside("sh", "-c", f"cat {FOLDER}/*-{job}.out", check=False).stdout


def state_of(machine: Machine, node: str) -> str:
    return field(machine, "node", node, "State")


def is_idle(machine: Machine, node: str) -> bool:
    return state_of(machine, node) == "IDLE"


def is_free(machine: Machine) -> bool:
    """Return whether no rank is left on the machine."""
    return machine.inside("pgrep", "-f", SCRIPT, check=False).stdout == ""


def test_second_run_changes_nothing_and_all_nodes_are_idle(nodes: dict[str, Machine], play: Play) -> None:
    assert not slurm(play, ON).changed
    assert not slurm(play, ON, check=True).changed
    for name in nodes:
        until(partial(is_idle, nodes["node1"], name), PATIENCE, f"{name} is idle")


def test_exported_job_has_every_rank_at_its_place(nodes: dict[str, Machine], export: Callable[..., Path]) -> None:
    head = nodes["node1"]
    job = submit(head, export(cluster_nproc_per_node=2))
    assert ended(head, job) == "COMPLETED"
    # The job's own proof decides: Slurm also calls a job complete whose task could not be executed.
    (line,) = [line for line in output(head, job).splitlines() if "PROOF" in line]
    proof = json.loads(line.partition("PROOF ")[2])
    assert proof["ok"]
    assert [one["host"] for one in proof["ranks"]] == [name for name in sorted(nodes) for _ in range(2)]


@pytest.mark.parametrize(
    ("mode", "options", "state", "said"),
    [
        ("kill", (), "FAILED", "SIGKILL"),
        # Without the signal before the limit, which ends torchrun.
        ("sleep", ("--time=2", "--signal=CONT@10"), "TIMEOUT", "DUE TO TIME LIMIT"),
        ("cancel", (), "CANCELLED", "CANCELLED"),
    ],
)
def test_end_of_a_job_is_diagnosed_from_its_output(
    nodes: dict[str, Machine],
    export: Callable[..., Path],
    tmp_path: Path,
    mode: str,
    options: tuple[str, ...],
    state: str,
    said: str,
) -> None:
    head = nodes["node1"]
    job = submit(head, export(launch_args=[mode]), *options)
    if mode == "cancel":
        until(lambda: "PROOF" in output(head, job), PATIENCE, "all ranks are at work")
        head.inside("scancel", job)
    assert ended(head, job) == state
    log = tmp_path / "logs" / "job.out"
    log.parent.mkdir()
    log.write_text(output(head, job))
    assert said in log.read_text()
    why = subprocess.run([str(BIN / "muster"), "why", str(log.parent)], capture_output=True, text=True, check=False)
    causes = {"kill": "killed", "sleep": "time limit", "cancel": "a user stopped the launcher"}
    assert causes[mode] in why.stdout.lower(), why.stdout
    for machine in nodes.values():
        until(partial(is_free, machine), PATIENCE, f"no rank is left on {machine.name}")


def test_direct_launch_on_nodes_of_a_job_needs_its_allocation(nodes: dict[str, Machine], tmp_path: Path) -> None:
    """The check launch.slurm rejects the launch and names the job."""
    head = nodes["node1"]
    (tmp_path / "hold.sh").write_text("#!/bin/sh\nsleep 600\n")
    job = submit(head, tmp_path / "hold.sh", "--nodes=3", "--job-name=hold")
    until(lambda: field(head, "job", job, "JobState") == "RUNNING", PATIENCE, "the job runs")
    given = json.dumps({"launch_command": ["true"], "cluster_gpus": 0})
    argv = [str(BIN / "ansible-playbook"), "playbooks/launch.yml", "-i", str(INVENTORY), "-e", given]
    environment = {**os.environ, **ENVIRONMENT}
    launch = partial(subprocess.run, argv, cwd=ROOT, check=False, capture_output=True, text=True)
    try:
        refused = launch(env=environment)
        assert refused.returncode != 0
        assert f"Slurm runs job {job} of muster on this node" in refused.stdout
        inside = launch(env={**environment, "SLURM_JOB_ID": job})
        assert "Slurm runs job" not in inside.stdout
        assert inside.returncode == 0, inside.stdout
    finally:
        head.inside("scancel", job)
    assert ended(head, job) == "CANCELLED"


def test_node_fault_drains_and_a_fresh_pass_resumes(nodes: dict[str, Machine]) -> None:
    """The disk for launch logs is read-only on node2, then on node3 as well."""
    head, second, third = (nodes[name] for name in ("node1", "node2", "node3"))
    broken = f"mkdir -p {LAUNCHES}; mount -t tmpfs -o ro,size=1m tmpfs {LAUNCHES}"
    second.inside("sh", "-ec", broken)
    try:
        second.inside(f"{HOOK}health")
        assert "DRAIN" in state_of(head, "node2")
        assert field(head, "node", "node2", "Reason").startswith("muster: node: ")
        assert second.inside(f"{HOOK}prolog", check=False).returncode == 1, "no job may start here"
        third.inside("sh", "-ec", broken)
        try:
            said = third.inside(f"{HOOK}health").stdout
            assert "the drain of node2 must be confirmed first" in said
            assert "DRAIN" not in state_of(head, "node3")
            assert third.inside(f"{HOOK}prolog", check=False).returncode == 0
        finally:
            third.inside("umount", LAUNCHES)
    finally:
        second.inside("umount", LAUNCHES)
    second.inside(f"{HOOK}health")
    assert "DRAIN" not in state_of(head, "node2")


def test_drain_by_an_administrator_stays(nodes: dict[str, Machine]) -> None:
    head = nodes["node1"]
    head.inside("scontrol", "update", "NodeName=node3", "State=DRAIN", "Reason=new memory")
    nodes["node3"].inside(f"{HOOK}health")
    assert "DRAIN" in state_of(head, "node3")
    head.inside("scontrol", "update", "NodeName=node3", "State=RESUME")


def test_quarantine_is_a_drain(nodes: dict[str, Machine]) -> None:
    head, third = nodes["node1"], nodes["node3"]
    third.inside("sh", "-c", """echo '{"reason": "fan"}' > /var/lib/muster/quarantine.json""")
    try:
        third.inside(f"{HOOK}health")
        assert field(head, "node", "node3", "Reason").startswith("muster: quarantine: fan")
    finally:
        third.inside("rm", "/var/lib/muster/quarantine.json")
    third.inside(f"{HOOK}health")
    assert "DRAIN" not in state_of(head, "node3")


def test_ports_are_open_to_the_nodes_only(nodes: dict[str, Machine]) -> None:
    outsider = find_machine("outsider")
    connect = "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), 3)"
    for port in PORTS:
        argv = ["python3", "-c", connect, nodes["node1"].address, port]
        assert nodes["node2"].inside(*argv, check=False).returncode == 0
        assert outsider.inside(*argv, check=False).returncode


def test_slurm_of_the_site_is_not_changed(nodes: dict[str, Machine], play: Play) -> None:
    """node3 has a configuration that Muster did not write."""
    third = nodes["node3"]
    third.inside("sh", "-c", "echo ClusterName=site > /etc/slurm/slurm.conf")
    try:
        result = play("playbooks/slurm.yml", extravars={**ON, "slurm_config": {**WITHOUT_CGROUPS, "KillWait": 33}})
        assert result.rc != 0
        assert "node3: /etc/slurm/slurm.conf: Muster did not write or start this Slurm" in result.stdout
        assert third.inside("cat", "/etc/slurm/slurm.conf").stdout == "ClusterName=site\n"
    finally:
        third.inside("rm", "/etc/slurm/slurm.conf")
    slurm(play, ON)


def test_restart_of_the_controller_keeps_a_running_job(
    nodes: dict[str, Machine], export: Callable[..., Path], play: Play
) -> None:
    """A changed configuration restarts slurmctld and slurmd on all nodes."""
    head = nodes["node1"]
    job = submit(head, export(launch_args=["sleep"]))
    until(lambda: "PROOF" in output(head, job), PATIENCE, "all ranks are at work")
    changed = {**ON, "slurm_config": {**WITHOUT_CGROUPS, "KillWait": 31}}
    assert slurm(play, changed).changed
    assert "31 sec" in head.inside("scontrol", "show", "config").stdout
    assert field(head, "job", job, "JobState") == "RUNNING"
    head.inside("scancel", job)
    assert ended(head, job) == "CANCELLED"
    slurm(play, ON)


def hold(head: Machine, folder: Path, *options: str) -> str:
    """Start a job that waits, and return its id."""
    (folder / "hold.sh").write_text("#!/bin/sh\nsleep 600\n")
    job = submit(head, folder / "hold.sh", "--job-name=hold", *options)
    until(lambda: field(head, "job", job, "JobState") == "RUNNING", PATIENCE, "the job runs")
    return job


def test_removal_is_refused_while_a_job_runs(nodes: dict[str, Machine], play: Play, tmp_path: Path) -> None:
    head = nodes["node1"]
    job = hold(head, tmp_path, "--nodelist=node2")
    try:
        refused = play("playbooks/slurm.yml", extravars=OFF)
        assert refused.rc != 0
        assert f"scancel {job}" in refused.stdout
        retired = play("playbooks/retire.yml", extravars={"node": "node2", "trust_known_hosts": str(PINNED)})
        assert retired.rc != 0
        assert "node2: Slurm has jobs on this node or in its queue, which would be lost" in retired.stdout
        assert field(head, "job", job, "JobState") == "RUNNING"
        assert nodes["node3"].inside("systemctl", "is-active", "slurmd").stdout == "active\n"
    finally:
        head.inside("scancel", job)
    assert ended(head, job) == "CANCELLED"


def test_retired_node_has_no_valid_key_and_jobs_of_the_others_continue(
    nodes: dict[str, Machine], play: Play, tmp_path: Path
) -> None:
    """The inventory does not contain the options of Slurm, so the node's own files decide."""
    head, second, third = (nodes[name] for name in ("node1", "node2", "node3"))
    forged = third.inside("munge", "-n").stdout
    assert "Success" in head.inside("sh", "-c", f"printf %s '{forged.strip()}' | unmunge").stdout
    listed, pinned = LISTED.read_text(), PINNED.read_text()
    job = hold(head, tmp_path, "--nodes=2", "--nodelist=node1,node2")
    # The job runs before its prolog has ended and its processes start.
    find = partial(head.inside, "pgrep", "-x", "slurmstepd", check=False)
    steps = until(lambda: find().stdout, PATIENCE, "the job has processes")
    try:
        retire = {"node": "node3", "trust_known_hosts": str(PINNED)}
        done = play("playbooks/retire.yml", extravars=retire)
        assert done.rc == 0, done.stdout
        keys = [machine.inside("sha256sum", KEY).stdout for machine in (head, second, third)]
        assert (keys[0] == keys[1], keys[0] == keys[2]) == (True, False)
        forged = third.inside("munge", "-n").stdout
        refused = head.inside("sh", "-c", f"printf %s '{forged.strip()}' | unmunge", check=False)
        assert refused.returncode != 0
        assert "node3" not in head.inside("cat", "/etc/slurm/slurm.conf").stdout
        # The job is known after the restart, its processes are the same, and its node still works.
        until(lambda: field(head, "job", job, "JobState") == "RUNNING", PATIENCE, "slurmctld knows the job")
        assert find().stdout == steps
        assert play("playbooks/retire.yml", extravars=retire).rc == 0
        assert head.inside("sha256sum", KEY).stdout == keys[0], "a second run makes no other key"
        head.inside("scancel", job)
        assert ended(head, job) == "CANCELLED"
        for name in ("node1", "node2"):
            until(partial(is_idle, head, name), PATIENCE, f"{name} is idle")
        after = head.inside("srun", "--nodes=2", "hostname").stdout
        assert sorted(after.split()) == ["node1", "node2"]
    finally:
        LISTED.write_text(listed)
        PINNED.write_text(pinned)
        back = play("site.yml", tags=UP_TO_NETWORK)
        assert back.rc == 0, back.stdout
        slurm(play, ON)
    until(partial(is_idle, head, "node3"), PATIENCE, "node3 is idle")


def test_node_with_the_host_name_of_another_node_is_rejected(nodes: dict[str, Machine], play: Play) -> None:
    third = nodes["node3"]
    third.inside("hostname", "node2")
    try:
        refused = play("playbooks/slurm.yml", extravars=ON)
        assert refused.rc != 0
        assert "node3: its host name node2 is also that of node2" in refused.stdout
    finally:
        third.inside("hostname", "node3")
    assert not slurm(play, ON).changed
