"""Archives of container images, as podman and docker write them: which image is in one."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from typing import TYPE_CHECKING, Any

import pytest

from muster.launch.plan import PlanError
from muster_controller.image import read_archive, read_image

if TYPE_CHECKING:
    from pathlib import Path

CONFIG = json.dumps({"architecture": "amd64", "rootfs": {"type": "layers", "diff_ids": []}}).encode()
ID = hashlib.sha256(CONFIG).hexdigest()
OPTIONS: dict[str, Any] = {
    **dict.fromkeys(("image", "environment", "script_src", "project", "script", "chdir"), ""),
    "image_folders": [],
    "data": [],
}


def archive(path: Path, files: dict[str, Any]) -> str:
    with tarfile.open(path, "w") as tar:
        for name, content in files.items():
            data = content if isinstance(content, bytes) else json.dumps(content).encode()
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return str(path)


def test_one_that_podman_and_docker_write(tmp_path: Path) -> None:
    named = {f"{ID}.json": CONFIG, "manifest.json": [{"Config": f"{ID}.json", "Layers": []}]}
    found = read_archive(archive(tmp_path / "docker.tar", named))
    assert found.id == ID
    (file,) = found.files
    assert file.size == (tmp_path / "docker.tar").stat().st_size
    assert file.sha256 == hashlib.sha256((tmp_path / "docker.tar").read_bytes()).hexdigest()
    assert found.read(file, 3, 40) == (tmp_path / "docker.tar").read_bytes()[3:43]


def test_one_of_the_oci(tmp_path: Path) -> None:
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
def test_what_is_none_is_refused(files: dict[str, Any], tmp_path: Path) -> None:
    path = archive(tmp_path / "x.tar", files)
    with pytest.raises(PlanError, match=rf"launch_image {path} is no archive of one image"):
        read_archive(path)


def test_what_is_no_archive_at_all_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.tar").write_bytes(b"\x1f\x8b" + bytes(1000))
    with pytest.raises(PlanError, match="is no archive that podman save writes"):
        read_archive(str(tmp_path / "x.tar"))
    with pytest.raises(PlanError, match=r"gone\.tar: No such file or directory\."):
        read_archive(str(tmp_path / "gone.tar"))


def test_what_the_options_say(tmp_path: Path) -> None:
    assert read_image(OPTIONS) is None
    name = f"registry.lab/train@sha256:{'1' * 64}"
    found = read_image({**OPTIONS, "image": name, "image_folders": ["/data"], "chdir": "/data/run", "data": ["/sets"]})
    assert found is not None
    assert found.wanted == name
    assert found.in_plan == {"source": name, "id": "", "folders": ["/data", "/sets"]}
    with pytest.raises(PlanError, match="has no digest"):
        read_image({**OPTIONS, "image": "train:1"})
    with pytest.raises(PlanError, match="cannot show /a,b: it is no absolute path"):
        read_image({**OPTIONS, "image": name, "chdir": "/a,b"})
