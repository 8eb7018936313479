"""Complete copies of a data folder with the real node programs. Nodes are simulated by folders and addresses."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from muster.shared_data import copying
from muster.shared_data.copying import CopyRequest
from muster_controller.nodes import distribution
from muster_controller.nodes.messages import Messages
from muster_controller.shared_data import data_copy
from muster_controller.shared_data.data_copy import PROGRAM, DataCopy
from muster_controller.shared_data.data_source import DataListing, SourceError, on_controller
from nodes_here import OWN, Here

if TYPE_CHECKING:
    from collections.abc import Iterator

NODES = ("node1", "node2", "node3")
CONTENTS = {
    **{f"train/{number}.bin": os.urandom(300_000) for number in range(6)},
    "empty": b"",
    "labels with a space ü": b"0 1 2\n",
    "run.sh": b"#!/bin/sh\n",
}
CONTENTS["test/same.bin"] = CONTENTS["train/1.bin"]
TARGET = f"{OWN}/set"


class Lab:
    """A data folder on the controller, and three nodes that are folders of this machine."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(data_copy, "KEPT", f"{OWN}/kept")
        self.folder = folder
        self.source = folder / "source"
        self.calls: list[tuple[str, str]] = []
        self.broken: dict[str, tuple[str, ...]] = {}
        self.said: list[str] = []
        self.opened: list[Messages] = []
        with socket.create_server(("", 0)) as taken:
            self.port: int = taken.getsockname()[1]
        for path, content in CONTENTS.items():
            write(self.source / path, content)
        (self.source / "run.sh").chmod(0o700)
        (self.source / "test/link").symlink_to("../train/1.bin")

    def task(self, node: str = "", source: str = "") -> DataCopy:
        places = {name: f"127.0.2.{at}" for at, name in enumerate(NODES, 1)}
        ways: Any = {name: Here(name, self.calls, self.broken.get(name, ()), str(self.folder / name)) for name in NODES}
        messages = Messages(ways, PROGRAM)
        messages.open()
        self.opened.append(messages)
        asked = CopyRequest(node, source or str(self.source), TARGET)
        return DataCopy(asked, places, self.port, messages, self.said.append)

    def listed(self) -> DataListing:
        return on_controller(str(self.source), self.folder / "remembered", remember=True)

    def copy(self, task: DataCopy | None = None, listed: DataListing | None = None) -> DataCopy:
        task, listed = task or self.task(), listed or self.listed()
        task.look(listed, again=False, remember=True)
        assert task.against(listed) == {}
        task.copy(listed)
        return task

    def path(self, name: str, path: str = "") -> Path:
        return self.folder / name / "set" / path

    def assert_complete(self, name: str) -> None:
        found = {
            str(path.relative_to(self.path(name))): path.read_bytes()
            for path in self.path(name).rglob("*")
            if path.is_file() and not path.is_symlink()
        }
        assert found == CONTENTS
        assert (self.path(name, "test/link")).readlink() == Path("../train/1.bin")
        modes = {oct(self.path(name, path).stat().st_mode & 0o7777) for path in CONTENTS if path != "run.sh"}
        assert modes == {"0o644"}
        assert self.path(name, "run.sh").stat().st_mode & 0o7777 == 0o755


def write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    lab = Lab(tmp_path, monkeypatch)
    yield lab
    for messages in lab.opened:
        messages.close()


def state(folder: Path) -> dict[Path, tuple[int, ...]]:
    """Return the file attributes that change when a file is written, renamed or given to another owner."""
    seen = {path: path.lstat() for path in folder.rglob("*")}
    return {path: (one.st_ino, one.st_mode, one.st_uid, one.st_mtime_ns, one.st_ctime_ns) for path, one in seen.items()}


def sent(lab: Lab) -> list[str]:
    """Return the nodes to which the controller sent files."""
    return [name for name, verb in lab.calls if verb == "put"]


def test_data_is_sent_once_then_copied_between_nodes_and_not_sent_again(lab: Lab) -> None:
    task = lab.copy()
    assert task.failures == {}
    for name in NODES:
        lab.assert_complete(name)
    assert set(sent(lab)) == {"node1"}
    assert {name: [*came] for name, came in task.came.items()}["node1"] == ["the controller"]
    assert "the controller" not in {**task.came["node2"], **task.came["node3"]}
    assert lab.said[-1].startswith(f"{TARGET}: 2.1 MB of 2.1 MB copied to 3 nodes, ")

    lab.calls.clear()
    task = lab.task()
    task.look(lab.listed(), again=True, remember=True)
    assert task.union == []
    assert {verb for _, verb in lab.calls} == {"look"}


def test_completed_parts_are_kept_if_a_later_part_fails(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copying, "PART_BYTES", 700_000)
    listed = lab.listed()
    task = lab.task()
    task.look(listed, again=False, remember=True)
    places = list(copying.parts(listed.sizes, task.union, copying.PART_BYTES))
    assert len(places) > 2
    task._part(listed, places[0])
    first = [listed.files[at].path for at in places[0]]
    assert all(lab.path(name, path).read_bytes() == CONTENTS[path] for name in NODES for path in first)

    lab.calls.clear()
    task = lab.task()
    task.look(listed, again=False, remember=True)
    assert all(lack.missing == {*range(len(listed.files))} - {*places[0]} for lack in task.lacks.values())
    assert lab.copy().failures == {}
    for name in NODES:
        lab.assert_complete(name)


def test_changed_file_is_reported_and_copied_from_another_node(lab: Lab) -> None:
    lab.copy()
    lab.calls.clear()
    corrupt = lab.path("node2", "train/3.bin")
    corrupt.write_bytes(b"9" + CONTENTS["train/3.bin"][1:])
    lab.path("node2", "mine").write_bytes(b"user data")
    lab.path("node3", "empty").unlink()

    task, listed = lab.task(), lab.listed()
    task.look(listed, again=True, remember=True)
    more = task.additional(listed)
    lines = {name: copying.wrong_lines(name, "/set", task.lacks[name], listed.paths, [], more[name]) for name in NODES}
    assert lines == {
        "node1": [],
        "node2": ["node2: /set/train/3.bin was changed", "node2: /set/mine is additional (kept)"],
        "node3": ["node3: /set/empty is missing"],
    }
    task = lab.copy()
    assert sent(lab) == []
    assert set(task.came["node2"]) == {"node1", "node3"} & set(task.came["node2"])
    assert lab.path("node2", "mine").read_bytes() == b"user data"
    lab.path("node2", "mine").unlink()
    for name in NODES:
        lab.assert_complete(name)


def test_copying_from_a_node_leaves_its_folder_unchanged(lab: Lab) -> None:
    own = lab.path("node2")
    own.parent.mkdir()
    lab.source.rename(own)
    before = state(own)
    task = lab.task("node2", TARGET)
    task.asked = CopyRequest("node2", str(own), TARGET)
    listed = task.listed()
    task.asked = CopyRequest("node2", TARGET, TARGET)
    lab.copy(task, listed)
    assert task.failures == {}
    assert sent(lab) == []
    lab.assert_complete("node1")
    lab.assert_complete("node3")
    assert state(own) == before
    assert not [path for path in (lab.folder / "node2/kept").iterdir() if path.name == "store"]


def test_failed_node_is_reported_and_other_nodes_are_complete(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distribution, "CALLS_FOR", 2.0)
    lab.broken["node2"] = ("share",)
    task = lab.copy()
    assert task.failures == {"node2": ["Connection timed out"]}
    lab.assert_complete("node1")
    lab.assert_complete("node3")
    assert not lab.path("node2", "train").exists()


def test_unusable_targets_are_reported_before_copying(lab: Lab) -> None:
    lab.path("node1", "train/1.bin").mkdir(parents=True)
    lab.path("node2", "train").mkdir(parents=True)
    lab.path("node2", "train").chmod(0o777)
    lab.path("node3").mkdir(parents=True)
    lab.path("node3").chmod(0o777)
    task, listed = lab.task(), lab.listed()
    task.look(listed, again=False, remember=False)
    found = task.against(listed)
    place = lab.path("node3")
    fix = "choose one whose parent directory only root can write to"
    why = f"is not safe to use: {place} is writable by all users; {fix}"
    assert found["node3"] == [f"{place} {why}"]
    assert found["node1"] == [f"{lab.path('node1')}/train/1.bin is not a regular file; move it away"]
    why = "cannot be written: its folder is writable for other users"
    assert found["node2"][0] == f"{lab.path('node2')}/train/0.bin {why}; move it away"


def test_special_files_and_links_out_of_the_folder_are_rejected(lab: Lab) -> None:
    os.mkfifo(lab.source / "pipe")
    (lab.source / "passwords").symlink_to("/etc/shadow")
    (lab.source / "up").symlink_to("train/../../..")
    (lab.source / "bell\a").write_bytes(b"")
    with pytest.raises(SourceError) as refused:
        lab.listed()
    why = "only links to targets in the same folder are copied"
    assert sorted(refused.value.problems) == [
        f"{lab.source}: 'bell\\x07': the name contains non-printable characters",
        f"{lab.source}: 'passwords': link to '/etc/shadow'; {why}",
        f"{lab.source}: 'pipe': not a file, link or folder",
        f"{lab.source}: 'up': link to 'train/../../..'; {why}",
    ]
    with pytest.raises(SourceError, match="No such file or directory"):
        on_controller(str(lab.folder / "nowhere"), lab.folder / "remembered", remember=True)
