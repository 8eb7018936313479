"""Nodes record evidence for the diagnosis: at the start, at the end, and of all ranks before Muster ends any rank."""

from __future__ import annotations

import hashlib
import hmac
import json
import signal
from typing import TYPE_CHECKING, Any

import pytest

from drill import Drill, fields, hit
from launch_users import make_launch_user
from waiting import PATIENCE, until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from machines import Machine

pytestmark = [pytest.mark.moment, pytest.mark.slow]

NODES = ("node1", "node2", "node3")
VALUE = "of-the-file-31/41+59"
MOMENTS = ("start", "snapshot", "end")


@pytest.fixture(scope="module")
def machines(with_pytorch: None, node: Any) -> list[Machine]:
    return [node(name) for name in NODES]


@pytest.fixture(params=["", "ada"], ids=["administrator", "user"])
def drill(request: pytest.FixtureRequest, tmp_path: Path, machines: list[Machine]) -> Iterator[Drill]:
    """Yield a launch of three ranks on three nodes with a secret from a file."""
    if request.param:
        make_launch_user(request.param, machines)
    given = tmp_path / "given"
    given.touch(mode=0o600)
    given.write_text(json.dumps({"SERVICE_TOKEN": VALUE}))
    variables = {"cluster_launch_nodes": NODES, "cluster_nproc_per_node": 1, "launch_env_file": str(given)}
    drill = Drill(tmp_path, variables, user=request.param)
    yield drill
    drill.clean_up(machines)


def evidence(drill: Drill, moment: str) -> dict[str, dict[str, Any]]:
    """Return the evidence of this moment that the controller keeps, by node."""
    return {path.stem: json.loads(path.read_text()) for path in (drill.run / "evidence" / moment).glob("*.json")}


def key_of(drill: Drill) -> str:
    secret = (drill.run.parent / "evidence.key").read_bytes()
    return hmac.new(secret, drill.launch_id.encode(), hashlib.sha256).hexdigest()


def test_evidence_is_recorded_before_ranks_are_ended(drill: Drill, machines: list[Machine]) -> None:
    drill.begin().in_step(ranks=3)
    assert set(evidence(drill, "start")) == set(NODES)
    key = key_of(drill)
    for machine in machines:
        held = machine.inside("grep", "-rls", "-e", key, drill.state_on(machine), drill.node_folder, check=False)
        assert (held.stdout, held.returncode) == ("", 1)
    stopped, killed = drill.pid(1), drill.pid(2)
    hit(stopped, signal.SIGSTOP)
    until(lambda: fields(stopped)[:1] == ["T"], PATIENCE, "rank 1 is stopped")
    hit(killed, signal.SIGKILL)
    assert drill.end()["status"] == "failed"

    shots = {shot["rank"]: shot for seen in evidence(drill, "snapshot").values() for shot in seen["ranks"]}
    assert set(evidence(drill, "snapshot")) == set(NODES)
    assert [rank for rank, shot in shots.items() if shot["state"] == "T"] == [1]
    assert shots[1]["sockets"]
    assert 2 not in shots
    [port] = {each["port"] for each in evidence(drill, "snapshot")["node1"]["listeners"]} or {0}
    plan = json.loads((drill.run / "plan.json").read_text())
    assert port in (0, plan["master_port"])  # the head's agent may have ended by then

    for moment in ("start", "end"):
        found = evidence(drill, moment)
        assert set(found) == set(NODES), moment
        for name, record in found.items():
            program = record["program"]
            assert program["digests"].keys() == {"script", "code"}
            assert program["versions"]["torch"].startswith("2.")
            assert record["routes"].keys() == set(NODES) - {name}
            assert all(way["interface"] and not way["error"] for way in record["routes"].values())
            assert record["counters"]["tcp.RetransSegs"] >= 0
            assert {disk["use"] for disk in record["disks"]} == {"logs", "work", "tmp", "shm"}
            assert "kernel" in record["unseen"]  # a container has no kernel log
        digests = {record["program"]["environment"]["SERVICE_TOKEN"] for record in found.values()}
        assert digests == {hmac.new(bytes.fromhex(key), VALUE.encode(), hashlib.sha256).hexdigest()[:16]}
    assert all(record["limits"]["max_open_files"] for record in evidence(drill, "start").values())
    assert all(record["unit"] for record in evidence(drill, "start").values())
    every = [path.read_text() for path in (drill.run / "evidence").rglob("*") if path.is_file()]
    assert len(every) == len(NODES) * len(MOMENTS)
    assert not any(VALUE in text for text in every)
    assert {path.stat().st_mode & 0o777 for path in (drill.run / "evidence").rglob("*.json")} == {0o600}
    assert max(map(len, every)) < 64 * 1024
    assert not drill.runs()
    assert (drill.run.parent / "evidence.key").stat().st_mode & 0o777 == 0o600
