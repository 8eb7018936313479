"""The trial of a shared folder, as a step takes it: nodes answer as the program on them does."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from acting import Programs
from launch_shapes import LAUNCH_ID
from muster_controller.playbook.node_error import NodeError

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from acting import World

NAMES = ("node1", "node2", "node3")
SILENT = NodeError("no route to host", reachable=False)


class Share:
    """A folder that every node of it sees."""

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


def test_each_node_writes_and_reads_what_another_one_wrote(
    world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    share = Share(world, monkeypatch)
    found = share.run()
    summary = "/data: 3 nodes see within 1 s what each of them wrote, with the right owner"
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
        assert found == {"changed": False, "msg": f"{what}: nothing is written in check mode."}
    found = share.run(paths=[])
    assert (found["failed"], found["msg"]) == (False, "there is no shared folder to try (shared_data_mounts)")


def test_a_node_that_cannot_take_part_is_a_finding(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
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
    assert "node2: /data was not tried there: no route to host" in said
    assert "node3: /data was not tried there: it was not reached" in said
    world.vars["ansible_play_hosts"] = []
    assert world.fails("shared_data_trial", paths=[], megabytes=1).startswith("None of the nodes could be reached. ")
