"""Fetching of result files. The node program runs on folders of this machine."""

from __future__ import annotations

import queue
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from launch_shapes import a_plan
from muster.launch.options import LaunchOptions
from muster.launch.planned import PlannedFetch, PlannedNode
from muster_controller.artifacts.keeping import Keeping
from muster_controller.launch import fetching
from muster_controller.launch.fetching import Fetching, with_patterns
from muster_controller.nodes.messages import Messages, NodeReply
from muster_node.launch import fetching as on_node

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

NODES = ("node1", "node2")
VERBS: dict[str, Callable[[dict[str, Any]], Any]] = {"fetchable": on_node.fetchable, "fetched": on_node.fetched}


class Nodes(Messages):
    """Nodes that answer immediately. twist: a function that changes an answer, or returns None to drop it."""

    def __init__(self, twist: Callable[[str, str, Any], Any] = lambda _node, _verb, data: data) -> None:
        self.answers = queue.Queue()
        self.threads = {}
        self.twist = twist
        self.asked: list[tuple[str, str]] = []

    def ask(self, node: str, verb: str, payload: dict[str, Any], **_how: Any) -> None:
        self.asked.append((node, verb))
        data = self.twist(node, verb, VERBS[verb](payload))
        if isinstance(data, str):
            self.answers.put(NodeReply(node, verb, 0.0, 1.0, None, data))
        elif data is not None:
            self.answers.put(NodeReply(node, verb, 0.0, 1.0, data))


class FetchWorld:
    """A plan with two nodes, whose work folders are on this machine."""

    def __init__(self, tmp_path: Path) -> None:
        self.folder = tmp_path / "kept"
        self.said: list[str] = []
        self.work = {name: tmp_path / name / "work" for name in NODES}
        entries = []
        for name, work in self.work.items():
            (tmp_path / name / "logs").mkdir(parents=True)
            work.mkdir()
            entries.append(PlannedNode(name, 0, [0], 1, "", run_dir=str(tmp_path / name), work_dir=str(work)))
        fetch: PlannedFetch = {"patterns": ["**/*.bin", "log"], "most": 100_000_000, "folder": ""}
        self.plan = replace(a_plan(), nodes=entries, fetch=fetch)

    def fetch(self, nodes: Nodes, give_up: Callable[[], bool] = lambda: False) -> Any:
        keeping = Keeping(self.said.append)
        return Fetching(self.plan, nodes, self.folder, keeping, give_up).fetch(NODES)

    def kept(self) -> dict[str, bytes]:
        top = self.folder / "fetched"
        return {str(path.relative_to(top)): path.read_bytes() for path in top.rglob("*") if path.is_file()}


@pytest.fixture
def world(tmp_path: Path) -> FetchWorld:
    return FetchWorld(tmp_path)


def test_patterns_given_later_replace_those_of_the_start(world: FetchWorld) -> None:
    (world.work["node1"] / "late.pt").write_bytes(b"late")
    (world.work["node1"] / "a.bin").write_bytes(b"a")
    assert with_patterns(world.plan, LaunchOptions()) is world.plan
    world.plan = with_patterns(world.plan, LaunchOptions(fetch=["*.pt"]))
    world.fetch(Nodes())
    assert world.kept() == {"node1/late.pt": b"late"}
    elsewhere: PlannedFetch = {"patterns": [], "most": 0, "folder": "/data/run7"}
    of_a_folder = replace(world.plan, fetch=elsewhere)
    for given, folder in (("", "/data/run7"), ("/data/run8", "/data/run8")):
        later = with_patterns(of_a_folder, LaunchOptions(fetch=["*.pt"], chdir=given))
        assert later.fetch
        assert later.fetch["folder"] == folder


def test_files_are_fetched_in_any_number_of_parts(world: FetchWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "PART_BYTES", 1000)
    content = bytes(range(256)) * 13
    (world.work["node1"] / "a").mkdir()
    (world.work["node1"] / "a/large.bin").write_bytes(content)
    (world.work["node1"] / "empty.bin").touch()
    (world.work["node2"] / "log").write_text("hello")
    (world.work["node2"] / "other").write_text("not asked for")
    fetched = world.fetch(Nodes())
    assert world.kept() == {"node1/a/large.bin": content, "node1/empty.bin": b"", "node2/log": b"hello"}
    assert fetched.came == {"node1": [("a/large.bin", 3328), ("empty.bin", 0)], "node2": [("log", 5)]}
    assert fetched.left == {}
    for path in world.folder.rglob("*"):
        assert path.stat().st_mode & 0o077 == 0, path
    again = world.fetch(Nodes())
    assert world.kept()["node1/a/large.bin"] == content, "the file is replaced, not appended to"
    assert again.came == fetched.came


def test_paths_outside_the_folder_are_rejected(world: FetchWorld) -> None:
    def twist(_node: str, verb: str, data: Any) -> Any:
        if verb == "fetchable":
            data["files"] = [
                {"path": path, "size": 1, "changed": 1} for path in ("../../x.bin", "/tmp/x.bin", "a/../b.bin")
            ]
        return data

    fetched = world.fetch(Nodes(twist))
    assert world.kept() == {}
    assert fetched.came == {}
    assert set(fetched.left["node1"]) == {"../../x.bin", "/tmp/x.bin", "a/../b.bin"}


@pytest.mark.parametrize("change", ["size", "changed", "data", "offset", "missing"])
def test_file_that_differs_from_its_listing_is_skipped(world: FetchWorld, change: str) -> None:
    (world.work["node1"] / "a.bin").write_bytes(b"first")
    (world.work["node1"] / "b.bin").write_bytes(b"second")

    def twist(_node: str, verb: str, data: Any) -> Any:
        for part in data.get("parts", []) if verb == "fetched" else []:
            if part["path"] == "a.bin":
                part.update({"size": {"size": 77}, "changed": {"changed": 7}, "data": {"data": ""}}.get(change, {}))
                part["offset"] = 3 if change == "offset" else 0
        if verb == "fetched" and change == "missing":
            data["parts"] = [part for part in data["parts"] if part["path"] != "a.bin"]
        return data

    fetched = world.fetch(Nodes(twist))
    assert "a.bin" in fetched.left["node1"]
    assert "node1/a.bin" not in world.kept()
    if change not in ("offset", "missing"):
        assert world.kept() == {"node1/b.bin": b"second"}


def test_silent_nodes_do_not_delay_other_nodes(world: FetchWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "SILENCE", 0.1)
    for name in NODES:
        (world.work[name] / "a.bin").write_text(name)
    silent = world.fetch(Nodes(lambda node, verb, data: None if (node, verb) == ("node1", "fetched") else data))
    assert silent.left == {"node1": {"a.bin": "the node stopped responding"}}
    assert world.kept() == {"node2/a.bin": b"node2"}
    failed = world.fetch(Nodes(lambda node, _verb, data: "no route to host" if node == "node2" else data))
    assert failed.left == {"node2": {"": "no route to host"}}
    assert failed.came == {"node1": [("a.bin", 5)]}


def test_interruption_skips_the_remaining_files(world: FetchWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "PART_BYTES", 10)
    (world.work["node1"] / "a.bin").write_bytes(bytes(100))
    asked = [False, False, False, True]
    fetched = world.fetch(Nodes(), lambda: asked.pop(0))
    assert fetched.left == {"node1": {"a.bin": "fetching was interrupted"}}
    assert world.kept() == {}, "partial files are removed"


def test_file_that_cannot_be_written_is_skipped(world: FetchWorld) -> None:
    (world.work["node1"] / "a.bin").write_text("x")
    (world.work["node1"] / "b.bin").write_text("y")
    (world.folder / "fetched/node1/a.bin").mkdir(parents=True)
    fetched = world.fetch(Nodes())
    assert fetched.left == {"node1": {"a.bin": "Is a directory"}}
    assert world.kept() == {"node1/b.bin": b"y"}
    assert world.said[0].endswith("the launch continues (shown once)")
