"""Complete distributions with the real node program. Nodes are simulated by folders and addresses of this machine."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from muster_controller.launch.project import Project, read_project
from muster_controller.nodes import distribution
from muster_controller.nodes.distribution import BODY, PROGRAM, Distribution, DistributionNode, bodies
from muster_controller.nodes.messages import Messages
from nodes_here import Here

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture
def project(tmp_path: Path) -> Project:
    source = tmp_path / "project"
    source.mkdir()
    for name, content in {"a.py": b"1", "b.py": b"2", "empty": b"", "large": os.urandom(BODY * 2 + 5)}.items():
        (source / name).write_bytes(content)
    return read_project(str(source), 100)


@pytest.fixture
def port() -> int:
    with socket.create_server(("", 0)) as taken:
        number: int = taken.getsockname()[1]
        return number


class Cluster:
    """A distribution to several nodes, its messages, and its calls as (node, verb) in order."""

    def __init__(self, folder: Path, port: int, count: int, broken: dict[str, tuple[str, ...]] | None = None) -> None:
        self.calls: list[tuple[str, str]] = []
        self.said: list[str] = []
        self.port = port
        names = [f"node{number}" for number in range(1, count + 1)]
        self.places = {name: DistributionNode(f"127.0.1.{at}", str(folder / name)) for at, name in enumerate(names, 1)}
        connections: Any = {name: Here(name, self.calls, (broken or {}).get(name, ())) for name in names}
        self.messages = Messages(connections, PROGRAM)
        self.messages.open()

    def bring(self, project: Project) -> dict[str, str]:
        task = Distribution(self.places, self.port, self.messages, self.said.append, lambda: False, privileged=True)
        return task.bring(project)

    def objects(self, name: str) -> set[str]:
        return {path.name for path in Path(self.places[name].store, "objects").iterdir()}

    def verbs(self, name: str) -> list[str]:
        found = [verb for node, verb in self.calls if node == name]
        self.calls[:] = [call for call in self.calls if call[0] != name]
        return found


@pytest.fixture
def cluster(tmp_path: Path, port: int) -> Callable[..., Cluster]:
    return lambda count, **broken: Cluster(tmp_path, port, count, broken)


def test_files_are_sent_once_and_then_copied_between_nodes(cluster: Callable[..., Cluster], project: Project) -> None:
    nodes = cluster(6)
    assert nodes.bring(project) == {}
    everything = {file.sha256 for file in project.files}
    assert all(nodes.objects(name) == everything for name in nodes.places)
    assert nodes.verbs("node1") == ["stored", "put", "put", "put", "offer", "share"]
    assert [nodes.verbs(name) for name in list(nodes.places)[1:]] == [["stored", "share"]] * 5
    assert nodes.said[0].startswith("project: 4 files, 8 MB, sent to node1 in ")
    assert nodes.said[1] == "project: 8 MB, copying from node1 to node2, node3, node4 and 2 more"
    assert nodes.said[2].startswith("project: copied from node1 to node2, node3, node4 and 2 more in ")
    assert len(nodes.said) == 3

    Path(project.source, "a.py").write_bytes(b"3")
    changed = read_project(project.source, 100)
    assert nodes.bring(changed) == {}
    assert nodes.said[3].startswith("project: 1 file, 1 bytes, sent to node1 in ")
    assert all(changed.files[0].sha256 in nodes.objects(name) for name in nodes.places)

    nodes.calls.clear()
    assert nodes.bring(changed) == {}
    assert {verb for _, verb in nodes.calls} == {"stored"}


def test_corrupt_object_is_replaced_from_another_node(cluster: Callable[..., Cluster], project: Project) -> None:
    nodes = cluster(3)
    assert nodes.bring(project) == {}
    corrupt = Path(nodes.places["node1"].store, "objects", project.files[0].sha256)
    corrupt.write_bytes(b"9")
    assert nodes.bring(project) == {}
    assert corrupt.read_bytes() == b"1"
    assert nodes.said[-1].startswith("project: copied from node2 to node1 in ")


def test_unreachable_node_does_not_stop_the_distribution(cluster: Callable[..., Cluster], project: Project) -> None:
    nodes = cluster(3, node2=("stored",))
    assert nodes.bring(project) == {"node2": "Connection timed out"}
    assert nodes.bring(project).keys() == {"node2"}


def test_receiver_tries_another_source(
    cluster: Callable[..., Cluster], project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(distribution, "CALLS_FOR", 1.0)
    nodes = cluster(2)
    assert nodes.bring(project) == {}
    more = cluster(3, node1=("share",))
    # node3 asks node1 first, which does not respond, and then node2.
    more.places["node3"] = DistributionNode(more.places["node3"].address, more.places["node3"].store + "b")
    assert more.bring(project) == {"node1": "Connection timed out"}
    assert more.objects("node3") == nodes.objects("node2")


def test_silent_node_in_the_chain_is_skipped(
    cluster: Callable[..., Cluster], project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(distribution, "CALLS_FOR", 2.0)
    nodes = cluster(4, node3=("share",))
    found = nodes.bring(project)
    assert found == {"node3": "Connection timed out"}
    assert nodes.objects("node4") == nodes.objects("node1")


def test_source_with_corrupt_content_sends_nothing(cluster: Callable[..., Cluster], project: Project) -> None:
    """A source verifies its content before it sends anything."""
    nodes = cluster(3, node1=("offer",))
    found = nodes.bring(project)
    assert found["node1"] == "Connection timed out"
    assert not any(nodes.objects(name) for name in ("node2", "node3"))


def test_file_changed_during_sending_is_reported(cluster: Callable[..., Cluster], project: Project) -> None:
    Path(project.source, "b.py").write_bytes(b"4")
    Path(project.source, "large").write_bytes(b"short")
    found = cluster(1).bring(project)
    assert found == {"node1": "b.py was changed while it was read"}


def test_unusable_store_is_reported(cluster: Callable[..., Cluster], project: Project, tmp_path: Path) -> None:
    (tmp_path / "node2").write_text("in the way")
    found = cluster(2).bring(project)
    assert found == {"node2": f"{tmp_path}/node2: contains a part that is a link or not a folder"}


def test_message_bodies_are_limited_in_size(project: Project) -> None:
    sent = list(bodies(project, {file.sha256 for file in project.files}))
    assert [len(body) for _, body in sent] == [BODY, BODY, 7]
    assert sum(size for pieces, _ in sent for _, _, size in pieces) == project.size
