"""A data folder on three nodes without a file server: copied once, distributed, verified, repaired."""

from __future__ import annotations

import hashlib
import os
from typing import TYPE_CHECKING, Any

import pytest

from killable import Run
from net_faults import slow
from paths import INVENTORY
from waiting import PATIENCE, until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from machines import Machine, Play, Result

PLAYBOOK = "playbooks/data_copy.yml"
TASK = "Copy the folder to all nodes"
ROOT = "/srv/muster-test-data"
TARGET = f"{ROOT}/set"
SIZES = {"train/a.bin": 6_000_000, "train/b.bin": 2_000_000, "test/c.bin": 500, "labels with a space": 20, "empty": 0}
WEIGHT = sum(SIZES.values())
RATE = "12mbit"
RECEIVED, SENT = (f"/sys/class/net/eth0/statistics/{way}_bytes" for way in ("rx", "tx"))


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "set"
    for path, size in SIZES.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(os.urandom(size))
    (folder / "test/link").symlink_to("../train/a.bin")
    return folder


@pytest.fixture
def nodes(networked: list[Machine]) -> Iterator[list[Machine]]:
    """Yield nodes without the data, and stop transfers afterwards."""
    remove(networked)
    yield networked
    for machine in networked:
        assert machine.inside("ps", "-u", "nobody", "-o", "pid=", check=False).stdout == ""
    remove(networked)


def remove(machines: list[Machine]) -> None:
    for machine in machines:
        machine.inside("rm", "-rf", ROOT, "/var/lib/muster/data")


@pytest.fixture
def copy(play: Play, source: Path) -> Callable[..., Result]:
    def run(given: str = "", **requested: Any) -> Result:
        check = requested.pop("check", False)
        extravars = {"data_copy_src": given or str(source), "data_copy_dest": TARGET, **requested}
        return play(PLAYBOOK, extravars=extravars, check=check)

    return run


def digests(machine: Machine, folder: str = TARGET) -> dict[str, str]:
    message = machine.inside("find", folder, "-type", "f", "-exec", "sha256sum", "{}", "+", check=False).stdout
    lines = [line.split("  ", 1) for line in message.splitlines()]
    return {path.removeprefix(f"{folder}/"): digest for digest, path in lines}


def expected_digests(source: Path) -> dict[str, str]:
    return {path: hashlib.sha256((source / path).read_bytes()).hexdigest() for path in SIZES}


def counted(machine: Machine, what: str) -> int:
    return int(machine.inside("cat", what).stdout)


def message(result: Result) -> str:
    [[_, found]] = result.results(TASK).items()
    return str(found["msg"])


def test_data_is_sent_once_to_every_node_and_second_run_changes_nothing(
    nodes: list[Machine], copy: Callable[..., Result], source: Path
) -> None:
    checked = copy(check=True)
    assert checked.rc == 0, checked.stdout
    assert "node3: 5 files missing (empty, labels with a space, test/c.bin, " in checked.stdout
    assert all(machine.inside("test", "-e", ROOT, check=False).returncode for machine in nodes)

    before = [(counted(machine, RECEIVED), counted(machine, SENT)) for machine in nodes]
    result = copy()
    assert result.rc == 0, result.stdout
    received, given = (
        [counted(machine, what) - before[at][place] for at, machine in enumerate(nodes)]
        for place, what in enumerate((RECEIVED, SENT))
    )
    assert all(WEIGHT < count < 1.5 * WEIGHT for count in received), "each node must receive the data once"
    assert sum(count > WEIGHT for count in given) == 2, "two nodes, not the controller, must distribute the data"
    assert result.stdout.count("sent to node") == 1
    came = {name: one["came"] for name, one in result.results(TASK)["node1"]["nodes"].items()}
    assert came["node1"] == ["the controller"]
    assert all("the controller" not in came[name] for name in ("node2", "node3"))
    for machine in nodes:
        assert digests(machine) == expected_digests(source)
        assert machine.inside("readlink", f"{TARGET}/test/link").stdout.strip() == "../train/a.bin"
        shown = machine.inside("find", ROOT, "-not", "-type", "l", "-printf", "%U:%G %m\n").stdout
        assert set(shown.splitlines()) == {"0:0 755", "0:0 644"}
        machine.inside("runuser", "-u", "muster", "--", "sha256sum", f"{TARGET}/train/a.bin", f"{TARGET}/empty")
        assert ".muster-data" not in machine.inside("ls", "-A", TARGET).stdout, "temporary files of the copy are left"

    again = copy()
    assert (again.rc, again.changed) == (0, []), again.stdout
    assert "nothing was copied" in message(again)


def test_flipped_byte_is_reported_and_repaired_from_another_node(
    nodes: list[Machine], copy: Callable[..., Result], source: Path
) -> None:
    assert copy().rc == 0
    good = copy(data_copy_verify=True)
    assert good.rc == 0, good.stdout
    flip = ["python3", "-c", "import sys; f = open(sys.argv[1], 'r+b'); f.seek(4_000_000); c = f.read(1)[0]; "]
    flip[2] += "f.seek(4_000_000); f.write(bytes([c ^ 1]))"
    nodes[1].inside(*flip, f"{TARGET}/train/a.bin")
    nodes[2].inside("sh", "-c", f"echo more > {TARGET}/mine")
    wrong = copy(data_copy_verify=True)
    assert wrong.rc == 2
    assert f"node2: {TARGET}/train/a.bin was changed" in message(wrong)
    assert "node1: " not in message(wrong)
    assert f"node3: {TARGET}/mine is additional (kept)" in wrong.stdout

    result = copy()
    assert result.rc == 0, result.stdout
    assert "sent to node" not in result.stdout, "data that other nodes have was sent again"
    assert digests(nodes[1]) == expected_digests(source)
    assert nodes[2].inside("cat", f"{TARGET}/mine").stdout == "more\n"


@pytest.mark.slow
def test_next_run_completes_a_killed_run(
    nodes: list[Machine], copy: Callable[..., Result], source: Path, tmp_path: Path
) -> None:
    first, _, last = nodes
    before = counted(last, RECEIVED)
    given = ["-e", f"data_copy_src={source}", "-e", f"data_copy_dest={TARGET}"]
    with slow(first, RATE):
        run = Run(tmp_path, PLAYBOOK, *given, inventory=INVENTORY)
        until(lambda: counted(last, RECEIVED) > before + WEIGHT // 4, PATIENCE, "the copy is in progress")
        run.kill()
    assert "sent to node1" in run.shown
    until(
        lambda: all(machine.inside("ps", "-u", "nobody", "-o", "pid=", check=False).stdout == "" for machine in nodes),
        PATIENCE,
        "all sources have stopped",
    )
    for machine in nodes:
        half = {path: one for path, one in digests(machine).items() if not path.startswith(".muster-data/")}
        assert half.items() <= expected_digests(source).items(), "a file with its final name must be complete"
    assert any(machine.inside("ls", "-A", TARGET, check=False).stdout == ".muster-data\n" for machine in nodes)
    result = copy()
    assert result.rc == 0, result.stdout
    assert "sent to node" not in result.stdout, "the first node already had all data"
    assert [digests(machine) for machine in nodes] == [expected_digests(source)] * 3


def test_data_on_one_node_is_copied_to_others(nodes: list[Machine], copy: Callable[..., Result], source: Path) -> None:
    giver = nodes[1]
    giver.inside("mkdir", "-p", TARGET)
    giver.podman_copy(source / "train", TARGET)
    giver.inside("chown", "-R", "muster:", TARGET)
    listed = {path: one for path, one in expected_digests(source).items() if path.startswith("train/")}
    result = copy(f"node2:{TARGET}")
    assert result.rc == 0, result.stdout
    assert "sent to node" not in result.stdout
    assert [digests(machine) for machine in nodes] == [listed] * 3
    assert giver.inside("stat", "-c", "%U", f"{TARGET}/train/a.bin").stdout.strip() == "muster"

    beside = f"{ROOT}/beside"
    other = copy(f"node2:{TARGET}", data_copy_dest=beside)
    assert other.rc == 0, other.stdout
    assert [digests(machine, beside) for machine in nodes] == [listed] * 3

    giver.inside("sh", "-c", f"chown root: {TARGET}/train/b.bin")
    refused = copy(f"node2:{TARGET}")
    assert refused.rc == 2
    assert f"node2: {TARGET}: 'train/b.bin': owner is root, but the folder's owner is muster" in message(refused)


def test_impossible_copy_is_reported_before_any_data_is_copied(
    nodes: list[Machine], copy: Callable[..., Result], source: Path
) -> None:
    nodes[2].inside("sh", "-ec", f"mkdir -p {ROOT}; mount -t tmpfs -o size=5m,mode=755 tmpfs {ROOT}")
    try:
        full = copy()
    finally:
        nodes[2].inside("umount", ROOT)
    assert full.rc == 2
    assert f"node3: {TARGET} has too little free space: 8 MB will be copied" in message(full)
    nodes[0].inside("install", "-d", "-o", "muster", ROOT)
    theirs = copy()
    assert f"node1: {TARGET} is not safe to use: {ROOT} belongs to muster" in message(theirs)
    assert digests(nodes[1]) == {}

    (source / "shadow").symlink_to("/etc/shadow")
    wrong = copy(data_copy_dest="/etc/muster-data")
    assert "/etc/muster-data is a system folder" in message(wrong)
    assert "'shadow': link to '/etc/shadow'" in message(copy())
