"""A node's content store: integrity of content and validity of manifests."""

from __future__ import annotations

import hashlib
import os
import time
from pathlib import Path

import pytest

from muster_node.distribution import manifest, store
from muster_node.distribution.manifest import ManifestFile
from muster_node.tools import files


def file_of(content: bytes, path: str = "a") -> ManifestFile:
    return ManifestFile(path, executable=False, size=len(content), sha256=hashlib.sha256(content).hexdigest())


@pytest.fixture
def place(tmp_path: Path) -> str:
    return str(tmp_path / "store")


def put(there: store.Shelf, content: bytes) -> ManifestFile:
    file = file_of(content)
    assert store.add_part(there, "0" * 64, file, 0, content) == ""
    return file


def test_stored_content_is_private(place: str) -> None:
    with store.opened(place) as there:
        file = put(there, b"content")
        assert store.missing(there, [file, file_of(b"other")]) == [file_of(b"other")]
        got: list[bytes] = []
        store.copy(there, file, got.append)
    assert b"".join(got) == b"content"
    assert Path(place).stat().st_mode & 0o777 == 0o700
    assert [path.stat().st_mode & 0o777 for path in Path(place, "objects").iterdir()] == [0o600]
    assert list(Path(place, "parts").iterdir()) == []


@pytest.mark.parametrize("changed", [b"Content", b"conten", b"contentx", b""])
def test_modified_content_is_not_used(place: str, changed: bytes) -> None:
    with store.opened(place) as there:
        file = put(there, b"content")
        Path(place, "objects", file.sha256).write_bytes(changed)
        assert store.missing(there, [file]) == [file]
        with pytest.raises(files.UnsafePathError, match="was changed on this node"):
            store.copy(there, file, lambda _chunk: None)
        assert put(there, b"content") == file  # copied again
        assert store.missing(there, [file]) == []


def test_link_in_place_of_content_is_not_followed(place: str, tmp_path: Path) -> None:
    with store.opened(place) as there:
        file = put(there, b"content")
        there_path = Path(place, "objects", file.sha256)
        there_path.unlink()
        (tmp_path / "elsewhere").write_bytes(b"content")
        there_path.symlink_to(tmp_path / "elsewhere")
        assert store.missing(there, [file]) == [file]


def test_file_can_be_stored_in_parts(place: str) -> None:
    content = os.urandom(1000)
    file = file_of(content)
    with store.opened(place) as there:
        assert store.add_part(there, "1" * 64, file, 0, content[:600]) == ""
        assert store.missing(there, [file]) == [file]
        assert "the received parts of a are inconsistent" in store.add_part(there, "1" * 64, file, 500, content[500:])
        assert store.add_part(there, "1" * 64, file, 600, content[600:]) == ""
        assert store.missing(there, [file]) == []
        assert "changed while it was read" in store.add_part(there, "2" * 64, file, 0, bytes(1000))


@pytest.mark.skipif(os.getuid() != 0, reason="only root can change owners")
def test_store_that_other_users_can_write_to_is_rejected(place: str, tmp_path: Path) -> None:
    with store.opened(place):
        pass
    os.chown(place, 65534, 65534)
    with pytest.raises(files.ForeignError), store.opened(place):
        pass
    tmp_path.chmod(0o777)
    with pytest.raises(files.ForeignError), store.opened(place):
        pass


def test_manifest_is_stored_by_digest(place: str) -> None:
    listed = [file_of(b"1", "a/b"), file_of(b"2", "z")]
    text = manifest.render(listed)
    with store.opened(place) as there:
        assert store.keep_manifest(there, text) == listed
        assert store.read_manifest(there, manifest.digest_of(text)) == listed
        Path(place, "manifests", manifest.digest_of(text)).write_bytes(text + b" ")
        with pytest.raises(files.UnsafePathError, match="does not match its digest"):
            store.read_manifest(there, manifest.digest_of(text))
        with pytest.raises(files.UnsafePathError, match="is not a sha256"):
            store.read_manifest(there, "../../etc/passwd")


def test_old_content_of_old_manifests_is_removed(place: str) -> None:
    old = time.time() - 2 * store.UNUSED
    with store.opened(place) as there:
        contents = [b"%d" % number for number in range(store.KEPT + 2)]
        for number, content in enumerate(contents):
            file = put(there, content)
            text = manifest.render([file])
            store.keep_manifest(there, text)
            for path in (Path(place, "manifests", manifest.digest_of(text)), Path(place, "objects", file.sha256)):
                os.utime(path, (old + number, old + number))
        fresh = put(there, b"on its way")
        store.tidy(there)
        assert len(files.names("manifests", within=there.folder)) == store.KEPT
        kept = {file_of(content).sha256 for content in contents[2:]} | {fresh.sha256}
        assert set(files.names("objects", within=there.folder)) == kept


@pytest.mark.parametrize(
    "path",
    ["../x", "/etc/passwd", "a//b", "a/./b", "", "a\n", "a/..", "x" * 256, "/".join(["ab"] * 400), "a\x7f", "\udcff"],
)
def test_unsafe_or_unprintable_path_is_rejected(path: str) -> None:
    assert manifest.unusable(path)
    if "\udcff" not in path:
        with pytest.raises(ValueError, match="invalid manifest entry"):
            manifest.parse(manifest.render([file_of(b"x", path)]))


def test_only_canonical_manifests_are_accepted() -> None:
    one, two = file_of(b"1", "a"), file_of(b"2", "a/b")
    assert manifest.parse(manifest.render([one])) == [one]
    for text in (
        b"{}",
        b"[[1]]",
        b"[" * 100_000,
        manifest.render([one]).replace(b"false", b"0"),
        manifest.render([one, one]),
        manifest.render([one, two]),  # a path is both file and folder
        manifest.render([one]) + b"\n",
        manifest.render([one]).replace(one.sha256.encode(), b"../x"),
    ):
        with pytest.raises(ValueError, match=r"manifest|Expecting"):
            manifest.parse(text)
