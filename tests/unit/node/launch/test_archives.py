"""Image archives: image names are hidden from podman, and ambiguous archives are rejected."""

from __future__ import annotations

import io
import json
import tarfile
from typing import TYPE_CHECKING, Any

import pytest

from muster_node.launch import images
from muster_node.tools.files import UnsafePathError
from muster_node.tools.run import CommandResult

if TYPE_CHECKING:
    from pathlib import Path

DOCKER = [
    {"Config": "a.json", "RepoTags": ["ubuntu:24.04", "localhost/é:1"], "repotags": ["debian:12"], "Layers": ["b.tar"]}
]
NAMED = {"org.opencontainers.image.ref.name": "localhost/others:1"}
DESCRIPTOR = {"mediaType": "application/x", "digest": "sha256:aa", "size": 7}
OCI = {"schemaVersion": 2, "manifests": [{**DESCRIPTOR, "annotations": NAMED}], "annotations": NAMED}
Files = list[tuple[str, Any]]


def archive(path: Path, members: Files, **how: Any) -> str:
    """Write an archive. A string member is a link target, any other member is file content."""
    with tarfile.open(path, "w", **how) as tar:
        for name, content in members:
            member = tarfile.TarInfo(name)
            if isinstance(content, str):
                member.type, member.linkname = tarfile.SYMTYPE, content
                tar.addfile(member)
            else:
                data = content if isinstance(content, bytes) else json.dumps(content, ensure_ascii=False).encode()
                member.size = len(data)
                tar.addfile(member, io.BytesIO(data))
    return str(path)


def content(path: str, name: str) -> Any:
    with tarfile.open(path) as tar:
        member = tar.extractfile(name)
        assert member
        return json.loads(member.read())


def test_image_names_are_removed_and_restored(tmp_path: Path) -> None:
    files: Files = [
        ("b.tar", bytes(2000)),
        ("manifest.json", DOCKER),
        ("index.json", OCI),
        ("repositories", {"ubuntu": {}}),
    ]
    path = archive(tmp_path / "x.tar", files)
    before = (tmp_path / "x.tar").read_bytes()
    done = images.edits(path)
    images.write(path, done)
    assert content(path, "manifest.json") == [{"Config": "a.json", "Layers": ["b.tar"]}]
    assert content(path, "index.json") == {"schemaVersion": 2, "manifests": [DESCRIPTOR]}
    assert len((tmp_path / "x.tar").read_bytes()) == len(before)
    images.undo(path, done)
    assert (tmp_path / "x.tar").read_bytes() == before


@pytest.mark.parametrize(
    "members",
    [
        [("manifest.json", DOCKER), ("./manifest.json", DOCKER)],
        [("manifest.json", DOCKER), ("a/../manifest.json", DOCKER)],
        [("/manifest.json", DOCKER), ("manifest.json", DOCKER)],
        [("manifest.json", "other.json"), ("other.json", DOCKER)],
        [("index.json", OCI), ("here", "."), ("here/index.json", OCI)],
        [("manifest.json", b"no JSON")],
        [("manifest.json", {"Config": "a.json"})],
        [("manifest.json", b"[" * 100_000)],
        [("index.json", {"schemaVersion": 2, "manifests": [{"digest": "sha256:aa"}]})],
        [("manifest.json", b'[{"Config":1e9,"Layers":1e9}]')],
        [("b.tar", b"x")],
        [],
    ],
)
def test_ambiguous_archive_is_rejected(members: Files, tmp_path: Path) -> None:
    with pytest.raises(UnsafePathError):
        images.edits(archive(tmp_path / "x.tar", members))


def test_global_header_is_rejected(tmp_path: Path) -> None:
    path = archive(tmp_path / "x.tar", [("manifest.json", DOCKER)], pax_headers={"path": "elsewhere"})
    with pytest.raises(UnsafePathError, match="global header"):
        images.edits(path)


@pytest.mark.parametrize("code", [0, 1])
def test_podman_sees_no_image_names_and_the_archive_is_restored(
    code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = archive(tmp_path / "x.tar", [("manifest.json", DOCKER)])
    before = (tmp_path / "x.tar").read_bytes()

    def run(*argv: str, **_how: Any) -> CommandResult:
        assert argv == ("podman", "load", "--quiet", f"--input={path}")
        assert "RepoTags" not in content(path, "manifest.json")[0]
        return CommandResult("", code=code)

    monkeypatch.setattr(images, "run", run)
    assert bool(images.load_nameless(path, 1.0)) == bool(code)
    assert (tmp_path / "x.tar").read_bytes() == before
