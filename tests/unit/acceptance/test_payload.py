"""The acceptance test's parsers of program output and kernel files; only code that does not require torch."""

from __future__ import annotations

import json
import socket
from typing import TYPE_CHECKING, Any

import pytest

from payload_parts import part

if TYPE_CHECKING:
    from pathlib import Path


dcgm, smi, cores, turns = (part(name) for name in ("dcgm", "smi", "cores", "turns"))


def diagnosis(head: str, results: list[dict[str, Any]]) -> str:
    """Return a report in the format documented by NVIDIA, with made-up content."""
    tests = [{"name": "software", "results": [{"status": "Pass"}]}, {"name": "memory", "results": results}]
    return json.dumps({head: {"test_categories": [{"category": "Hardware", "tests": tests}]}})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            diagnosis("DCGM Diagnostic", [{"entity_group": "GPU", "entity_id": 0, "status": "Pass"}]),
            {"tests": 2, "bad": [], "more": 0},
        ),
        (
            "Successfully ran diagnostic for group.\n"
            + diagnosis(
                "DCGM Diagnostic",
                [{"entity_id": 3, "status": "Fail", "warnings": [{"warning": "errors", "error_id": 38}]}],
            ),
            {"tests": 2, "bad": [{"test": "memory", "gpu": "3", "status": "fail", "text": "errors"}], "more": 0},
        ),
        (
            diagnosis("DCGM GPU Diagnostic", [{"gpu_id": "1", "status": "Warn", "info": "slow"}]),
            {"tests": 2, "bad": [{"test": "memory", "gpu": "1", "status": "warn", "text": "slow"}], "more": 0},
        ),
        (diagnosis("DCGM GPU Diagnostic", [{"gpu_ids": "0,1", "status": "Skip"}]), {"tests": 2, "bad": [], "more": 0}),
        ("Error: unable to establish a connection to the specified host: localhost", None),
        ('{"DCGM Diagnostic": {"runtime_error": "busy"}}', None),
        ('{"DCGM Diagnostic": []}', None),
        ("[1]", None),
        ("", None),
    ],
)
def test_dcgm_diagnostic_output_is_parsed(text: str, expected: dict[str, Any] | None) -> None:
    assert dcgm.parsed(text) == expected


def test_number_of_dcgm_failures_is_limited_and_counted() -> None:
    said = dcgm.parsed(diagnosis("DCGM Diagnostic", [{"entity_id": n, "status": "Fail"} for n in range(25)]))
    assert (len(said["bad"]), said["more"]) == (20, 5)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "45, 1980, 1980, 350.12, 0x0000000000000004, 0, 0, 5, 16\n",
            {"temperature_c": 45.0, "sm_mhz": 1980.0, "throttled": [], "link_generation": 5.0, "link_width": 16.0},
        ),
        (
            "91, 800, 1410, 250.00, 0x0000000000000060, [N/A], [N/A], 4, 16\n",
            {"ecc_corrected": None, "throttled": ["software thermal slowdown", "hardware thermal slowdown"]},
        ),
        ("45, 1980, 1980, 350.12, [Not Supported], 0, 0, 5, 16", {"throttled": None}),
    ],
)
def test_nvidia_smi_output_is_parsed(text: str, expected: dict[str, Any]) -> None:
    said = smi.parsed(text)
    assert {name: said[name] for name in expected} == expected


@pytest.mark.parametrize("text", ["", "No devices were found", "1, 2, 3"])
def test_invalid_nvidia_smi_output_is_ignored(text: str) -> None:
    assert smi.parsed(text) == {}


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_cpu_quota_of_a_parent_cgroup_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In cgroup v2, the cgroup of the process has no quota, but its parent (the cgroup of the launch) has one."""
    own = tmp_path / "launch/ranks"
    write(own / "cpu.max", "max 100000\n")
    write(own / "cpu.stat", "usage_usec 5\nnr_throttled 0\nthrottled_usec 0\n")
    write(tmp_path / "launch/cpu.max", "20000 100000\n")
    write(tmp_path / "launch/cpu.stat", "usage_usec 5\nnr_throttled 7\nthrottled_usec 2500000\n")
    monkeypatch.setattr(cores, "folders", lambda: [own, own.parent, tmp_path])
    assert cores.quota() == 0.2
    assert cores.throttled_seconds() == 2.5


def test_cpu_quota_is_read_from_cgroup_v1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "cpu.cfs_quota_us", "20000\n")
    write(tmp_path / "cpu.cfs_period_us", "100000\n")
    write(tmp_path / "cpu.stat", "nr_periods 10\nnr_throttled 7\nthrottled_time 2500000000\n")
    monkeypatch.setattr(cores, "folders", lambda: [tmp_path])
    assert cores.quota() == 0.2
    assert cores.throttled_seconds() == 2.5


# A container with cgroup 1, a machine with cgroup 2, and a machine that mounts both
V1 = "3298 3297 0:29 /pods/one /sys/fs/cgroup/cpu ro,nosuid - cgroup cgroup rw,cpu"
V1_BOTH = "33 32 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,nosuid shared:9 - cgroup cgroup rw,cpu,cpuacct"
V2 = "41 31 0:38 / /sys/fs/cgroup rw,relatime shared:4 - cgroup2 cgroup2 rw,nsdelegate"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"{V2}\n{V1}", [("cpu", "/pods/one", "/sys/fs/cgroup/cpu"), ("", "/", "/sys/fs/cgroup")]),
        (V1_BOTH, [("cpu,cpuacct", "/", "/sys/fs/cgroup/cpu,cpuacct")]),
        (f"22 1 8:1 / / rw shared:1 - ext4 /dev/sda1 rw\n{V2}\nodd", [("", "/", "/sys/fs/cgroup")]),
        ("", []),
    ],
)
def test_mounted_cgroup_hierarchies_are_parsed(text: str, expected: list[tuple[str, str, str]]) -> None:
    assert [(kind, root, str(place)) for kind, root, place in cores.mounts(text)] == expected


@pytest.mark.parametrize(
    ("mountinfo", "own", "expected"),
    [
        (V1, "9:name=systemd:/x\n1:cpu:/pods/one/slow\n0::/pods/one", ["cpu/slow", "cpu"]),
        (V1, "1:cpu:/pods/one", ["cpu"]),
        (V1, "1:cpu:/elsewhere", ["cpu"]),
        (
            V1_BOTH,
            "4:cpu,cpuacct:/system.slice/a.service",
            ["cpu,cpuacct/system.slice/a.service", "cpu,cpuacct/system.slice", "cpu,cpuacct"],
        ),
        ("", "0::/", []),
    ],
)
def test_cgroup_folders_of_the_process_are_found(
    mountinfo: str, own: str, expected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = {"/proc/self/mountinfo": mountinfo, "/proc/self/cgroup": own}
    monkeypatch.setattr(cores, "text_of", lambda path: texts[str(path)])
    assert [str(folder) for folder in cores.folders()] == [f"/sys/fs/cgroup/{name}" for name in expected]


def test_missing_cpu_quota_is_read_as_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "cpu.cfs_quota_us", "-1\n")
    write(tmp_path / "cpu.cfs_period_us", "100000\n")
    monkeypatch.setattr(cores, "folders", lambda: [tmp_path])
    assert cores.quota() is None
    assert cores.throttled_seconds() is None


def test_only_one_rank_holds_a_turn_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", "1")
    with turns.turn("buses", 1.0) as mine:
        assert mine
        assert not turns.free("buses")
        assert turns.free("cores")
        with turns.turn("buses", 0.02) as again:
            assert not again
    assert turns.free("buses")


def test_turn_of_another_run_does_not_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MASTER_PORT", "1")
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(turns.name_of("buses"))
        monkeypatch.setenv("MASTER_PORT", "2")
        assert turns.free("buses")


class Gathered:
    """Stub of the ranks' context that returns the machine information of each rank."""

    def __init__(self, *said: tuple[tuple[int, int, int], list[int]]) -> None:
        self.said = said

    def gather(self, _mine: object) -> list[Any]:
        return list(self.said)


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        # Two containers on one machine, the second queried a moment later
        (
            [((1_700_000_000, 52_000_000, 90_000), [0, 1]), ((1_700_000_000, 52_090_000, 90_020), [0, 1])],
            "2 ranks have 2 cores of one machine",
        ),
        # Two machines that were powered on together
        ([((1_700_000_000, 52_000_000, 90_000), [0, 1]), ((1_700_000_000, 61_000_000, 95_000), [0, 1])], ""),
        ([((1_700_000_000, 52_000_000, 90_000), [0, 1]), ((1_700_000_007, 52_000_000, 90_000), [0, 1])], ""),
        ([((1_700_000_000, 52_000_000, 90_000), [0, 1, 2, 3])] * 2, ""),
        ([((1_700_000_000, 52_000_000, 90_000), [3])], "1 rank has 1 core of one machine"),
    ],
)
def test_ranks_sharing_cores_are_reported(said: list[Any], expected: str) -> None:
    assert cores.shared(Gathered(*said)) == expected


def test_later_query_recognizes_the_same_machine() -> None:
    first = cores.counted()
    assert first[0] > 0
    assert cores.same_machine(first, cores.counted())
