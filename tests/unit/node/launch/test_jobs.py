"""The list of a node's launches, from test folders and from processes of this machine."""

from __future__ import annotations

import json
import os
import pwd
import time
from typing import TYPE_CHECKING, Any

import pytest

from launch_shapes import a_plan
from muster_node.launch import jobs, kept, state
from muster_node.tools import process
from muster_node.tools.run import run

if TYPE_CHECKING:
    from pathlib import Path

IDS = [f"20260101-12000{number}-abcd" for number in range(4)]
PLAN = a_plan(what="train.py", begun={"by": "ada@laptop", "at": 5.0}).as_json()
PLAN["nodes"] = [{**entry, "seats": [f"gpu-{number}"]} for number, entry in enumerate(PLAN["nodes"])]

RANK = {"rank": 0, "local_rank": 0, "pid": 7, "started": 70, "gone_at": 1.5}


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.setattr(state, "STATE_ROOT", str(tmp_path / "state"))
    monkeypatch.setattr(process, "in_launches", dict)
    monkeypatch.setattr(jobs, "gpu_facts", lambda: {"0": {"busy": 1}})
    (tmp_path / "state").mkdir()
    (tmp_path / "runs").mkdir()
    roots = {"run_root": str(tmp_path / "runs"), "users_root": str(tmp_path / "users")}
    return {**roots, "node": "node2", "ended": 2, "lines": 2}


def make(tmp_path: Path, launch_id: str, plan: dict[str, Any] = PLAN) -> Path:
    run = tmp_path / "runs" / launch_id
    (run / "logs/torchrun/job/attempt_0/0").mkdir(parents=True)
    (run / "logs/agent.log").write_text("agent\n")
    log = run / "logs/torchrun/job/attempt_0/0/stdout.log"
    log.write_text("step 1\nstep 2\r\n\nstep 3")
    os.utime(log, (time.time() + 5, time.time() + 5))
    (run / "plan.json").write_text(json.dumps(plan))
    return run


def test_requested_number_of_finished_launches_is_listed(tmp_path: Path, asked: dict[str, Any]) -> None:
    for launch_id in IDS:
        make(tmp_path, launch_id)
    end = {"result": {"reason": "exit", "code": 0, "ended_at": 6.0}, "why": "finished: all ranks ended", "at": 7.0}
    (tmp_path / "runs" / IDS[3] / "ended.json").write_text(json.dumps(end))
    found = jobs.jobs(asked)
    assert [one["launch_id"] for one in found["launches"]] == [IDS[3], IDS[2]]
    newest = found["launches"][0]
    me = pwd.getpwuid(os.getuid()).pw_name
    assert (newest["user"], newest["manager"], newest["over"], newest["state"]) == (me, "system", True, "ended")
    assert (newest["result"]["code"], newest["why"], newest["ended_at"]) == (0, "finished: all ranks ended", 7.0)
    assert (newest["nodes"], newest["seats"], newest["by"]) == (["node1", "node2"], ["gpu-1"], "ada@laptop")
    assert (newest["log"], newest["lines"]) == ("0/stdout", ["step 2", "step 3"])
    assert found["launches"][1]["state"] == "gone"
    assert found["gpus"] == {}, "no running launch uses GPUs"
    assert jobs.jobs({**asked, "ended": 0})["launches"] == []


@pytest.mark.parametrize(
    ("table", "word", "said"),
    [
        ({"ranks": []}, state.TAKE, "waiting"),
        ({"ranks": []}, state.BEGIN, "starting"),
        ({"ranks": [{"rank": 0, "local_rank": 0, "pid": 7, "started": 1, "gone_at": None}]}, state.BEGIN, "running"),
        ({"ending": {"reason": "asked", "until": 5.0, "seconds": 30.0}}, "end", "ending"),
    ],
)
def test_running_launch_is_listed_with_its_state(
    tmp_path: Path, asked: dict[str, Any], monkeypatch: pytest.MonkeyPatch, table: dict[str, Any], word: str, said: str
) -> None:
    make(tmp_path, IDS[0])
    (tmp_path / "state" / IDS[0] / "unit").mkdir(parents=True)
    (tmp_path / "state" / IDS[0] / "unit/ranks.json").write_text(json.dumps(table))
    (tmp_path / "state" / IDS[0] / "lease").write_bytes(state.new_lease(60.0, word))
    monkeypatch.setattr(process, "in_launches", lambda: {(None, IDS[0]): [os.getpid()]})
    found = jobs.jobs(asked)
    assert [(one["state"], one["over"], one["detached"]) for one in found["launches"]] == [(said, False, False)]
    assert found["launches"][0]["seconds"] == pytest.approx(process.age(os.getpid()), abs=5)
    assert found["gpus"] == {"0": {"busy": 1}}


def test_other_users_launches_are_listed_without_details(
    tmp_path: Path, asked: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    make(tmp_path, IDS[0])
    monkeypatch.setattr(process, "in_launches", lambda: {(None, IDS[0]): [os.getpid()]})
    monkeypatch.setattr(os, "geteuid", lambda: 4242)
    found = jobs.jobs(asked)["launches"]
    assert [(one["state"], one["hidden"]) for one in found] == [("running", True)]


def test_user_launches_are_listed(tmp_path: Path, asked: dict[str, Any]) -> None:
    me = pwd.getpwuid(os.getuid())
    run = make(tmp_path, IDS[0])
    (tmp_path / "users" / me.pw_name).mkdir(parents=True)
    (tmp_path / "users" / "nobody-of-this-name").mkdir()
    run.parent.rename(tmp_path / "users" / me.pw_name / "launches")
    found = jobs.jobs(asked)["launches"]
    assert [(one["manager"], one["user"], one["what"]) for one in found] == [("user", me.pw_name, "train.py")]
    kept_there = jobs.plan({**asked, "launch_id": IDS[0]})
    assert (kept_there["manager"], kept_there["user"]) == ("user", me.pw_name)
    assert json.loads(kept.unpacked(kept_there["plan"])) == PLAN
    assert jobs.plan({**asked, "launch_id": IDS[1]})["plan"] == ""


@pytest.mark.parametrize("text", ["", "[]", "{", '{"nodes": 7}', '{"nodes": [7, {}], "begun": 7, "what": [1]}'])
def test_invalid_plan_of_a_user_is_ignored(tmp_path: Path, asked: dict[str, Any], text: str) -> None:
    (make(tmp_path, IDS[0]) / "plan.json").write_text(text)
    found = jobs.jobs(asked)["launches"]
    assert [(one["launch_id"], one["seats"]) for one in found] == [(IDS[0], [])]


def test_outcome_is_recorded_once(tmp_path: Path, asked: dict[str, Any]) -> None:
    run = make(tmp_path, IDS[0])
    request = {"launch_id": IDS[0], "run_dir": str(run), "why": "failed: the launch ended on node2"}
    last = {"result": {"reason": "exit", "code": 1, "ended_at": 2.0}, "ranks": [{**RANK, "state": "R"}]}
    kept.keep_end(request, last)
    kept.keep_end({**request, "why": "interrupted: later"}, {"result": None, "ranks": []})
    end = kept.read_end(str(run)) or {}
    assert (end["why"], end["result"]) == (
        "failed: the launch ended on node2",
        {"reason": "exit", "code": 1, "ended_at": 2.0},
    )
    assert end["ranks"] == [RANK]
    found = jobs.jobs(asked)["launches"][0]
    assert (found["state"], found["failed"]["ranks"]) == ("ended", [RANK])


@pytest.mark.skipif(os.getuid() != 0, reason="only root can change owners")
def test_folder_with_the_same_name_does_not_hide_a_launch(
    tmp_path: Path, asked: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    there = []
    for name in ("", "bin", "daemon"):
        run = make(tmp_path, f"{name or 'root'}/{IDS[0]}")
        user = pwd.getpwnam(name) if name else None
        there.append(jobs.Root(str(run.parent), str(tmp_path / "state"), user))
        for path in (run, run / "plan.json"):
            os.chown(path, user.pw_uid if user else 0, -1)
    for kept_by, running, whose in ((there[1:], "daemon", "daemon"), (there[1:], "", "bin"), (there, "daemon", "")):
        units = {(pwd.getpwnam(running).pw_uid, IDS[0]): [7]} if running else {}
        monkeypatch.setattr(jobs, "roots", lambda _request, found=kept_by: found)
        monkeypatch.setattr(process, "in_launches", lambda found=units: found)
        assert jobs.plan({**asked, "launch_id": IDS[0]})["user"] == whose


def test_last_output_of_a_failed_launch_is_returned(tmp_path: Path, asked: dict[str, Any]) -> None:
    """The output of every rank is returned up to a size limit. No output is returned for successful launches."""
    run = make(tmp_path, IDS[0])
    folder = run / "logs/torchrun/job/attempt_0"
    (folder / "0/stderr.log").write_text("x" * 100_000 + "\nKeyError: 'a'\n")
    (folder / "1").mkdir()
    (folder / "1/stderr.log").write_text("bye\n")
    (folder / "0/error.json").write_text('{"message": "short"}')
    (folder / "1/error.json").write_text(json.dumps({"message": "long" * 10_000}))
    failed = jobs.jobs(asked)["launches"][0]["failed"]
    assert failed["agent"] == "agent\n"
    assert failed["stderr"]["0"].endswith("x\nKeyError: 'a'\n")
    assert len(failed["stderr"]["0"]) == jobs.RANK
    assert failed["stderr"]["1"] == "bye\n"
    assert failed["errors"] == {"0": {"message": "short"}}
    end = {"result": {"reason": "exit", "code": 0, "ended_at": 6.0}, "why": "", "at": 7.0}
    (run / "ended.json").write_text(json.dumps(end))
    assert jobs.jobs(asked)["launches"][0]["failed"] is None


def test_output_in_the_list_is_limited(tmp_path: Path, asked: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    for launch_id in IDS:
        make(tmp_path, launch_id)
    one = json.dumps(jobs.jobs(asked)["launches"][0]["failed"])
    monkeypatch.setattr(jobs, "MOST_WORDS", 3 * len(one))
    found = jobs.jobs({**asked, "ended": 4})["launches"]
    assert [bool(one["failed"]) for one in found] == [True, True, True, False]


def test_following_output_starts_near_its_end(tmp_path: Path, asked: dict[str, Any]) -> None:
    run = make(tmp_path, IDS[0])
    request = {"launch_id": IDS[0], "run_dir": str(run), "offsets": {}, "tail": 6, "limit": 1000, "wait": 0.0}
    first = jobs.follow(request)
    assert {key: part["text"] for key, part in first["logs"].items()} == {"agent": "agent\n", "0/stdout": "step 3"}
    assert first["over"] is True
    known = {**first["offsets"], **{key: part["offset"] for key, part in first["logs"].items()}}
    assert jobs.follow({**request, "offsets": known})["logs"] == {}


def test_gpu_facts_are_read_from_nvidia_smi(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    smi = tmp_path / "nvidia-smi"
    smi.write_text("#!/bin/sh\necho '0, 97, 61234, 143771'\necho '1, [N/A], 5, 143771'\n")
    smi.chmod(0o755)
    monkeypatch.setattr(jobs, "run", lambda _program, *words, **more: run(str(smi), *words, **more))
    assert jobs.gpu_facts() == {
        "0": {"busy": 97, "used": 61234, "total": 143771},
        "1": {"busy": None, "used": 5, "total": 143771},
    }
    smi.write_text("#!/bin/sh\necho 'no driver' >&2\nexit 9\n")
    assert "no driver" in jobs.gpu_facts()["why"]
