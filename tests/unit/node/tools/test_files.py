"""File access in folders writable by other users, who cannot redirect reads, writes or ownership changes."""

from __future__ import annotations

import errno
import os
import socket
import stat
from pathlib import Path

import pytest

from muster_node.tools import files

pytestmark = pytest.mark.usefixtures("nothing_waits")

OTHER_UID = os.getuid() + 1
HUGE = 1 << 40


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "secret"
    path.write_text("for root alone")
    path.chmod(0o600)
    return path


@pytest.fixture
def foreign(tmp_path: Path) -> Path:
    """Return a folder that another user can write to."""
    path = tmp_path / "foreign"
    path.mkdir()
    return path


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


# ---------------------------------------------------------------- reading


def test_whole_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x" * (3 * files.CHUNK + 1))
    assert files.read(str(path)) == path.read_bytes()


def test_proc_file_without_size_is_read() -> None:
    assert files.read("/proc/self/stat").startswith(b"%d (" % os.getpid())
    assert files.part("/proc/self/stat", -4096, 4096).startswith(b"%d (" % os.getpid())


@pytest.mark.parametrize("target", ["secret", "nowhere", "link"])
def test_link_is_rejected(secret: Path, tmp_path: Path, target: str) -> None:
    link = tmp_path / "link"
    link.symlink_to(target)
    with pytest.raises(files.UnsafePathError, match="is a link") as caught:
        files.read(str(link))
    assert caught.value.errno == errno.ELOOP
    assert caught.value.filename == str(link)
    assert files.text(str(link)) is None


def test_link_is_followed_on_request(secret: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(secret)
    assert files.text(str(link), links=True) == "for root alone"


def test_special_file_is_rejected_without_blocking(tmp_path: Path) -> None:
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


def test_file_above_the_size_limit_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "huge"
    path.touch()
    os.truncate(path, HUGE)
    with pytest.raises(files.UnsafePathError, match="has more than 1000 bytes") as caught:
        files.read(str(path), most=1000)
    assert caught.value.errno == errno.EFBIG
    assert files.part(str(path), 0, 1000) == bytes(1000)
    assert files.part(str(path), -1000, 1000) == bytes(1000)
    assert files.text(str(path), most=10) == "\0" * 10


def test_part_of_a_log_is_read(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("first\nsecond\nthird\n")
    assert files.part(str(path), -6, 100) == b"third\n"
    assert files.part(str(path), -1000, 1000) == b"first\nsecond\nthird\n"
    assert files.part(str(path), 6, 6) == b"second"
    assert files.part(str(path), 100, 6) == b""


def test_file_of_another_user_is_rejected(secret: Path) -> None:
    assert files.read(str(secret), owner=os.getuid()) == b"for root alone"
    with pytest.raises(files.ForeignError, match=r"belongs to \w+") as caught:
        files.read(str(secret), owner=OTHER_UID)
    assert caught.value.errno == errno.EPERM
    with pytest.raises(files.ForeignError), files.folder(str(secret.parent), owner=OTHER_UID):
        pass


def test_hard_link_to_another_users_file_is_rejected(secret: Path, foreign: Path) -> None:
    (foreign / "mine").hardlink_to(secret)
    with files.folder(str(foreign)) as within, pytest.raises(files.ForeignError):
        files.read("mine", within=within, owner=OTHER_UID)


def test_read_error_states_reason_and_path(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        files.read(str(tmp_path / "nowhere"))
    assert caught.value.filename == str(tmp_path / "nowhere")
    assert files.text(str(tmp_path / "nowhere")) is None


def test_folder_is_listed(foreign: Path) -> None:
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


def test_path_with_a_linked_folder_is_rejected(secret: Path, foreign: Path) -> None:
    (foreign / "sub").mkdir()
    (foreign / "sub" / "file").write_text("its own")
    (foreign / "out").symlink_to(secret.parent)
    with files.folder(str(foreign)) as within:
        assert files.read("sub/file", within=within) == b"its own"
        with pytest.raises(files.UnsafePathError, match="contains a part that is a link"):
            files.read("out/secret", within=within)
        with pytest.raises(files.UnsafePathError, match="contains a part that is a link"):
            files.replace("out/secret", b"other", within=within)
        with pytest.raises(files.UnsafePathError, match="contains a part that is a link"):
            files.remove("out/secret", within=within)
    assert secret.read_text() == "for root alone"


@pytest.mark.parametrize("path", ["../secret", "sub/../../secret", "/etc/passwd", "", ".", "sub//file"])
def test_path_out_of_the_folder_is_rejected(secret: Path, foreign: Path, path: str) -> None:
    (foreign / "sub").mkdir()
    with files.folder(str(foreign)) as within:
        for act in (files.read, files.remove, files.names):
            with pytest.raises(files.UnsafePathError, match="is not a path within a folder"):
                act(path, within=within)
        with pytest.raises(files.UnsafePathError, match="is not a path within a folder"):
            files.replace(path, b"", within=within)


def test_opened_folder_is_still_used_after_its_path_was_replaced(secret: Path, foreign: Path) -> None:
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


def test_file_is_replaced_atomically(tmp_path: Path) -> None:
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
def test_mode_is_independent_of_the_umask(tmp_path: Path, mode: int) -> None:
    before = os.umask(0o077)
    try:
        files.replace(str(tmp_path / "file"), b"", mode=mode, owner=(os.getuid(), os.getgid()))
        files.make_folder(str(tmp_path / "folder"), mode=mode)
    finally:
        os.umask(before)
    assert mode_of(tmp_path / "file") == mode
    assert mode_of(tmp_path / "folder") == mode


def test_default_mode_follows_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        files.replace(str(tmp_path / "file"), b"")
    finally:
        os.umask(before)
    assert mode_of(tmp_path / "file") == 0o640


def test_file_is_private_while_it_is_written(tmp_path: Path) -> None:
    with files.replacing(str(tmp_path / "file"), mode=0o644) as stream:
        assert stat.S_IMODE(os.fstat(stream.fileno()).st_mode) == 0o600
    assert mode_of(tmp_path / "file") == 0o644


def test_mode_of_the_existing_file_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "file"
    files.replace(str(path), b"first", mode=0o644, keep=True)
    assert mode_of(path) == 0o644
    path.chmod(0o640)
    files.replace(str(path), b"second", mode=0o644, keep=True)
    assert (path.read_text(), mode_of(path)) == ("second", 0o640)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can change owners")
def test_owner_of_the_existing_file_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "file"
    files.replace(str(path), b"", mode=0o4750, owner=(1234, 2345))
    files.replace(str(path), b"more", mode=0o600, owner=(0, 0), keep=True)
    seen = path.stat()
    assert (seen.st_uid, seen.st_gid, stat.S_IMODE(seen.st_mode)) == (1234, 2345, 0o4750)


def test_link_is_replaced_and_its_target_is_unchanged(secret: Path, foreign: Path) -> None:
    link = foreign / "file"
    link.symlink_to(secret)
    files.replace(str(link), b"new", mode=0o644, keep=True)
    assert not link.is_symlink()
    assert (link.read_text(), mode_of(link)) == ("new", 0o644)
    assert (secret.read_text(), mode_of(secret)) == ("for root alone", 0o600)


def test_link_target_is_replaced_on_request(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real/file").write_text("old")
    (tmp_path / "link").symlink_to("real/file")
    files.replace(str(tmp_path / "link"), b"new", mode=0o644, links=True)
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real/file").read_text() == "new"


def test_permissions_are_not_set_on_a_link_that_replaced_the_new_file(secret: Path, foreign: Path) -> None:
    with files.replacing(str(foreign / "file"), mode=0o666, owner=(os.getuid(), os.getgid())) as stream:
        stream.write(b"a script")
        (fresh,) = foreign.iterdir()
        fresh.unlink()
        fresh.symlink_to(secret)
    assert (secret.read_text(), mode_of(secret)) == ("for root alone", 0o600)


def test_replaced_folder_does_not_redirect_the_write(secret: Path, foreign: Path) -> None:
    with files.replacing(str(foreign / "secret"), mode=0o644) as stream:
        stream.write(b"a script")
        foreign.rename(foreign.with_name("away"))
        foreign.symlink_to(secret.parent)
    assert secret.read_text() == "for root alone"
    assert (foreign.with_name("away") / "secret").read_text() == "a script"


def test_missing_folders_are_created_on_request(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        files.replace(str(tmp_path / "a/b/file"), b"")
    files.replace(str(tmp_path / "a/b/file"), b"text", parents=True)
    assert (tmp_path / "a/b/file").read_text() == "text"


def test_longest_file_name_is_supported(tmp_path: Path) -> None:
    files.replace(str(tmp_path / ("n" * 255)), b"text")
    assert (tmp_path / ("n" * 255)).read_text() == "text"


def test_path_without_a_folder_is_supported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    files.replace("file", b"text")
    assert files.read("file") == b"text"
    assert files.remove("file")


def test_folder_is_not_created_if_its_name_exists(secret: Path, foreign: Path) -> None:
    (foreign / "link").symlink_to(secret.parent)
    for name in ("link", "."):
        with pytest.raises(FileExistsError):
            files.make_folder(str(foreign / name), mode=0o777)
    assert mode_of(foreign) != 0o777


def test_overwriting_a_file_keeps_its_inode(secret: Path, foreign: Path) -> None:
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


def test_removal_does_not_follow_links(secret: Path, foreign: Path) -> None:
    link = foreign / "link"
    link.symlink_to(secret)
    assert files.remove(str(link))
    assert not files.remove(str(link))
    assert not files.remove(str(foreign / "nowhere/file"))
    assert secret.exists()


def test_no_file_descriptor_is_leaked(secret: Path, foreign: Path) -> None:
    (foreign / "out").symlink_to(secret.parent)
    before = len(files.names("/proc/self/fd"))
    with files.folder(str(foreign)) as within:
        for path in ("out/secret", "nowhere/file", "nowhere", "out"):
            for act in (files.read, files.names):
                with pytest.raises(OSError, match=r"link|file"):
                    act(path, within=within)
    with pytest.raises(files.ForeignError):
        files.read(str(secret), owner=OTHER_UID)
    assert len(files.names("/proc/self/fd")) == before


def test_nodes_and_controller_use_the_same_module() -> None:
    assert Path(files.__file__).parts[-4:] == ("module_utils", "muster_node", "tools", "files.py")
