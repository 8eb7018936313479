"""Actions that report on a running cluster: state, launches, drift, notebooks, and reports of runs."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from acting import Programs, World
from launch_shapes import a_plan
from muster.drift import judge
from muster.drift.judge import Drifted, Looked
from muster.drift.model import DriftDifference, Origin, Subject
from muster_controller.drift.drifting import Drifting, DriftReport
from muster_controller.drift.steps_run import StepsOutcome
from muster_controller.launch.elsewhere import packed
from muster_controller.playbook.node_error import NodeError

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

RUN, OLDER = "20260101-120000-abcd", "20251231-120000-abcd"
SILENT = NodeError("no route to host", reachable=False)
READY = {
    "who": {"uid": 0, "name": "root", "launch_user": False, "root": True},
    "kernel": "6.8.0",
    "driver": "",
    "torch": {"version": "2.9.0+cpu", "cuda": None, "why": ""},
    "disk": {"path": "/var", "free": 900_000_000_000, "read_only": False},
    "devices": 0,
    "gpus": [],
    "computing": {},
    "why": "",
    "launches": [],
    "held": {},
    "seats_seen": True,
    "sees_all": True,
}


# ---------------------------------------------------------------- the state


def test_cluster_status_is_shown_and_stored(
    world: World, monkeypatch: pytest.MonkeyPatch, displayed: list[str], tmp_path: Path
) -> None:
    programs = Programs(monkeypatch, look=READY)
    world.registered("node1", "cluster_torchrun", "/opt/x/bin/torchrun")
    (tmp_path / "x").touch()
    found = world.run("cluster_status", json=str(tmp_path / "x/state.json"), wait=0.5)
    assert [node["name"] for node in found["status"]["nodes"]] == ["node1", "node2", "node3"]
    assert found["closing"] | {"text": ""} == {"status": "healthy", "text": "", "aside": False}
    assert sorted((name, asked["environment"]) for name, _, asked in programs.asked) == [
        ("node1", "/opt/x"),
        ("node2", "/opt/muster/pytorch/current"),
        ("node3", "/opt/muster/pytorch/current"),
    ]
    assert json.loads((tmp_path / "artifacts/rack/status.json").read_text()) == found["status"]
    lost, shown = displayed
    assert lost == f"Cannot write the cluster status to {tmp_path}/x/state.json: Not a directory"
    assert "rack" in shown.splitlines()[0]
    displayed.clear()
    aside = world.run("cluster_status", json="-", wait=0.5)
    assert (aside["closing"]["aside"], json.loads(displayed[0])) == (True, aside["status"])


def test_gate_fails_if_a_node_is_not_ready(world: World, monkeypatch: pytest.MonkeyPatch, displayed: list[str]) -> None:
    Programs(monkeypatch, look=lambda name, _: SILENT if name == "node2" else READY)
    found = world.run("cluster_status", wait=0.1)
    assert (found["closing"]["status"], "failed" in found) == ("degraded", False)
    gated = world.run("cluster_status", wait=0.1, gate=True)
    assert (gated["failed"], gated["closing"]["status"]) == (True, "degraded")
    assert gated["msg"] == gated["closing"]["text"] == f"NOT READY: {found['closing']['text']}"
    world.vars["ansible_play_hosts_all"] = ["node1"]
    only = world.run("cluster_status", wait=0.1, gate=True)
    assert [node["name"] for node in only["status"]["nodes"]] == ["node1"]
    world.registered("node2", "cluster_gpus", "many")
    assert world.fails("cluster_status").startswith("node2: cluster_gpus ")
    world.vars["ansible_play_hosts_all"] = []
    assert world.fails("cluster_status") == ("No nodes to check: gpu_nodes is empty, or --limit excludes all nodes.")


# ---------------------------------------------------------------- launches


def running(**more: Any) -> dict[str, Any]:
    one = {"launch_id": RUN, "user": "muster", "manager": "system", "nodes": ["node1"], "state": "running"}
    return {"launches": [{**one, "over": False, "by": "anna@ctl", "lines": {"0": ["step 7"]}, **more}], "now": 0}


def test_launches_are_listed_with_last_output_lines(
    world: World, monkeypatch: pytest.MonkeyPatch, displayed: list[str]
) -> None:
    said = {"node1": running(), "node2": {"launches": []}}
    programs = Programs(monkeypatch, jobs=lambda name, _: said.get(name, SILENT))
    found = world.run("launch_jobs", lines=1)
    assert found["jobs"] == [{"id": RUN, "state": "running", "user": "muster", "own": False, "nodes": ["node1"]}]
    assert found["silent"] == {"node3": "no route to host"}
    assert found["outcome"].startswith("1 running launch on ")
    shown = "\n".join(displayed)
    assert RUN in shown
    assert displayed[-1].strip() == "node3 did not report its launches: no route to host"
    asked = [asked for _, verb, asked in programs.asked if verb == "jobs"]
    assert {(one["ended"], one["lines"]) for one in asked} == {(0, 1)}
    world.run("launch_jobs", history=True, newest=7)
    assert {one["ended"] for _, verb, one in programs.asked[len(asked) * 2 :] if verb == "jobs"} == {7}
    said.clear()
    assert world.fails("launch_jobs").startswith("No node reported its launches. node")
    world.vars["groups"] = {}
    assert world.fails("launch_jobs").startswith("The group gpu_nodes of the inventory is empty: ")


# ---------------------------------------------------------------- drift


SERVICE = DriftDifference("node1", judge.UNIT, "ssh.service is stopped", tag="network")
CONTENT = DriftDifference("node2", judge.CONTENT, "torch was changed", tag="pytorch", subjects=(Subject("part", "x"),))


class Drift:
    """Nodes that report the given differences at each drift check. ran: the steps that were run to repair them."""

    def __init__(self, world: World, patch: pytest.MonkeyPatch, *looks: DriftReport) -> None:
        self.world, self.looks, self.ran = world, list(looks), list[tuple[Any, ...]]()
        self.code = 0

        def run(_: Any, tags: Any, limit: str, **more: Any) -> StepsOutcome:
            assert (more["check"], more["variables"]) == (False, {"installed_parts": ["environment", "named"]})
            self.ran.append((list(tags), limit))
            return StepsOutcome([], self.code, "its disk is full")

        patch.setattr(Drifting, "look", lambda *_: self.looks.pop(0) if len(self.looks) > 1 else self.looks[0])
        patch.setitem(world.action("drift").work.__globals__, "run_steps", run)
        written = {"written": True, "why": ""}
        self.programs = Programs(patch, jobs={"launches": []}, keep=written, condemn={})

    def run(self, **options: Any) -> dict[str, Any]:
        found = self.world.run("drift", **options)
        # Commands are shown for this machine.
        shown = (re.sub(r" -i \S+", "", line) for line in found["drift"]["repairs"])
        found["drift"]["repairs"] = [re.sub(r"\S*ansible-playbook", "ansible-playbook", line) for line in shown]
        return found


def differs(*differences: DriftDifference, **nodes: Looked) -> DriftReport:
    good = {name: Looked("", {}, "", ()) for name in ("node1", "node2", "node3")}
    records: Any = {"node1": {"at": 7, "by": "anna@ctl", "run": RUN}}
    return DriftReport([Drifted(one, Origin()) for one in differences], {**good, **nodes}, records)


def test_drift_is_shown_and_stored(world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    none = Drift(world, monkeypatch, differs()).run()
    assert (none["msg"], none["failed"], none["changed"]) == ("ok   nothing differs", False, False)
    lost = Looked("no route", {}, "it was not looked at", ())
    drift = Drift(world, monkeypatch, differs(SERVICE, node2=lost, node3=Looked("", {}, "it is lost", ())))
    found = drift.run()
    assert (found["failed"], found["verdict"]["status"], found["changed"], drift.ran) == (True, "failed", False, [])
    kept = json.loads((tmp_path / f"artifacts/rack/{RUN}/drift.json").read_text())
    assert kept == found["drift"]
    (one,) = kept["differences"]
    assert (one["node"], one["status"], one["what"], kept["repairs"]) == ("node1", "fail", "ssh.service is stopped", [])
    assert kept["nodes"]["node1"] == {"reached": True, "installed": {"at": 7, "by": "anna@ctl", "run": RUN}}
    assert kept["nodes"]["node2"] == {"reached": False, "installed": {"at": None, "by": None, "run": None}}
    for line in ("ssh.service is stopped", "no route", "it is lost", "playbooks/drift.yml"):
        assert line in found["msg"]
    assert json.loads(drift.run(json=True)["msg"])["differences"] == [one]
    world.vars["groups"] = {}
    assert world.fails("drift").startswith("The group gpu_nodes of the inventory is empty: ")


def test_drift_is_repaired_on_nodes_without_a_running_launch(
    world: World, monkeypatch: pytest.MonkeyPatch, displayed: list[str]
) -> None:
    drift = Drift(world, monkeypatch, differs(SERVICE, CONTENT), differs())
    drift.programs.answers["condemn"] = SILENT
    command = "ansible-playbook site.yml --tags"
    check = drift.run(check=True, repair=True)
    left = [f"{node}: not repaired in check mode; to repair, run {command}" for node in ("node1", "node2")]
    assert [line.partition(" --tags")[0] + " --tags" for line in check["drift"]["repairs"]] == left
    assert (check["changed"], drift.ran, drift.programs.verbs().count("condemn")) == (False, [], 0)
    drift.looks = [differs(SERVICE, CONTENT), differs()]
    found = drift.run(repair=True)
    assert (found["changed"], found["failed"], found["drift"]["differences"]) == (True, False, [])
    assert drift.ran == [(["network"], "node1"), (["pytorch"], "node2")]
    assert "node2: the environments cannot be rebuilt: no route to host" in displayed
    ((name, _, asked),) = [one for one in drift.programs.asked if one[1] == "condemn"]
    assert (name, asked["parts"]) == ("node2", ["x"])
    assert found["drift"]["repairs"][0] == f"node1: repaired with {command} network --limit node1"
    drift.looks, drift.code = [differs(SERVICE), differs(SERVICE)], 2
    found = drift.run(repair=True)
    assert found["drift"]["repairs"] == [
        f"node1: partly repaired (its disk is full) with {command} network --limit node1"
    ]
    # A launch runs on one node, and the other did not respond.
    drift.looks, drift.ran = [differs(SERVICE, CONTENT)], []
    said = {"node1": running(), "node3": {"launches": []}}
    drift.programs.answers["jobs"] = lambda name, _: said.get(name, SILENT)
    assert drift.run(repair=True)["drift"]["repairs"] == [
        f"node1: network waits until {RUN} has finished: ssh.service is stopped",
        "node2: pytorch waits until launches that could not be listed has finished: torch was changed",
    ]
    assert drift.ran == []


def test_current_state_can_be_accepted_as_installed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    drift = Drift(world, monkeypatch, differs(CONTENT, node3=Looked("", {}, "it is lost", ())))
    check = drift.run(check=True, accept=True)
    assert (check["drift"]["repairs"], check["failed"]) == (["the current state would be recorded as installed"], True)
    said = {"node1": {"written": False}, "node2": {"written": True}}
    drift.programs.answers["keep"] = lambda name, _: said.get(name, SILENT)
    found = drift.run(accept=True)
    assert (found["failed"], found["drift"]["differences"]) == (False, [])
    assert found["drift"]["repairs"] == [
        "node1: the current state is already recorded",
        "node2: the current state was recorded as installed",
        "node3: the current state could not be recorded: no route to host",
    ]
    asked = {name: one for name, verb, one in drift.programs.asked if verb == "keep"}
    assert (asked["node1"]["run"], asked["node1"]["parts"], bool(asked["node1"]["by"])) == (RUN, [], True)


def test_installed_state_is_recorded(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    said = {"node1": {"written": True}, "node2": {"written": False}}
    programs = Programs(monkeypatch, keep=lambda name, _: said.get(name, SILENT))
    assert world.run("installed_record", check=True) == {"changed": False, "written": []}
    for name in ("node1", "node2", "node3"):
        world.registered(name, "cluster_mode", "verify")
    assert world.run("installed_record") == {"changed": False, "written": []}
    world.registered("node2", "pytorch_mode", "manage")
    late = "drift cannot report later changes"
    found = world.run("installed_record", parts=["environment"])
    assert (found["written"], found["warnings"]) == (
        ["node1"],
        [f"node3: the installed state was not recorded, so {late}: no route to host"],
    )
    assert {(asked["run"], *asked["parts"]) for _, _, asked in programs.asked} == {(RUN, "environment")}
    programs.answers["keep"] = {"written": False}
    assert world.run("installed_record") == {"changed": False, "written": []}


# ---------------------------------------------------------------- reports and diagnoses


def kept_run(tmp_path: Path, run: str, **files: Any) -> Path:
    folder = tmp_path / "artifacts/rack" / run
    folder.mkdir(parents=True)
    for name, content in {"run": {"id": run, "playbook": "site.yml"}, **files}.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    return folder


def test_report_of_a_run_can_be_written_again(world: World, tmp_path: Path) -> None:
    folders = [kept_run(tmp_path, run) for run in (RUN, OLDER)]
    found = world.run("report_page")
    assert found["page"] == str(folders[0] / "report.html")
    assert found["outcome"].startswith(f"the report of {RUN} was rewritten: ")
    assert world.run("report_page", run=OLDER)["page"] == str(folders[1] / "report.html")
    assert "<html" in (folders[1] / "report.html").read_text()
    none = "20250101-000000-0000"
    known = f"This cluster has no run {none}. The newest runs are "
    assert world.fails("report_page", run=none) == f"{known}{RUN}, {OLDER}."
    world.registered("node1", "cluster_name", "other")
    assert world.fails("report_page", run=none) == f"{known}none."


def test_launch_output_can_be_followed(world: World, monkeypatch: pytest.MonkeyPatch, displayed: list[str]) -> None:
    plan = a_plan(1)
    kept = {"plan": packed(plan), "run_dir": plan.head.run_dir, "user": "", "reader": None}
    log = {"begin": 0, "gap": 0, "offset": 7, "text": "step 7\n", "more": False}
    programs = Programs(
        monkeypatch,
        plan=lambda name, _: kept if name == "node1" else {"plan": None},
        follow={"logs": {"0/stdout": log}, "over": True, "offsets": {}},
    )
    launch = plan.launch_id
    assert world.run("launch_jobs", logs=launch) == {
        "changed": False,
        "over": True,
        "outcome": f"{launch} has finished",
    }
    assert any("[rank 0] step 7" in line for line in displayed)
    displayed.clear()
    none = world.run("launch_jobs", logs=launch, rank=5)
    assert (none["over"], none["outcome"]) == (False, f"{launch} is still running")
    programs.answers["plan"] = {"plan": None}
    assert world.fails("launch_jobs", logs=launch).startswith(
        f"Launch {launch} is not known on this controller or on node1, node2"
    )


def notebook(**more: Any) -> dict[str, Any]:
    return {"user": "anna", "running": True, "answers": True, "at_boot": False, **more} | {
        "socket": "/run/user/1/muster-notebook/socket"
    }


def test_started_notebook_shows_ssh_command(
    world: World, monkeypatch: pytest.MonkeyPatch, displayed: list[str]
) -> None:
    off = notebook(running=False, answers=False)
    programs = Programs(monkeypatch, look=off, start=notebook(), stop=off)
    options: dict[str, Any] = {"nodes": ["node2", "node1"], "user": "anna", "state": "started"}
    check = world.run("notebook", check=True, **options)
    assert (check["changed"], check["outcome"]) == (True, "the notebook of anna on node2 would be started")
    assert programs.verbs() == ["look"]
    found = world.run("notebook", **options)
    assert (found["changed"], "answers" in found["notebook"], "ssh" in found) == (True, False, False)
    assert programs.asked[-1] == (
        "node2",
        "start",
        {"user": "anna", "users_root": "/var/lib/muster/users", "at_boot": False},
    )
    assert displayed[-1] == "It listens on /run/user/1/muster-notebook/socket."
    world.registered("node1", "ansible_connection", "ssh")
    world.registered("node1", "ansible_host", "10.0.0.1")
    world.registered("node1", "ansible_port", 2222)
    world.registered("node1", "ansible_ssh_common_args", "-J gate")
    world.registered("node1", "ansible_ssh_private_key_file", "/home/anna/key")
    programs.answers["look"] = notebook()
    found = world.run("notebook", **{**options, "on_node": "node1", "port": 9000})
    socket = "9000:/run/user/1/muster-notebook/socket"
    assert (found["changed"], found["ssh"]) == (False, f"ssh -N -L {socket} -J gate -p 2222 -- anna@10.0.0.1")
    own = world.run("notebook", nodes=["node1"], state="looked_at")
    assert "-p 2222 -i /home/anna/key -- anna@10.0.0.1" in own["ssh"]
    assert programs.asked[-1][2]["as_root"] is False
    assert world.run("notebook", **{**options, "state": "stopped"})["changed"] is True


def test_impossible_notebook_is_rejected(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    programs = Programs(monkeypatch, look={"error": "anna is no launch user"})
    assert world.fails("notebook", nodes=["node9"]) == "node9 is in workbench_nodes but not in gpu_nodes."
    assert world.fails("notebook", nodes=["node1"], user="anna").startswith("node1 reports: ")
    programs.answers["look"] = notebook(user="root")
    assert world.fails("notebook", nodes=["node1"], user="anna").startswith("node1 returned the user ")


def test_nothing_to_diagnose_is_reported(
    world: World, monkeypatch: pytest.MonkeyPatch, displayed: list[str], tmp_path: Path
) -> None:
    nothing: dict[str, Any] = {"agents": [], "unseen": {}}
    Programs(monkeypatch, agents=lambda name, _: nothing if name == "node1" else SILENT)
    live = world.run("diagnose", live=True)
    assert live["said"].startswith("Nothing to diagnose: no torchrun is running on the nodes that responded.")
    assert "node2 was not checked: no route to host." in live["said"]
    assert displayed[-1] == f"  {live['said']}"
    none = world.run("diagnose")
    assert none["outcome"] == "No launch was started from this controller: set a launch ID with -e launch=ID"
    kept_run(tmp_path, OLDER, verdict={"status": "healthy", "summary": "all is well"}, plan=a_plan(1).as_json())
    well = f"Nothing to diagnose: launch {OLDER} succeeded (all is well)"
    assert world.run("diagnose", launch=OLDER)["outcome"] == world.run("diagnose")["outcome"] == well
    world.vars["groups"] = {}
    assert world.fails("diagnose").startswith("The group gpu_nodes of the inventory is empty: ")


def test_foreign_logs_are_diagnosed_without_contacting_nodes(
    world: World, monkeypatch: pytest.MonkeyPatch, displayed: list[str], tmp_path: Path
) -> None:
    programs = Programs(monkeypatch)
    log = tmp_path / "slurm-1.out"
    log.write_text(
        '[rank0]: Traceback (most recent call last):\n[rank0]:   File "/x/train.py", line 7, in <module>\n'
        "[rank0]:     main()\n[rank0]: ValueError: no data\n"
    )
    found = world.run("diagnose", log=str(log))
    assert (found["artifacts"], programs.asked) == (str(tmp_path / f"artifacts/rack/{RUN}"), [])
    assert [f"  {line}" for line in found["diagnosis"]["lines"]] == displayed
    assert "no data" in "\n".join(displayed)
    assert (tmp_path / f"artifacts/rack/{RUN}/diagnosis.json").is_file()
