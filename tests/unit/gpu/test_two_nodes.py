"""The parts of tests/gpu/two_nodes that run without nodes: mounts, packages, choice of experiments, and the report."""

from __future__ import annotations

import json
import tarfile
from typing import TYPE_CHECKING, Any

import pytest

from two_nodes import carried, machine, recordings, report
from two_nodes.experiments import EXPERIMENTS, choose
from two_nodes.report import Expected, Result, Seen

if TYPE_CHECKING:
    from pathlib import Path

OPTIONS = "rw,nosuid,nodev,noexec,relatime"
HYBRID = f"""\
tmpfs /sys/fs/cgroup tmpfs rw,mode=755 0 0
cgroup /sys/fs/cgroup/cpu,cpuacct cgroup {OPTIONS},cpu,cpuacct 0 0
cgroup /sys/fs/cgroup/cpuset cgroup {OPTIONS},cpuset,clone_children 0 0
cgroup /sys/fs/cgroup/memory cgroup {OPTIONS},memory 0 0
"""
SYSTEMD = f"cgroup /sys/fs/cgroup/systemd cgroup {OPTIONS},name=systemd 0 0\n"
UNIFIED = f"cgroup2 /sys/fs/cgroup/unified cgroup2 {OPTIONS},nsdelegate 0 0\n"


@pytest.mark.parametrize(
    ("mounts", "trees"),
    [
        pytest.param(
            HYBRID + SYSTEMD + UNIFIED,
            [
                ("cpu,cpuacct", "cgroup", "cpu,cpuacct", "/sys/fs/cgroup/cpu,cpuacct"),
                ("memory", "cgroup", "memory", "/sys/fs/cgroup/memory"),
                ("systemd", "cgroup", "none,name=systemd", "/sys/fs/cgroup/systemd"),
                ("unified", "cgroup2", "", "/sys/fs/cgroup/unified"),
            ],
            id="v1_and_v2",
        ),
        pytest.param(
            HYBRID,
            [
                ("cpu,cpuacct", "cgroup", "cpu,cpuacct", "/sys/fs/cgroup/cpu,cpuacct"),
                ("memory", "cgroup", "memory", "/sys/fs/cgroup/memory"),
                ("systemd", "cgroup", "none,name=systemd", ""),
            ],
            id="no_tree_of_systemd",
        ),
        pytest.param(
            f"cgroup2 /sys/fs/cgroup cgroup2 {OPTIONS} 0 0\n",
            [("unified", "cgroup2", "", "/sys/fs/cgroup")],
            id="v2_alone",
        ),
        pytest.param("proc /proc proc rw 0 0\n", [("unified", "cgroup2", "", "")], id="nothing_mounted"),
    ],
)
def test_cgroup_hierarchies_are_parsed_from_mounts(mounts: str, trees: list[tuple[str, str, str, str]]) -> None:
    found = machine.trees_of(machine.read_mounts(mounts))
    assert [(one.name, one.kind, one.options, one.place) for one in found] == trees


def test_relevant_mounts_of_the_machine_are_selected() -> None:
    places = ["/", "/proc", "/usr/local/nvidia", "/dev/shm", "/repo", "/repository", "/out", "/run/lock", "/opt/torch"]
    mountinfo = "".join(f"{number} 1 8:1 / {place} rw - ext4 x rw\n" for number, place in enumerate(places))
    assert machine.mounts_to_take(mountinfo, ["/repo", "/out"]) == ["/opt/torch", "/repository", "/usr/local/nvidia"]


def test_package_names_are_parsed_from_apt_output() -> None:
    printed = (
        "Reading\n'http://x/kmod_31%2b1_amd64.deb' kmod_31+1_amd64.deb 1 SHA512:0\n'http://x/a' a-b_1%3a2_all.deb 2\n"
    )
    assert carried.names(printed) == {"kmod", "a-b"}
    available = (
        "Package: bash\nEssential: yes\n\nPackage: tar\nPriority: required\nDescription: x\n Priority: y\n\n"
        "Package: vim\nPriority: optional\n"
    )
    assert carried.required(available) == ["apt", "bash", "tar"]


def test_experiments_have_unique_names() -> None:
    names = [one.name for one in EXPERIMENTS]
    assert len(set(names)) == len(names)
    assert choose([], 1).experiments == list(EXPERIMENTS)
    assert choose([], 1).left_out == {}


def test_gpu_experiments_are_skipped_without_a_gpu() -> None:
    chosen, left_out = choose(["hog", "killed"], 0)
    assert [one.name for one in chosen] == ["killed"]
    assert left_out == {"hog": "needs a GPU: fills the GPU memory"}
    with pytest.raises(ValueError, match="no such experiment: hug; --list prints the names"):
        choose(["hug", "killed"], 0)


def keep(folder: Path, name: str, content: Any) -> None:
    (folder / name).write_text(json.dumps(content))


def test_results_are_read_from_the_files_of_a_run(tmp_path: Path) -> None:
    assert report.read_seen(tmp_path) == Seen("no verdict", (), ("",))
    findings = [{"id": "launch.signal", "status": "fail"}, {"id": "launch.ended", "status": "pass"}]
    keep(tmp_path, "verdict.json", {"status": "failed", "summary": "rank 1 ended", "findings": findings})
    assert report.read_seen(tmp_path) == Seen("failed", ("launch.signal",), ("rank 1 ended",))
    keep(tmp_path, "diagnosis.json", {"lines": ["Symptom: rank 1"], "causes": [{"id": "process.killed"}]})
    assert report.read_seen(tmp_path) == Seen("failed", ("process.killed", "launch.signal"), ("Symptom: rank 1",))


def test_ranks_without_a_flight_recorder_are_named(tmp_path: Path) -> None:
    assert report.unread(tmp_path, 2) == ["0 of 2 ranks were inspected"]
    read = {"rank": 0, "flight": {"group": "default_pg", "enqueued": 5, "last": []}, "flight_why": ""}
    empty = {"rank": 1, "flight": None, "flight_why": "the flight recorder is empty"}
    keep(tmp_path, "evidence.json", {"snapshots": {"node1": {"ranks": [read]}, "node2": {"ranks": [empty]}}})
    assert report.unread(tmp_path, 2) == ["rank 1: the flight recorder is empty"]
    keep(tmp_path, "evidence.json", {"snapshots": {"node1": {"ranks": [read]}, "node2": {"ranks": [read]}}})
    assert report.unread(tmp_path, 2) == []


@pytest.mark.parametrize(
    ("seen", "outcome"),
    [
        (Seen("failed", ("process.killed", "launch.signal")), "PASS"),
        (Seen("failed", ("launch.signal",)), "FINDING"),
        (Seen("unknown", ("process.killed",)), "FINDING"),
    ],
)
def test_result_is_compared_with_the_expected_one(seen: Seen, outcome: str) -> None:
    expected = Expected("failed", ("process.killed", "process.terminated"))
    assert report.compare("killed", expected, seen, 30.0).outcome == outcome
    assert report.compare("healthy", Expected("healthy"), Seen("healthy", ("gloo",)), 1.0).outcome == "PASS"


def test_table_and_summary_show_every_result() -> None:
    results = [
        Result("healthy", "PASS", "healthy", "healthy NET/Socket", ["fine"], 31.4),
        Result("killed", "FINDING", "failed process.killed", "failed launch.signal", ["Symptom: x", "Cause: y"], 28.0),
        Result("held", "FAILED", "failed gpu.taken", "rank 1 does not run", [], 9.0),
        Result("hog", "left out", "", "no time was left"),
    ]
    assert report.table(results).splitlines() == [
        "healthy         31 s  PASS      healthy NET/Socket",
        "killed          28 s  FINDING   failed launch.signal (expected: failed process.killed)",
        "    Symptom: x",
        "    Cause: y",
        "held             9 s  FAILED    rank 1 does not run (expected: failed gpu.taken)",
        "hog              0 s  left out  no time was left",
        "1 PASS, 1 FINDING, 1 FAILED, 1 left out",
    ]
    kept = json.loads(report.summary("one GPU", {"boot": 3.6}, results[:1]))
    assert kept["steps"] == {"boot": 3.6}
    assert kept["experiments"][0]["seen"] == "healthy NET/Socket"


def test_recordings_can_be_packed_into_the_same_archive_repeatedly(tmp_path: Path) -> None:
    folder, archive = tmp_path / "recordings", tmp_path / "recordings.tgz"
    folder.mkdir()
    for name in ("a.txt", "report.html", "b.txt"):
        (folder / name).touch()
        recordings.pack(folder, archive)
    with tarfile.open(archive) as packed:
        assert sorted(packed.getnames()) == ["recordings", "recordings/a.txt", "recordings/b.txt"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["recordings", "recordings.tgz"]
