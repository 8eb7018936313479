"""Diagnosis records of a node, from this machine and from file trees that simulate other machines."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import pwd
import socket
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from muster.diagnosis.evidence import NodeRecord
from muster.verdict import reading
from muster_node.diagnosis import kernel, machine, network, program, record
from muster_node.diagnosis.parts import Parts, UnseenError
from muster_node.launch import state
from muster_node.tools import control_group, process

LAUNCH_ID = "20260101-120000-abcd"
KEY = "cd" * 32
VALUE = "a-value-that-stays-here"


@pytest.fixture
def launch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Return a request for a launch by the current user. This process's control group stands in for the launch's
    unit."""
    monkeypatch.setattr(state, "STATE_ROOT", str(tmp_path / "state"))
    monkeypatch.setattr(record, "main_process", lambda _launch_id: os.getpid())
    (tmp_path / "state" / LAUNCH_ID / "unit").mkdir(parents=True)
    (tmp_path / "state" / LAUNCH_ID / "node.py").touch()
    (tmp_path / "state" / LAUNCH_ID / "spec.json").write_text(json.dumps(spec(tmp_path)))
    (tmp_path / "train.py").write_text("import helper\n")
    (tmp_path / "helper.py").write_text("pass\n")
    return {
        "launch_id": LAUNCH_ID,
        "run_dir": str(tmp_path),
        "key": KEY,
        "peers": {"node1": "127.0.0.1"},
        "names": ["localhost", "no-such-host.invalid"],
        "script": str(tmp_path / "train.py"),
        "environment": sys.prefix,
        "gpus": False,
    }


def spec(folder: Path) -> dict[str, Any]:
    return {
        "launch_id": LAUNCH_ID,
        "argv": [sys.executable, str(folder / "train.py")],
        "env": {"PATH": "/usr/bin", "TOKEN": VALUE},
        "work_dir": str(folder),
        "properties": {"WorkingDirectory": str(folder)},
    }


def read(found: dict[str, Any]) -> NodeRecord:
    """Parse a record as the controller does, and check that every part is valid."""
    taken, dropped = reading.read(NodeRecord, json.loads(json.dumps(found)))
    assert dropped == ()
    seen: NodeRecord = taken
    return seen


def test_start_record_contains_facts_and_no_secrets(launch: dict[str, Any], tmp_path: Path) -> None:
    text = json.dumps(record.started(launch, spec(tmp_path)))
    assert VALUE not in text
    assert KEY not in text
    assert len(text) < 16_000
    seen = read(json.loads(text))
    assert abs(seen["at"] - time.time()) < 60
    assert "127.0.0.1" in seen["interfaces"]["lo"]["addresses"]
    assert seen["interfaces"]["lo"]["kind"] == "loopback"
    assert seen["routes"]["node1"]["interface"] == "lo"
    assert {disk["use"] for disk in seen["disks"]} - {"other"} == {"logs", "work", "tmp", "shm"}
    assert seen["limits"]["max_open_files"][0]
    assert seen["memory"]["total"] > seen["memory"]["available"]
    assert "tcp.RetransSegs" in seen["counters"]
    assert seen["program"] is not None
    assert seen["program"]["interpreter"] == os.path.realpath(sys.executable)
    assert seen["program"]["environment"]["TOKEN"] == digest(VALUE)
    assert {"kernel", "gpus"} <= set(seen["unseen"])


def digest(value: str) -> str:
    return hmac.new(bytes.fromhex(KEY), value.encode(), hashlib.sha256).hexdigest()[:16]


def test_end_record_contains_changes_since_the_start(launch: dict[str, Any], tmp_path: Path) -> None:
    first = read(record.started(launch, spec(tmp_path)))
    ended = record.Ended(launch)
    ended.before_stop()
    (tmp_path / "helper.py").write_text("changed\n")
    last = read(ended.record())
    assert first["program"] is not None
    assert last["program"] is not None
    assert {**first["program"], "digests": {}} == {**last["program"], "digests": {}}
    assert first["program"]["digests"]["script"] == last["program"]["digests"]["script"]
    assert first["program"]["digests"]["code"] != last["program"]["digests"]["code"]


def test_end_record_uses_facts_written_by_the_ended_unit(
    launch: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = {**control_group.facts_v2(str(tmp_path)), "memory_events": {"oom_kill": 3}}
    (tmp_path / "state" / LAUNCH_ID / "unit/group.json").write_text(json.dumps(group))
    monkeypatch.setattr(record, "main_process", lambda _launch_id: 0)
    ended = record.Ended(launch)
    ended.before_stop()
    last = read(ended.record())
    assert last["unit"] is not None
    assert last["unit"]["memory_events"] == {"oom_kill": 3}
    assert "limits" in last["unseen"]


@pytest.mark.parametrize("spoilt", ["[]", "{", '{"argv": [1], "env": {}}', '{"argv": ["x"], "env": {"a": 7}}'])
def test_specification_corrupted_by_its_user_is_ignored(launch: dict[str, Any], tmp_path: Path, spoilt: str) -> None:
    (tmp_path / "state" / LAUNCH_ID / "spec.json").write_text(spoilt)
    seen = read(record.Ended(launch).record())
    assert seen["program"] is None
    assert "program" in seen["unseen"]


def test_hanging_user_folder_affects_only_its_part_of_the_record(
    launch: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record, "USERS", {record.STARTING: 0.1, record.ENDED: 0.1})
    monkeypatch.setattr(machine, "disks", lambda *_folders: time.sleep(60))
    seen = read(record.started(launch, spec(tmp_path)))
    assert {"disks", "program", "names"} <= set(seen["unseen"])
    assert seen["interfaces"]


def test_root_reads_only_folders_of_a_known_owner(launch: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "state" / LAUNCH_ID / "unit").rmdir()
    seen = read(record.started({**launch, "run_dir": "/nowhere"}, spec(tmp_path)))
    assert seen["program"] is None
    assert seen["unseen"]["program"].endswith("the launch has no folders on this node")


def test_failing_part_does_not_hide_other_parts() -> None:
    parts = Parts()
    for name, problem in {
        "a": UnseenError("root alone"),
        "b": OSError(5, "Input/output error", "/x"),
        "c": KeyError("d"),
    }.items():
        parts.look(name, raising(problem), None)
    parts.look("e", lambda: 7, None)
    assert parts.found == {"a": None, "b": None, "c": None, "e": 7}
    assert parts.unseen == {"a": "root alone", "b": "/x Input/output error", "c": "KeyError: 'd'"}


def raising(problem: Exception) -> Any:
    def work() -> None:
        raise problem

    return work


# ---------------------------------------------------------------- control groups


def tree(folder: Path, said: dict[str, str]) -> None:
    for name, text in said.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_control_group_v2_facts_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_group, "CGROUPS", str(tmp_path))
    files = {
        "cgroup.controllers": "memory\n",
        "memory.current": "1000\n",
        "memory.max": "max\n",
        "memory.events": "low 0\nhigh 0\nmax 9\noom 1\noom_kill 1\nother 5\n",
        "cpu.max": "150000 100000\n",
        "cpu.stat": "usage_usec 77\nuser_usec 5\nnr_periods 3\nnr_throttled 2\nthrottled_usec 1\n",
        "pids.current": "4\n",
        "pids.max": "50\n",
        "pids.events": "max 6\n",
        "cgroup.events": "populated 1\nfrozen 1\n",
    }
    tree(tmp_path / "a/b.service", {**files, "cgroup.procs": ""})
    trees = control_group.folders("12:memory:/x\n0::/a/b.service\n")
    assert trees == {"": f"{tmp_path}/a/b.service"}
    # In a container with its own cgroup root, all paths may begin outside of it.
    assert control_group.folders("0::/pod/a/b.service\n", "0::/pod/init.scope\n") == trees
    assert control_group.folders("0::/a\n") == {}
    assert control_group.facts_v2(trees[""]) == {
        "memory_current": 1000,
        "memory_max": None,
        "memory_events": {"low": 0, "high": 0, "max": 9, "oom": 1, "oom_kill": 1},
        "cpu_max": 1.5,
        "cpu": {"nr_periods": 3, "nr_throttled": 2, "throttled_usec": 1, "usage_usec": 77},
        "pids_current": 4,
        "pids_max": 50,
        "pids_refused": 6,
        "frozen": True,
    }


def test_control_group_v1_facts_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_group, "CGROUPS", str(tmp_path))
    files = {
        "memory/a.service/memory.usage_in_bytes": "1000\n",
        "memory/a.service/memory.limit_in_bytes": "9223372036854771712\n",
        "memory/a.service/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n",
        "cpu/a.service/cpu.cfs_quota_us": "-1\n",
        "cpu/a.service/cpu.cfs_period_us": "100000\n",
        "cpu/a.service/cpu.stat": "nr_periods 3\nnr_throttled 2\nthrottled_time 5000\n",
        "cpuacct/a.service/cpuacct.usage": "9000\n",
        # Counts all units together, so it does not apply to this one.
        "pids/system.slice/pids.current": "700\n",
        "freezer/a.service/freezer.state": "FROZEN\n",
    }
    tree(tmp_path, {**files, **{f"{Path(name).parent}/cgroup.procs": "" for name in files}})
    own = "4:memory:/a.service\n3:cpu,cpuacct:/a.service\n6:freezer:/a.service\n1:name=systemd:/a.service\n"
    facts = {
        "memory_current": 1000,
        "memory_max": None,
        "memory_events": {"oom_kill": 2},
        "cpu_max": None,
        "cpu": {"nr_periods": 3, "nr_throttled": 2, "throttled_usec": 5, "usage_usec": 9},
        "pids_current": None,
        "pids_max": None,
        "pids_refused": None,
        "frozen": True,
    }
    assert control_group.facts_v1(control_group.folders(f"{own}2:pids:/system.slice\n0::/a.service\n")) == facts
    # Controllers that systemd does not use for units are not visible; the unified tree shows whether they are frozen.
    tree(tmp_path / "unified/a.service", {"cgroup.procs": "", "cgroup.events": "populated 1\nfrozen 0\n"})
    alone = control_group.facts_v1(control_group.folders("4:memory:/\n0::/a.service\n"))
    assert alone == {**facts, "memory_current": None, "memory_events": {}, "cpu": {}, "frozen": False}


@pytest.mark.parametrize(
    ("first", "folder"),
    [
        ("4:memory:/pod\n3:pids:/pod\n2:cpu,cpuacct:/pod\n0::/pod/init.scope\n", ""),  # with its own cgroup root
        ("4:memory:/pod\n3:pids:/pod\n2:cpu,cpuacct:/pod\n0::/pod/init.scope\n", "/pod"),
    ],
)
def test_container_cgroup_v1_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: str, folder: str) -> None:
    monkeypatch.setattr(control_group, "CGROUPS", str(tmp_path))
    monkeypatch.setattr(process, "read", lambda pid, name: first if (pid, name) == (1, "cgroup") else "")
    files = {
        f"memory{folder}/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n",
        f"pids{folder}/pids.events": "max 5\n",
        f"cpu{folder}/cpu.stat": "nr_periods 30\nnr_throttled 20\nthrottled_time 5000\n",
    }
    tree(tmp_path, files)
    assert control_group.of_machine() == {"oom_kill": 2, "pids_refused": 5, "nr_periods": 30, "nr_throttled": 20}


def test_container_cgroup_v2_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_group, "CGROUPS", str(tmp_path))
    monkeypatch.setattr(process, "read", lambda *_: "0::/init.scope\n")
    assert control_group.of_machine() == {}  # on a machine, the root group has no such files
    tree(tmp_path, {"memory.events": "oom 1\noom_kill 1\n", "pids.events": "max 0\n", "cpu.stat": "usage_usec 7\n"})
    assert control_group.of_machine() == {"oom_kill": 1, "pids_refused": 0}


def test_missing_control_group_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_group, "CGROUPS", str(tmp_path))
    with pytest.raises(LookupError):
        control_group.unit_facts(os.getpid())


# ---------------------------------------------------------------- machine and network


def test_kernel_counters_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "PROC", str(tmp_path))
    monkeypatch.setattr(control_group, "CGROUPS", str(tmp_path))
    tree(
        tmp_path,
        {
            "net/snmp": "Ip: Forwarding InDiscards OutNoRoutes\nIp: 1 5 6\nTcp: MaxConn RetransSegs\nTcp: -1 42\n",
            "net/netstat": "TcpExt: ListenDrops TCPTimeouts IPReversePathFilter\nTcpExt: 1 2 3\n",
            "vmstat": "nr_free_pages 5\noom_kill 3\n",
            "net/stat/nf_conntrack": "entries drop insert_failed\n10 0a 1\n10 1 0\n",
            "sys/net/netfilter/nf_conntrack_max": "262144\n",
            "sys/net/netfilter/nf_conntrack_count": "7\n",
            "pressure/cpu": "some avg10=1.50 avg60=0.00 avg300=0.00 total=5\n",
            "meminfo": "MemTotal:       1024 kB\nMemAvailable:    512 kB\nSwapFree:          0 kB\n",
        },
    )
    assert machine.counters() == {
        "tcp.RetransSegs": 42,
        "ext.TCPTimeouts": 2,
        "ext.ListenDrops": 1,
        "ext.IPReversePathFilter": 3,
        "ip.InDiscards": 5,
        "ip.OutNoRoutes": 6,
        "conntrack.count": 7,
        "conntrack.max": 262144,
        "vm.oom_kill": 3,
        "conntrack.drop": 11,
        "conntrack.insert_failed": 1,
    }
    assert machine.pressure() == {"cpu": 1.5}
    assert machine.memory() == {"total": 1 << 20, "available": 1 << 19, "swap_free": 0}
    monkeypatch.setattr(machine, "PROC", str(tmp_path / "nowhere"))
    assert machine.counters() == {}
    with pytest.raises(UnseenError):
        machine.pressure()


def test_gpus_are_parsed_from_nvidia_smi() -> None:
    words = machine.columns("0, GPU-1, NVIDIA H100 80GB HBM3, 1024, 81559, [N/A]")
    assert machine.gpu(words, {"GPU-1": [4, 5]}) == {
        "index": 0,
        "uuid": "GPU-1",
        "name": "NVIDIA H100 80GB HBM3",
        "memory_used": 1 << 30,
        "memory_total": 81559 << 20,
        "ecc": None,
        "processes": [4, 5],
    }
    assert machine.columns("Unable to determine the device handle for GPU0000:17:00.0: Unknown Error") == []


def test_interfaces_are_read_with_addresses_and_counters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network, "NET", str(tmp_path))
    up = {"flags": "0x1003\n", "carrier": "1\n", "mtu": "9000\n", "type": "1\n", "carrier_changes": "3\n"}
    tree(tmp_path / "eth0", {**up, "statistics/rx_errors": "4\n", "device/vendor": "0x15b3"})
    tree(tmp_path / "docker0", {**up, "flags": "0x1002\n", "carrier": "", "bridge/bridge_id": "8000"})
    for number in range(50):
        tree(tmp_path / f"a{number}", up)
    found = network.interfaces({"eth0": ["192.0.2.1"], "a1": ["fe80::1"]})
    assert len(found) == network.MOST_INTERFACES
    assert found["eth0"] == {
        "up": True,
        "carrier": True,
        "mtu": 9000,
        "kind": "physical",
        "addresses": ["192.0.2.1"],
        "counters": {"carrier_changes": 3, "rx_errors": 4},
    }
    bridge = network.interface("docker0", [])
    assert (bridge["up"], bridge["carrier"], bridge["kind"]) == (False, None, "bridge")


def test_routes_are_assigned_to_the_right_peers() -> None:
    peers = {"node1": "192.0.2.1", "node2": "198.51.100.1", "node3": "192.0.2.3"}
    said = network.documents(
        '[{"ifname":"lo"}]\n[{"dev":"eth0","prefsrc":"192.0.2.9"}]\n[{"dev":"eth1","gateway":"g"}]'
    )
    aside = "RTNETLINK answers: Network is unreachable\nCommand failed -:3\n"
    found = network.routes(peers, said[1:], aside)
    assert [(way["interface"], way["error"]) for way in found.values()] == [
        ("eth0", ""),
        ("", "Network is unreachable"),
        ("eth1", ""),
    ]


def test_names_that_do_not_resolve_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(name: str, *_args: Any, **_how: Any) -> list[Any]:
        if name == "slow":
            time.sleep(60)
        if name == "none":
            raise OSError("Name or service not known")
        return [(2, 1, 6, "", ("192.0.2.1", 0)), (2, 1, 6, "", ("192.0.2.1", 0))]

    monkeypatch.setattr(socket, "getaddrinfo", answer)
    found, silent = network.Resolving(["node1", "slow", "none"]).answers(time.monotonic() + 0.2)
    assert (found, silent) == ({"node1": ["192.0.2.1"], "none": []}, ["slow"])


# ---------------------------------------------------------------- program and kernel


def test_code_next_to_a_script_is_hashed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {"train.py": "1", "model/__init__.py": "", "model/layer.py": "2", "data/raw.py": "3", "note.txt": "4"}
    tree(tmp_path, files)
    first, why = program.digests("train.py", str(tmp_path))
    assert (set(first), why) == ({"script", "code"}, "")
    tree(tmp_path, {"data/raw.py": "not a package", "note.txt": "no code"})
    assert program.digests("train.py", str(tmp_path))[0] == first
    tree(tmp_path, {"model/layer.py": "other"})
    other = program.digests("train.py", str(tmp_path))[0]
    assert (other["script"] == first["script"], other["code"] == first["code"]) == (True, False)
    monkeypatch.setattr(program, "MOST_FILES", 2)
    found, why = program.digests("train.py", str(tmp_path))
    assert (set(found), why) == ({"script"}, "the code beside train.py: the files are too many or too large")
    assert program.digests("nothing.py", str(tmp_path)) == ({}, "nothing.py: No such file or directory")


def test_versions_are_read_and_nothing_is_imported(tmp_path: Path) -> None:
    library = "lib/python3.11/site-packages"
    files = {
        f"{library}/torch/version.py": "__version__ = '2.13.0+cu128'\nimport os; os.abort()\n",
        f"{library}/nvidia_nccl_cu12-2.27.3.dist-info/METADATA": "",
        "pyvenv.cfg": "home = /usr/bin\nversion = 3.11.2\n",
    }
    tree(tmp_path, files)
    assert program.versions(str(tmp_path), "") == {
        "python": "3.11.2",
        "torch": "2.13.0+cu128",
        "nccl": "2.27.3",
        "muster_environment": str(tmp_path),
    }
    assert program.versions(str(tmp_path / "nowhere"), "") == {}


def test_unprintable_variable_names_are_dropped() -> None:
    env = {"A": "x", "B\n": "x", "C" * 200: "x"}
    assert program.environment(env, KEY) == {"A": digest("x")}


@pytest.mark.parametrize(
    ("record_", "when", "text"),
    [
        ("6,339,5140900,-;NET: Registered\n SUBSYSTEM=x\n", 5.1409, "NET: Registered"),
        ("30,1,7000000,-;systemd[1]: Started", 7.0, ""),
    ],
)
def test_kernel_ring_buffer_records_are_parsed(record_: str, when: float, text: str) -> None:
    assert kernel.parsed(record_) == (when, text)


def test_only_kernel_lines_since_the_start_of_a_launch_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.monotonic()
    lines = [
        (now - 90.0, "Out of memory: Killed process 1 (before)"),
        (now - 20.0, "Memory cgroup out of memory: Killed process 7 (python3)"),
        (now - 10.0, "usb 1-1: new device"),
        (now - 5.0, "python3[9]: segfault at 0 ip 0"),
    ]
    monkeypatch.setattr(kernel, "ring", lambda _until: (lines, now - 100.0))
    found = kernel.since(now - 30.0)
    assert [line["text"].partition(":")[0] for line in found] == ["Memory cgroup out of memory", "python3[9]"]
    assert abs(found[0]["at"] - (time.time() - 20.0)) < 5.0
    monkeypatch.setattr(kernel, "ring", lambda _until: ([], None))
    monkeypatch.setattr(kernel, "journal", lambda _began: [])
    with pytest.raises(UnseenError):
        kernel.since(now)


def test_record_of_a_user_launch_has_no_kernel_log(launch: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: pwd.getpwnam("nobody").pw_uid)
    with pytest.raises(UnseenError, match="user launch"):
        record.kernel_lines(launch, record.ENDED)
