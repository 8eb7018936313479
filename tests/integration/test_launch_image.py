"""Launches in a container image as seen from outside: users, processes, how launches end, and refusals.

The image is a copy of a node's own system and PyTorch (images.py), because no image registry is available. The last
test uses a real registry on a node. There are no GPUs.
"""

from __future__ import annotations

import json
import shlex
import signal
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from drill import Drill, all_pids, hit, processes, read_proc, stop_family
from images import MARK, containers, give_podman, give_registry, make_archive, take_podman, take_registry
from launch_users import forget_launch_users, make_launch_user
from waiting import PATIENCE, until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from machines import Machine, Play, Result

NODES = ("node1", "node2")
SHOWN = "/srv/muster-test-image"
NUTMEG = "nutmeg-314159"
SCRIPT = f"""
import os
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
total = torch.ones(1) * dist.get_rank()
dist.all_reduce(total)
secret = os.environ["TEST_TOKEN"] == {NUTMEG!r}
mark = open({MARK!r}).read().strip()
print("rank", dist.get_rank(), "of", dist.get_world_size(), "sum", int(total), mark, flush=True)
print("uid", os.getuid(), "in", os.getcwd(), "home", os.environ["HOME"], os.environ["OF_THE_IMAGE"], secret, flush=True)
for path in ("/made", "/etc/made", "/opt/made"):
    try:
        open(path, "w")
        print("wrote", path, flush=True)
    except OSError as problem:
        print(path, problem.strerror, flush=True)
dist.destroy_process_group()
"""


@pytest.fixture(scope="module")
def nodes(with_pytorch: None, networked: list[Machine], play: Play) -> Iterator[list[Machine]]:
    """Yield two nodes with podman from the step baseline, and with a folder that launches can read."""
    machines = [machine for machine in networked if machine.name in NODES]
    extravars = {"node_baseline_podman": True}
    limit = ",".join(NODES)
    made = play("playbooks/baseline.yml", extravars=extravars, limit=limit)
    assert made.rc == 0, made.stdout
    again = play("playbooks/baseline.yml", extravars=extravars, limit=limit)
    assert (again.rc, again.changed) == (0, []), again.stdout
    for machine in machines:
        give_podman(machine)
        machine.inside("install", "-d", "-m", "0755", SHOWN)
    yield machines
    for machine in machines:
        take_podman(machine)
        machine.inside("rm", "-rf", SHOWN)


@pytest.fixture(scope="module")
def archive(nodes: list[Machine], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("image") / "image.tar"
    make_archive(nodes[0], path)
    return path


@pytest.fixture
def drill(tmp_path: Path, archive: Path, nodes: list[Machine]) -> Iterator[Drill]:
    """Yield a launch in the image whose ranks run in step until they are stopped."""
    given = {"launch_image": str(archive), "launch_image_folders": [SHOWN]}
    drill = Drill(tmp_path, given, gate=f"{SHOWN}/gate")
    yield drill
    drill.clean_up(nodes)


def launch(play: Play, folder: Path, image: str, **more: Any) -> Result:
    script = folder / "look.py"
    script.write_text(SCRIPT)
    extravars = {
        "launch_image": image,
        "launch_script_src": str(script),
        "launch_env": {"TEST_TOKEN": NUTMEG},
        "cluster_launch_nodes": list(NODES),
        "cluster_artifacts_dir": str(folder / "kept"),
        **more,
    }
    return play("playbooks/launch.yml", extravars=extravars)


def refusals(result: Result) -> set[tuple[str, str]]:
    """Return the ids and nodes of the findings of a refused launch."""
    assert result.rc != 0
    (found,) = result.results("Run torchrun on all participating nodes").values()
    return {(one["id"], one["node"]) for one in found["verdict"]["findings"] if one["status"] == "fail"}


def kept(folder: Path) -> Path:
    (found,) = folder.glob("kept/*/2*/plan.json")
    return found.parent


def check_nothing_left(drill: Drill, nodes: list[Machine]) -> None:
    drill.check_nothing_left(*nodes)
    until(lambda: not any(map(containers, nodes)), PATIENCE, "no container is left")


def test_ranks_run_in_the_image_as_the_training_user(
    play: Play, nodes: list[Machine], archive: Path, tmp_path: Path
) -> None:
    result = launch(play, tmp_path, str(archive))
    assert result.rc == 0, result.stdout
    assert "image: 1 file, " in result.stdout
    assert "image: copied from node1 to node2 in " in result.stdout
    plan = json.loads((kept(tmp_path) / "plan.json").read_text())
    ids = {machine.inside("podman", "images", "--quiet", "--no-trunc").stdout.split()[0] for machine in nodes}
    assert ids == {f"sha256:{plan['image']['id']}"}
    uid = nodes[0].inside("id", "--user", "muster").stdout.strip()
    work = f"/var/lib/muster/work/{plan['launch_id']}"
    for rank, machine in enumerate(nodes):
        log = (kept(tmp_path) / f"logs/{machine.name}/rank{rank}.stdout.log").read_text()
        assert f"rank {rank} of 2 sum 1 in the image\n" in log
        assert f"uid {uid} in {work} home {work} yes True\n" in log
        assert "wrote" not in log
        assert containers(machine) == ""
        assert machine.inside("ls", "-A", "/var/lib/muster/launches/.muster-images/objects").stdout == ""


def test_second_launch_reuses_the_image(play: Play, nodes: list[Machine], archive: Path, tmp_path: Path) -> None:
    result = launch(play, tmp_path, str(archive))
    assert result.rc == 0, result.stdout
    assert "image: " not in result.stdout
    assert ", same on all nodes" in result.stdout


@pytest.mark.moment
def test_unit_contains_all_processes_and_ctrl_c_ends_them(drill: Drill, nodes: list[Machine]) -> None:
    drill.variables.update(launch_env={"TEST_TOKEN": NUTMEG})
    process = drill.begin_in_terminal()
    drill.in_step()
    uid = nodes[0].inside("id", "--user", "muster").stdout.strip()
    found = processes(drill.launch_id)
    ranks = [pid for pid, env in found.items() if "RANK" in env]
    assert len(ranks) == 4
    # Only the unit's cgroup is checked, because units of sandbox nodes have no memory cgroup.
    main = ["systemctl", "show", drill.unit(), "--property=MainPID", "--value"]
    show = f"cat /proc/$({shlex.join(main)})/cgroup"
    groups = {machine.name: machine.inside("sh", "-c", show).stdout for machine in nodes}
    assert all(f"/{drill.unit()}\n" in text for text in groups.values())
    for pid in ranks:
        status = dict(line.split(":\t", 1) for line in read_proc(pid, "status").splitlines() if ":\t" in line)
        assert status["Uid"].split() == [uid] * 4
        assert status["NoNewPrivs"] == "1"
        assert {status[name] for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == {"0" * 16}
        node = found[pid]["MUSTER_NODE"]
        assert read_proc(pid, "cgroup") == groups[node]
    for machine in nodes:
        limit = machine.inside("systemctl", "show", drill.unit(), "--property=MemoryMax", "--value").stdout.strip()
        assert limit.isdecimal()
        assert NUTMEG not in machine.inside("sh", "-c", "cat /proc/[0-9]*/cmdline | tr '\\0' ' '").stdout
        there = [pid for pid in all_pids() if read_proc(pid, "cgroup") == groups[machine.name]]
        owners = {line.split()[1] for pid in there for line in read_proc(pid, "status").splitlines() if "Uid:" in line}
        assert owners == {"0", uid}  # podman with its monitor, and the launch
    process.send_signal(signal.SIGINT)
    assert process.wait(PATIENCE) != 0
    until(drill.has_verdict, PATIENCE, "the verdict is written")
    assert "stopped early" in drill.verdict()["summary"]
    check_nothing_left(drill, nodes)


@pytest.mark.moment
@pytest.mark.slow
def test_launch_ends_with_its_lease_after_the_controller_dies(drill: Drill, nodes: list[Machine]) -> None:
    process = drill.begin_in_terminal()
    drill.in_step()
    for pid in stop_family(process.pid):
        hit(pid, signal.SIGKILL)
    process.wait(PATIENCE)
    until(lambda: not drill.runs(), PATIENCE, "the lease has ended the launch")
    until(lambda: not any(map(containers, nodes)), PATIENCE, "no container is left")


@pytest.mark.moment
def test_killed_rank_is_reported_and_ends_the_launch(drill: Drill, nodes: list[Machine]) -> None:
    drill.begin().in_step()
    hit(drill.pid(2), signal.SIGKILL)
    verdict = drill.end()
    assert verdict["status"] == "failed"
    assert "rank 2" in verdict["summary"], verdict["summary"]
    check_nothing_left(drill, nodes)


@pytest.mark.moment
@pytest.mark.slow
def test_killed_podman_ends_the_launch(drill: Drill, nodes: list[Machine]) -> None:
    drill.begin().in_step()
    main = nodes[1].inside("systemctl", "show", drill.unit(), "--property=MainPID", "--value").stdout.strip()
    nodes[1].inside("kill", "-KILL", main)
    assert drill.end()["status"] == "failed"
    check_nothing_left(drill, nodes)


def test_detached_launch_is_followed_and_stopped(drill: Drill, nodes: list[Machine]) -> None:
    drill.variables.update(launch_detached=True, launch_time_limit=1800)
    drill.begin().wait()
    assert drill.runs()
    stop = Drill(drill.folder, {**drill.variables, "launch_stop": drill.launch_id})
    stop.begin().wait()
    check_nothing_left(drill, nodes)


def test_unusable_images_are_refused(play: Play, nodes: list[Machine], archive: Path, tmp_path: Path) -> None:
    tagged = launch(play, tmp_path, "registry.lab/team/train:2.1")
    assert "launch_image registry.lab/team/train:2.1 has no digest (NAME@sha256:...)" in tagged.stdout
    assert "podman pull registry.lab/team/train:2.1 && podman image inspect" in tagged.stdout
    assert "no node was contacted" in tagged.stdout
    theirs = f"{SHOWN}/theirs"
    nodes[1].inside("sh", "-ec", f"mkdir -p {theirs}/data; chown -R muster: {theirs}")
    nodes[0].inside("mkdir", "-p", f"{theirs}/data")
    swapped = launch(play, tmp_path, str(archive), launch_image_folders=[f"{theirs}/data"])
    assert refusals(swapped) == {("launch.image_folders", "node2")}
    assert f"{theirs}/data is not safe to mount as root" in swapped.stdout
    assert f"{theirs} belongs to muster" in swapped.stdout
    nodes[0].inside("mv", "/usr/bin/crun", "/usr/bin/crun.aside")
    try:
        without = launch(play, tmp_path, str(archive))
        assert refusals(without) == {("launch.container", "node1")}
        assert "crun is missing" in without.stdout
        assert "node_baseline_podman" in without.stdout
    finally:
        nodes[0].inside("mv", "/usr/bin/crun.aside", "/usr/bin/crun")
    for machine in nodes:
        assert containers(machine) == ""


def test_image_without_torch_is_reported(play: Play, nodes: list[Machine], tmp_path: Path) -> None:
    """podman loads an archive with a single file, but no command can run in the image."""
    make = "cd $(mktemp -d) && touch empty && tar -c empty | podman import --quiet - localhost/empty:1 && podman save"
    there = "/var/tmp/muster-test-empty.tar"
    nodes[0].inside("sh", "-ec", f"{make} --quiet --output {there} localhost/empty:1 && podman rmi localhost/empty:1")
    subprocess.run(["podman", "cp", f"{nodes[0].container}:{there}", str(tmp_path / "empty.tar")], check=True)
    nodes[0].inside("rm", "-f", there)
    result = launch(play, tmp_path, str(tmp_path / "empty.tar"))
    assert refusals(result) == {("launch.image", name) for name in NODES}
    assert "node1, node2: Python does not run in the image: " in result.stdout


@pytest.mark.slow
def test_user_launch_in_an_image_is_refused(nodes: list[Machine], archive: Path, tmp_path: Path) -> None:
    make_launch_user("ada", nodes)
    try:
        drill = Drill(tmp_path, {"launch_image": str(archive)}, user="ada")
        drill.begin()
        drill.wait()
        shown = drill.runner.stdout.read()
        assert "launch_image requires an administrator launch, but this is a user launch of ada: without root" in shown
    finally:
        for machine in nodes:
            forget_launch_users(machine)


@pytest.mark.slow
def test_nodes_pull_an_image_by_digest(play: Play, nodes: list[Machine], archive: Path, tmp_path: Path) -> None:
    name = give_registry(nodes, archive)
    try:
        result = launch(play, tmp_path, name)
        assert result.rc == 0, result.stdout
        assert f"image {name}: " in result.stdout
        (tmp_path / "again").mkdir()
        missing = launch(play, tmp_path / "again", f"{name.rpartition(':')[0]}:{'0' * 64}")
        assert refusals(missing) == {("launch.image", name) for name in NODES}
        assert "the image is missing: podman pull" in missing.stdout
    finally:
        take_registry(nodes)
