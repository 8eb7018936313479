"""Files in folders that somebody else may write: nothing is read, written or given away that they chose."""

from __future__ import annotations

import errno
import os
import socket
import stat
from pathlib import Path

import pytest

from muster_node.tools import files

pytestmark = pytest.mark.usefixtures("nothing_waits")

SOMEBODY = os.getuid() + 1
HUGE = 1 << 40


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "secret"
    path.write_text("for root alone")
    path.chmod(0o600)
    return path


@pytest.fixture
def foreign(tmp_path: Path) -> Path:
    """A folder that somebody else may write as well."""
    path = tmp_path / "foreign"
    path.mkdir()
    return path


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


# ---------------------------------------------------------------- reading


def test_a_file_is_read_whole(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x" * (3 * files.CHUNK + 1))
    assert files.read(str(path)) == path.read_bytes()


def test_a_file_of_proc_is_read_although_it_has_no_size() -> None:
    assert files.read("/proc/self/stat").startswith(b"%d (" % os.getpid())
    assert files.part("/proc/self/stat", -4096, 4096).startswith(b"%d (" % os.getpid())


@pytest.mark.parametrize("target", ["secret", "nowhere", "link"])
def test_a_link_is_refused(secret: Path, tmp_path: Path, target: str) -> None:
    link = tmp_path / "link"
    link.symlink_to(target)
    with pytest.raises(files.UnsafePathError, match="is a link") as caught:
        files.read(str(link))
    assert caught.value.errno == errno.ELOOP
    assert caught.value.filename == str(link)
    assert files.text(str(link)) is None


def test_a_link_of_the_system_is_followed_where_that_is_said(secret: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(secret)
    assert files.text(str(link), links=True) == "for root alone"


def test_what_is_no_file_is_refused_and_nobody_waits(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "folder").mkdir()
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(tmp_path / "socket"))
        for path in ("/dev/zero", "/dev/null", *(str(tmp_path / name) for name in ("fifo", "folder", "socket"))):
            with pytest.raises(files.UnsafePathError, match="is not a regular file"):
                files.read(path)
            with pytest.raises(files.UnsafePathError, match="is not a regular file"):
                files.overwrite(path, b"text")
    (tmp_path / "link").symlink_to("/dev/zero")
    with pytest.raises(files.UnsafePathError, match="is not a regular file"):
        files.read(str(tmp_path / "link"), links=True)


def test_a_huge_file_is_refused_and_not_read(tmp_path: Path) -> None:
    path = tmp_path / "huge"
    path.touch()
    os.truncate(path, HUGE)
    with pytest.raises(files.UnsafePathError, match="has more than 1000 bytes") as caught:
        files.read(str(path), most=1000)
    assert caught.value.errno == errno.EFBIG
    assert files.part(str(path), 0, 1000) == bytes(1000)
    assert files.part(str(path), -1000, 1000) == bytes(1000)
    assert files.text(str(path), most=10) == "\0" * 10


def test_of_a_log_its_end_is_read(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("first\nsecond\nthird\n")
    assert files.part(str(path), -6, 100) == b"third\n"
    assert files.part(str(path), -1000, 1000) == b"first\nsecond\nthird\n"
    assert files.part(str(path), 6, 6) == b"second"
    assert files.part(str(path), 100, 6) == b""


def test_a_file_of_somebody_else_is_refused(secret: Path) -> None:
    assert files.read(str(secret), owner=os.getuid()) == b"for root alone"
    with pytest.raises(files.ForeignError, match=r"belongs to \w+") as caught:
        files.read(str(secret), owner=SOMEBODY)
    assert caught.value.errno == errno.EPERM
    with pytest.raises(files.ForeignError), files.folder(str(secret.parent), owner=SOMEBODY):
        pass


def test_a_hard_link_to_a_file_of_somebody_else_is_refused(secret: Path, foreign: Path) -> None:
    (foreign / "mine").hardlink_to(secret)
    with files.folder(str(foreign)) as within, pytest.raises(files.ForeignError):
        files.read("mine", within=within, owner=SOMEBODY)


def test_what_cannot_be_read_has_its_reason_and_its_path(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        files.read(str(tmp_path / "nowhere"))
    assert caught.value.filename == str(tmp_path / "nowhere")
    assert files.text(str(tmp_path / "nowhere")) is None


def test_a_folder_is_listed(foreign: Path) -> None:
    for name in ("b", "a", "c"):
        (foreign / name).touch()
    assert files.names(str(foreign)) == ["a", "b", "c"]
    with pytest.raises(files.UnsafePathError, match="contains more than 2 files"):
        files.names(str(foreign), most=2)
    (foreign / "link").symlink_to(foreign)
    with pytest.raises(files.UnsafePathError, match="link"):
        files.names(str(foreign / "link"))
    with pytest.raises(files.UnsafePathError, match="folder"):
        files.names(str(foreign / "a"))


# ---------------------------------------------------------------- within a folder


def test_within_a_folder_no_part_is_a_link(secret: Path, foreign: Path) -> None:
    (foreign / "sub").mkdir()
    (foreign / "sub" / "file").write_text("its own")
    (foreign / "out").symlink_to(secret.parent)
    with files.folder(str(foreign)) as within:
        assert files.read("sub/file", within=within) == b"its own"
        with pytest.raises(files.UnsafePathError, match="has a part that is a link"):
            files.read("out/secret", within=within)
        with pytest.raises(files.UnsafePathError, match="has a part that is a link"):
            files.replace("out/secret", b"other", within=within)
        with pytest.raises(files.UnsafePathError, match="has a part that is a link"):
            files.remove("out/secret", within=within)
    assert secret.read_text() == "for root alone"


@pytest.mark.parametrize("path", ["../secret", "sub/../../secret", "/etc/passwd", "", ".", "sub//file"])
def test_within_a_folder_nothing_leads_out(secret: Path, foreign: Path, path: str) -> None:
    (foreign / "sub").mkdir()
    with files.folder(str(foreign)) as within:
        for act in (files.read, files.remove, files.names):
            with pytest.raises(files.UnsafePathError, match="is not a path within a folder"):
                act(path, within=within)
        with pytest.raises(files.UnsafePathError, match="is not a path within a folder"):
            files.replace(path, b"", within=within)


def test_a_folder_that_is_swapped_meanwhile_is_still_the_one_that_was_opened(secret: Path, foreign: Path) -> None:
    (foreign / "secret").write_text("its own")
    away = foreign.with_name("away")
    with files.folder(str(foreign)) as within:
        foreign.rename(away)
        foreign.symlink_to(secret.parent)
        assert files.read("secret", within=within) == b"its own"
        files.replace("secret", b"other", within=within)
        files.make_folder("made", mode=0o755, within=within)
    assert (away / "secret").read_text() == "other"
    assert (away / "made").is_dir()
    assert secret.read_text() == "for root alone"


# ---------------------------------------------------------------- writing


def test_a_file_is_replaced_at_once_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")

    def interrupted() -> None:
        with files.replacing(str(path), mode=0o644) as stream:
            stream.write(b"half of it")
            stream.flush()
            assert path.read_text() == "old"
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert [each.name for each in tmp_path.iterdir()] == ["file"]
    assert path.read_text() == "old"
    files.replace(str(path), b"new", mode=0o644)
    assert [each.name for each in tmp_path.iterdir()] == ["file"]
    assert path.read_text() == "new"


@pytest.mark.parametrize("mode", [0o600, 0o644, 0o640, 0o1777, 0o4755])
def test_a_mode_holds_whatever_the_umask(tmp_path: Path, mode: int) -> None:
    before = os.umask(0o077)
    try:
        files.replace(str(tmp_path / "file"), b"", mode=mode, owner=(os.getuid(), os.getgid()))
        files.make_folder(str(tmp_path / "folder"), mode=mode)
    finally:
        os.umask(before)
    assert mode_of(tmp_path / "file") == mode
    assert mode_of(tmp_path / "folder") == mode


def test_without_a_mode_the_umask_decides(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        files.replace(str(tmp_path / "file"), b"")
    finally:
        os.umask(before)
    assert mode_of(tmp_path / "file") == 0o640


def test_until_it_is_whole_nobody_else_may_read_it(tmp_path: Path) -> None:
    with files.replacing(str(tmp_path / "file"), mode=0o644) as stream:
        assert stat.S_IMODE(os.fstat(stream.fileno()).st_mode) == 0o600
    assert mode_of(tmp_path / "file") == 0o644


def test_what_is_there_hands_its_mode_on(tmp_path: Path) -> None:
    path = tmp_path / "file"
    files.replace(str(path), b"first", mode=0o644, keep=True)
    assert mode_of(path) == 0o644
    path.chmod(0o640)
    files.replace(str(path), b"second", mode=0o644, keep=True)
    assert (path.read_text(), mode_of(path)) == ("second", 0o640)


@pytest.mark.skipif(os.getuid() != 0, reason="only root may give a file away")
def test_owners(tmp_path: Path) -> None:
    path = tmp_path / "file"
    files.replace(str(path), b"", mode=0o4750, owner=(1234, 2345))
    files.replace(str(path), b"more", mode=0o600, owner=(0, 0), keep=True)
    seen = path.stat()
    assert (seen.st_uid, seen.st_gid, stat.S_IMODE(seen.st_mode)) == (1234, 2345, 0o4750)


def test_a_link_in_the_place_is_replaced_and_what_it_leads_to_stays(secret: Path, foreign: Path) -> None:
    link = foreign / "file"
    link.symlink_to(secret)
    files.replace(str(link), b"new", mode=0o644, keep=True)
    assert not link.is_symlink()
    assert (link.read_text(), mode_of(link)) == ("new", 0o644)
    assert (secret.read_text(), mode_of(secret)) == ("for root alone", 0o600)


def test_the_file_behind_a_link_is_replaced_where_that_is_said(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real/file").write_text("old")
    (tmp_path / "link").symlink_to("real/file")
    files.replace(str(tmp_path / "link"), b"new", mode=0o644, links=True)
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real/file").read_text() == "new"


def test_who_swaps_the_new_file_for_a_link_is_given_nothing(secret: Path, foreign: Path) -> None:
    with files.replacing(str(foreign / "file"), mode=0o666, owner=(os.getuid(), os.getgid())) as stream:
        stream.write(b"a script")
        (fresh,) = foreign.iterdir()
        fresh.unlink()
        fresh.symlink_to(secret)
    assert (secret.read_text(), mode_of(secret)) == ("for root alone", 0o600)


def test_who_swaps_the_folder_meanwhile_gains_nothing(secret: Path, foreign: Path) -> None:
    with files.replacing(str(foreign / "secret"), mode=0o644) as stream:
        stream.write(b"a script")
        foreign.rename(foreign.with_name("away"))
        foreign.symlink_to(secret.parent)
    assert secret.read_text() == "for root alone"
    assert (foreign.with_name("away") / "secret").read_text() == "a script"


def test_missing_folders_are_made_where_that_is_said(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        files.replace(str(tmp_path / "a/b/file"), b"")
    files.replace(str(tmp_path / "a/b/file"), b"text", parents=True)
    assert (tmp_path / "a/b/file").read_text() == "text"


def test_a_name_as_long_as_names_may_be(tmp_path: Path) -> None:
    files.replace(str(tmp_path / ("n" * 255)), b"text")
    assert (tmp_path / ("n" * 255)).read_text() == "text"


def test_a_path_without_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    files.replace("file", b"text")
    assert files.read("file") == b"text"
    assert files.remove("file")


def test_an_existing_name_is_never_taken_for_a_new_folder(secret: Path, foreign: Path) -> None:
    (foreign / "link").symlink_to(secret.parent)
    for name in ("link", "."):
        with pytest.raises(FileExistsError):
            files.make_folder(str(foreign / name), mode=0o777)
    assert mode_of(foreign) != 0o777


def test_writing_over_what_is_there(secret: Path, foreign: Path) -> None:
    path = foreign / "lease"
    path.write_text("0001")
    number = path.stat().st_ino
    files.overwrite(str(path), b"0002")
    assert (path.read_text(), path.stat().st_ino) == ("0002", number)
    path.unlink()
    with pytest.raises(FileNotFoundError):
        files.overwrite(str(path), b"0003")
    path.symlink_to(secret)
    with pytest.raises(files.UnsafePathError, match="is a link"):
        files.overwrite(str(path), b"0003")
    assert secret.read_text() == "for root alone"


def test_removing(secret: Path, foreign: Path) -> None:
    link = foreign / "link"
    link.symlink_to(secret)
    assert files.remove(str(link))
    assert not files.remove(str(link))
    assert not files.remove(str(foreign / "nowhere/file"))
    assert secret.exists()


def test_no_descriptor_is_left_open(secret: Path, foreign: Path) -> None:
    (foreign / "out").symlink_to(secret.parent)
    before = len(files.names("/proc/self/fd"))
    with files.folder(str(foreign)) as within:
        for path in ("out/secret", "nowhere/file", "nowhere", "out"):
            for act in (files.read, files.names):
                with pytest.raises(OSError, match=r"link|file"):
                    act(path, within=within)
    with pytest.raises(files.ForeignError):
        files.read(str(secret), owner=SOMEBODY)
    assert len(files.names("/proc/self/fd")) == before


def test_it_is_the_same_code_for_nodes_and_for_the_controller() -> None:
    assert Path(files.__file__).parts[-4:] == ("module_utils", "muster_node", "tools", "files.py")
