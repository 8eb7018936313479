"""The container image of a launch: reading an archive on the controller, and distributing the image to the nodes."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from launch_shapes import a_plan
from muster.launch.manager import Whose
from muster.launch.options import LaunchOptions
from muster.launch.plan import PlanError
from muster.launch.preflight import Prepared
from muster_controller.launch.image import Image, Imaging, read_archive, read_image
from muster_controller.nodes.messages import NodeReply

if TYPE_CHECKING:
    from pathlib import Path

CONFIG = json.dumps({"architecture": "amd64", "rootfs": {"type": "layers", "diff_ids": []}}).encode()
ID = hashlib.sha256(CONFIG).hexdigest()


def archive(path: Path, files: dict[str, Any]) -> str:
    with tarfile.open(path, "w") as tar:
        for name, content in files.items():
            data = content if isinstance(content, bytes) else json.dumps(content).encode()
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return str(path)


def test_docker_archive_is_read(tmp_path: Path) -> None:
    named = {f"{ID}.json": CONFIG, "manifest.json": [{"Config": f"{ID}.json", "Layers": []}]}
    found = read_archive(archive(tmp_path / "docker.tar", named))
    assert found.id == ID
    (file,) = found.files
    assert file.size == (tmp_path / "docker.tar").stat().st_size
    assert file.sha256 == hashlib.sha256((tmp_path / "docker.tar").read_bytes()).hexdigest()
    assert found.read(file, 3, 40) == (tmp_path / "docker.tar").read_bytes()[3:43]


def test_oci_archive_is_read(tmp_path: Path) -> None:
    manifest = json.dumps({"config": {"digest": f"sha256:{ID}"}, "layers": []}).encode()
    digest = hashlib.sha256(manifest).hexdigest()
    files = {
        "index.json": {"manifests": [{"digest": f"sha256:{digest}"}]},
        f"blobs/sha256/{digest}": manifest,
        f"blobs/sha256/{ID}": CONFIG,
    }
    assert read_archive(archive(tmp_path / "oci.tar", files)).id == ID


@pytest.mark.parametrize(
    "files",
    [
        {"train.py": b""},
        {"manifest.json": []},
        {"manifest.json": [{"Config": "a"}, {"Config": "b"}], "a": b"", "b": b""},
        {"manifest.json": [{"Config": "gone"}]},
        {"manifest.json": b"no JSON"},
        {"index.json": {"manifests": [{"digest": "sha256:gone"}]}},
    ],
)
def test_archive_without_exactly_one_image_is_rejected(files: dict[str, Any], tmp_path: Path) -> None:
    path = archive(tmp_path / "x.tar", files)
    with pytest.raises(PlanError, match=rf"launch_image {path} is not an archive of one image"):
        read_archive(path)


def test_file_that_is_not_an_archive_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "x.tar").write_bytes(b"\x1f\x8b" + bytes(1000))
    with pytest.raises(PlanError, match="is not an archive written by podman save"):
        read_archive(str(tmp_path / "x.tar"))
    with pytest.raises(PlanError, match=r"gone\.tar: No such file or directory\."):
        read_archive(str(tmp_path / "gone.tar"))


def test_image_options_are_read(tmp_path: Path) -> None:
    assert read_image(LaunchOptions()) is None
    name = f"registry.lab/train@sha256:{'1' * 64}"
    found = read_image(LaunchOptions(image=name, image_folders=["/data"], chdir="/data/run", data=["/sets"]))
    assert found is not None
    assert found.wanted == name
    assert found.in_plan == {"source": name, "id": "", "folders": ["/data", "/sets"]}
    with pytest.raises(PlanError, match="has no digest"):
        read_image(LaunchOptions(image="train:1"))
    with pytest.raises(PlanError, match="Cannot mount /a,b in the container: the path "):
        read_image(LaunchOptions(image=name, chdir="/a,b"))


class Nodes:
    """Stub of the nodes. answers: by verb and node."""

    def __init__(self, answers: dict[str, dict[str, Any]]) -> None:
        self.answers = answers
        self.asked: list[tuple[str, str]] = []

    def ask(self, node: str, verb: str, _payload: dict[str, Any], *, privileged: bool, program: Any) -> None:
        assert privileged
        assert program.name == "image"
        self.asked.append((node, verb))

    def gather(self, verb: str, nodes: Any, _timeout: float, *_more: Any) -> dict[str, NodeReply]:
        found = {node: self.answers[verb].get(node) for node in nodes}
        return {node: NodeReply(node, verb, 0.0, 0.0, data) for node, data in found.items() if data is not None}


IMAGE = Image(f"registry.lab/train@sha256:{'1' * 64}", None, ())
ENGINE = {"podman": "4.9.3", "why": "", "crun": True, "gpus": False, "folders": {}, "removed": []}
VERSIONS = {"text": '{"python": [3, 12, 3], "torch": "2.13.0", "nccl": ""}', "error": "", "unsafe": ""}


def prepare(answers: dict[str, dict[str, Any]], *, own: str = "") -> tuple[Prepared, list[tuple[str, str]], list[str]]:
    """Prepare a launch whose image two nodes need. Return (prepared launch, requests, messages). own: launch user."""
    messages: Any = Nodes({"versions": dict.fromkeys(("node1", "node2"), VERSIONS), **answers})
    interruption: Any = SimpleNamespace(came=False)
    said: list[str] = []
    prepared = Prepared(a_plan(image=IMAGE.in_plan), whose=Whose("user", own) if own else Whose())
    return Imaging(IMAGE, messages, said.append, interruption).after(prepared), messages.asked, said


def engines(**ids: str) -> dict[str, Any]:
    return {name: {**ENGINE, "id": found} for name, found in ids.items()}


def test_only_the_node_that_is_missing_the_image_pulls_it() -> None:
    pulled = {"node2": {"id": "a" * 64, "error": ""}}
    prepared, asked, said = prepare({"engine": engines(node1="a" * 64, node2=""), "pull": pulled})
    assert not prepared.refused
    assert [one for one in asked if one[1] == "pull"] == [("node2", "pull")]
    assert prepared.plan.image == {**IMAGE.in_plan, "id": "a" * 64}
    assert said == [f"image {IMAGE.source}: aaaaaaaaaaaa, Python 3.12.3, torch 2.13.0, same on all nodes"]


def test_different_image_with_the_same_name_is_reported() -> None:
    prepared, asked, _ = prepare({"engine": engines(node1="a" * 64, node2="b" * 64)})
    assert [(one.node, one.summary) for one in prepared.findings] == [
        ("node2", "the image is bbbbbbbbbbbb, but node1 has aaaaaaaaaaaa")
    ]
    assert {verb for _, verb in asked} == {"engine"}


def test_failed_pull_is_reported_for_its_node() -> None:
    failed = {"node1": {"id": "", "error": "podman pull ended with code 125"}}
    prepared, _, _ = prepare({"engine": engines(node1="", node2=""), "pull": failed})
    assert [(one.node, one.summary) for one in prepared.findings] == [
        ("node2", "the image is missing: no response within 1860 s"),
        ("node1", "the image is missing: podman pull ended with code 125"),
    ]


def test_user_launch_with_an_image_is_rejected_before_nodes_are_contacted() -> None:
    prepared, asked, _ = prepare({}, own="ada")
    assert prepared.refused
    assert asked == []
    assert "this is a user launch of ada: without root" in prepared.findings[0].summary
