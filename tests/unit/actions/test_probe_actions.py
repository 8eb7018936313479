"""Actions that test RDMA and shared folders between nodes. Simulated nodes answer as the real node programs do."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from acting import Programs
from cases import document_of
from launch_shapes import LAUNCH_ID
from muster.rails import plan as rails_plan
from muster_controller.playbook.node_error import NodeError
from paths import ROOT

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from acting import World

NAMES = ("node1", "node2", "node3")
SILENT = NodeError("no route to host", reachable=False)


PRINTED = document_of(ROOT / "tests/unit/rails/recorded/outputs.yml")
STEPS = ("pingpong", "bandwidth", "latency")
GOOD = [{"text": PRINTED[name], "aside": "", "why": "", "missing": False} for name in STEPS]


class Rails:
    """Nodes with two InfiniBand adapters each, except node3. lacks: nodes without a listener, by rail and step."""

    def __init__(self, world: World, patch: pytest.MonkeyPatch, **answers: Any) -> None:
        self.world, self.lacks = world, dict[tuple[int, int], str]()
        patch.setattr(rails_plan, "why_not", lambda facts, _: "" if facts["rdma"]["ports"] else "it has no adapter")
        patch.setattr(rails_plan, "active_ports", lambda facts: facts["rdma"]["ports"])
        port = {"layer": "InfiniBand", "rate": 100.0, "gids": {}}
        for name in NAMES:
            ports = [{**port, "name": f"mlx5_{at}:1"} for at in range(0 if name == "node3" else 2)]
            world.registered(name, "look", {"facts": {"rdma": {"ports": ports, "settings": {}}}})
        rails = {"call": lambda _, asked: {"rails": [GOOD[: len(rail)] for rail in asked["rails"]]}, "end": {}}
        self.programs = Programs(patch, **{"serve": self.serve, **rails, **answers})

    def serve(self, _: str, asked: dict[str, Any]) -> dict[str, Any]:
        def end(rail: int, step: int) -> dict[str, Any]:
            why = self.lacks.get((rail, step), "")
            port = asked["ports"][0] + 10 * rail + step
            return {"port": port, "pid": 0 if why else step + 1, "why": why, "missing": why.endswith("not there")}

        return {"rails": [[end(rail, step) for step in range(3)] for rail in range(len(asked["rails"]))]}

    def run(self, **options: Any) -> dict[str, Any]:
        self.programs.asked.clear()
        plan = {**self.world.run("health_plan"), "launch_ports": "29400-29599"}
        return self.world.run("rdma_rails", **{"plan": plan, "looks": "look", "tried": True, "user": "ada", **options})


def test_adapters_on_the_same_rail_are_tested_against_each_other(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    rails = Rails(world, monkeypatch)
    found = rails.run()
    assert [(one["from"], one["to"], one["gbps"] is None) for one in found["rails"]] == [
        (f"node1 mlx5_{at}:1", f"node2 mlx5_{at}:1", False) for at in (0, 1)
    ]
    serve, call = rails.programs.of("serve")["node2"], rails.programs.of("call")["node1"]
    assert (serve["user"], serve["ports"], serve["seconds"], call["seconds"]) == (
        "ada",
        [29400, 29599, 29500],
        46.0,
        12.0,
    )
    assert [words[0] for words in serve["rails"][0]] == ["ibv_rc_pingpong", "ib_write_bw", "ib_write_lat"]
    assert (call["rails"][1][0][-3:], rails.programs.verbs()) == (["-p", "29410", "10.0.0.2"], ["serve", "call"])
    why = {"id": "rdma.rail", "why": "it has no adapter", "node": "node3"}
    assert why in found["verdict"]["coverage"]["skipped"]
    # Steps without a listener are not called, and listeners that were not called are ended.
    rails.lacks = {(0, 1): "ib_write_bw is not there", (1, 0): "the port is taken"}
    found = rails.run()
    assert [len(rail) for rail in rails.programs.of("call")["node1"]["rails"]] == [1, 0]
    assert [end["pid"] for end in rails.programs.of("end")["node2"]["ends"]] == [3, 2, 3]
    assert "the port is taken" in json.dumps(found["rails"])
    assert "ib_write_bw is missing on at least one of node1, node2" in json.dumps(found["verdict"])
    rails = Rails(world, monkeypatch, serve=SILENT)
    (silent,) = rails.run()["findings"]
    assert silent["summary"] == "RDMA adapters could not be tested: no route to host"
    assert (silent["node"], rails.programs.verbs()) == ("node2", ["serve"])
    assert "disabled (health_rails)" in json.dumps(rails.run(tried=False))
    assert "not tested in check mode" in json.dumps(rails.run(check=True))
    assert rails.programs.asked == []
    world.vars["ansible_play_hosts"] = ["node1", "node3"]
    assert "fewer than two nodes have RDMA adapters that a launch would use" in json.dumps(rails.run())
    assert rails.programs.asked == []


# ---------------------------------------------------------------- a shared folder


class Share:
    """A shared folder that is visible on all of its nodes."""

    def __init__(self, world: World, patch: pytest.MonkeyPatch, **answers: Any) -> None:
        self.world = world
        self.fine = {"took": 2.0, "uid": 1500, "bytes": 1, "error": "", "kind": ""}
        usual = {"write": self.fine, "see": self.see, "read": {**self.fine, "took": 1.0}, "remove": {}}
        self.programs = Programs(patch, **{**usual, **answers})

    @staticmethod
    def see(_: str, asked: dict[str, Any]) -> dict[str, Any]:
        return {"seen": {name: {"after": 0.02, "uid": 1500, "right": True} for name in asked["names"]}, "error": ""}

    def run(self, **options: Any) -> dict[str, Any]:
        self.programs.asked.clear()
        return self.world.run("shared_data_trial", **{"paths": ["/data"], "megabytes": 100, **options})


def test_each_node_writes_a_file_and_reads_another(
    world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    share = Share(world, monkeypatch)
    found = share.run()
    summary = "/data: each of 3 nodes sees the other nodes' files within 1 s, with the right owner"
    assert (found["failed"], found["verdict"]["summary"], found["msg"].splitlines()[-1]) == (False, summary, summary)
    assert found["msg"].splitlines()[2].split() == ["node1", "52.4", "104.9", "0.02"]
    write, see, read, remove = (share.programs.of(verb) for verb in ("write", "see", "read", "remove"))
    files = {name: asked["name"] for name, asked in write.items()}
    common = {"user": "muster", "folder": "/data", "seconds": 80.0, "word": write["node1"]["word"]}
    assert files == {name: f".muster-{common['word']}-{at}" for at, name in enumerate(NAMES)}
    assert write["node2"] == {**common, "name": files["node2"], "megabytes": 100}
    assert (see["node1"]["names"], see["node1"]["wait"]) == ([files["node2"], files["node3"]], 5.0)
    assert [read[name]["name"] for name in NAMES] == [files[name] for name in ("node3", "node1", "node2")]
    assert {name: asked["name"] for name, asked in remove.items()} == files
    kept = json.loads((tmp_path / f"artifacts/rack/{LAUNCH_ID}/shared_data.json").read_text())
    assert (kept["folders"][0]["path"], kept["folders"][0]["megabytes"], kept) == ("/data", 100, found["shared_data"])
    for check, what in ((["/data", "/models"], "/data, /models"), ([], "No folder")):
        found = world.run("shared_data_trial", check=True, paths=check, megabytes=1)
        assert found == {"changed": False, "msg": f"{what}: not tested in check mode."}
    found = share.run(paths=[])
    assert (found["failed"], found["msg"]) == (False, "no shared folders to test (shared_data_mounts)")


def test_node_that_does_not_see_the_shared_folder_is_reported(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    share = Share(world, monkeypatch)
    closed = {"error": "it is read-only", "kind": "EROFS", "uid": 1500}
    share.programs.answers["write"] = lambda name, _: closed if name == "node3" else share.fine
    found = share.run()
    line = "node3: the training user cannot write to /data: it is read-only, while node1, node2 can"
    assert (found["failed"], any(one.startswith(line) for one in found["msg"].splitlines())) == (True, True)
    assert (len(share.programs.of("see")["node3"]["names"]), list(share.programs.of("read"))) == (2, ["node1", "node2"])
    share.programs.answers |= {"write": share.fine, "see": {"error": "it does not answer", "kind": ""}}
    assert (share.run()["failed"], share.programs.of("read"), len(share.programs.of("remove"))) == (True, {}, 3)
    world.vars["ansible_play_hosts"] = ["node1", "node2"]
    share.programs.answers["write"] = lambda name, _: SILENT if name == "node2" else share.fine
    said = share.run()["msg"]
    assert (share.programs.of("see"), list(share.programs.of("remove"))) == ({}, ["node1"])
    assert "node2: /data was not tested: no route to host" in said
    assert "node3: /data was not tested: not reachable" in said
    world.vars["ansible_play_hosts"] = []
    assert world.fails("shared_data_trial", paths=[], megabytes=1).startswith("No node is reachable. ")
