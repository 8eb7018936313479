"""Listing of a data folder, and cached digests of its files."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from muster_node.shared_data import copying, listing
from muster_node.shared_data.remembered import Remembered
from muster_node.tools import files

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.mark.parametrize(
    ("path", "target", "stays"),
    [
        ("link", "file", True),
        ("a/link", "../file", True),
        ("a/b/link", "../../c", True),
        ("a/link", "..", True),
        ("link", "..", False),
        ("a/link", "../..", False),
        ("link", "/etc/passwd", False),
        ("link", "", False),
        ("link", ".", False),
        # Another link in the path could lead anywhere.
        ("link", "a/../file", False),
        ("link", "a//b", False),
        ("link", "a\nb", False),
    ],
)
def test_links_inside_the_folder_are_accepted(path: str, target: str, stays: bool) -> None:
    assert listing.stays_inside(path, target) is stays


def wait_for_new_timestamp(path: Path) -> None:
    """Wait until the kernel can distinguish this change from the next one."""
    while time.time() < path.stat().st_ctime + 2.1:
        time.sleep(0.1)


def test_digest_is_cached_until_the_file_changes(tmp_path: Path) -> None:
    folder, kept = tmp_path / "set", str(tmp_path / "kept")
    folder.mkdir()
    (folder / "new").write_bytes(b"1")
    (folder / "old").write_bytes(b"1")
    wait_for_new_timestamp(folder / "old")
    (folder / "new").write_bytes(b"2")
    with files.folder(str(folder)) as there:
        memory = Remembered(kept, str(folder))
        before = listing.read(there, listing.walk(there), memory)
        memory.save()
        memory = Remembered(kept, str(folder))
        assert [*memory.known] == ["old"], "another change of a just changed file may keep its timestamp"
        assert listing.read(there, listing.walk(there), memory) == before

        size, times = (folder / "old").stat().st_size, (folder / "old").stat()
        (folder / "old").write_bytes(b"9")
        os.utime(folder / "old", ns=(times.st_atime_ns, times.st_mtime_ns))
        after = {file.path: file for file in listing.read(there, listing.walk(there), Remembered(kept, str(folder)))}
        assert after["old"].size == size
        assert after["old"].sha256 != before[1].sha256
        assert memory.file.stat().st_mode & 0o777 == 0o600

    memory.file.write_bytes(memory.file.read_bytes().replace(b'"boot": "', b'"boot": "0'))
    assert Remembered(kept, str(folder)).known == {}, "entries from before a reboot are ignored"


def test_walk_of_a_hostile_folder_is_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also pipes and folders count, and entries are read one by one."""
    monkeypatch.setattr(listing, "MOST_ENTRIES", 40)
    read: list[str] = []
    entries = listing.Walk._entries

    def counted(self: listing.Walk, above: str) -> Iterator[tuple[str, os.stat_result]]:
        for path, seen in entries(self, above):
            read.append(path)
            yield path, seen

    monkeypatch.setattr(listing.Walk, "_entries", counted)
    (tmp_path / "pipes").mkdir()
    for number in range(60):
        os.mkfifo(tmp_path / f"pipes/{number}")
        (tmp_path / f"folders/{number}").mkdir(parents=True)
    for name, problems, more in (("pipes", 21, 21), ("folders", 1, 0)):
        with files.folder(str(tmp_path / name)) as there:
            found = listing.walk(there)
        assert (len(found.problems), found.more) == (problems, more)
        assert found.problems[0] == "more than 150000 files; combine them into archives"
    assert len(read) == 82
    monkeypatch.setattr(listing, "SECONDS", -1.0)
    with files.folder(str(tmp_path)) as there:
        assert listing.walk(there).problems == ["too many files to list within -1 s"]


def test_root_reads_only_files_of_the_folders_owner(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can change owners")
    folder = Path("/run/muster-test-set")
    folder.mkdir()
    try:
        (folder / "theirs").write_bytes(b"1")
        (folder / "roots").write_bytes(b"1")
        os.chown(folder / "theirs", 65534, 65534)
        os.chown(folder, 65534, 65534)
        with copying.opened(str(folder)) as (there, owner):
            found = listing.walk(there, owner)
        assert [path for path, *_ in found.files] == ["theirs"]
        assert found.problems == ["'roots': owner is root, but the folder's owner is nobody"]
        (folder / "below").mkdir()
        with pytest.raises(OSError, match="is in a folder of nobody"), copying.opened(str(folder / "below")):
            pass
        (tmp_path / "link").symlink_to(folder)
        with pytest.raises(OSError, match="is a link"), copying.opened(str(tmp_path / "link")):
            pass
    finally:
        for each in ("theirs", "roots"):
            (folder / each).unlink()
        (folder / "below").rmdir()
        folder.rmdir()
