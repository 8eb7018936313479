"""Files received from a peer whose login shell is controlled by another user."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from ansible.module_utils.muster.packages.peer_files import BEGIN, FetchAttempt, PeerFilesError, WantedFile
from ansible.module_utils.muster_node.packages import peer_files

if TYPE_CHECKING:
    from pathlib import Path

NAME, CONTENT = "tiny.whl", b"content"
FILE = WantedFile(NAME, hashlib.sha256(CONTENT).hexdigest())
HEAD = f"""
import io, os, sys, tarfile
out, aside = sys.stdout.buffer, sys.stderr.buffer
def header(size, kind=tarfile.REGTYPE):
    member = tarfile.TarInfo({NAME!r})
    member.size, member.type = size, kind
    return member.tobuf(tarfile.GNU_FORMAT)
def sparse(size):
    member = bytearray(header(0, tarfile.GNUTYPE_SPARSE))
    member[386:482], member[482], member[483:495] = bytes(96), 0, b"%011o" % size + bytes(1)
    member[148:156] = b" " * 8
    member[148:156] = b"%06o" % sum(member) + bytes(1) + b" "
    return bytes(member)
def send(content):
    out.write({BEGIN!r} + header(len(content)) + content.ljust(512, b"\\0") + bytes(1024))
    out.flush()
def endless(stream, size=1 << 16):
    while True:
        stream.write(bytes(size))
"""
GOOD = f"send({CONTENT!r})"


def fetch_from(folder: Path, program: str) -> FetchAttempt:
    def ssh(peer: str, command: str) -> Any:
        assert (peer, NAME in command) == ("node2", True)
        argv = [sys.executable, "-c", HEAD + program]
        return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    who: Any = SimpleNamespace(ssh=ssh)
    attempt: FetchAttempt = peer_files._once(who, "node2", "/srv/wheels", folder, [FILE])
    return attempt


@pytest.mark.parametrize("before", ["", "out.write(b'Welcome!\\n' * 1000)", "aside.write(bytes(10_000_000))"])
def test_login_banner_is_skipped(tmp_path: Path, before: str) -> None:
    tried = fetch_from(tmp_path, f"{before}\n{GOOD}")
    assert (tried.fetched, tried.why) == ((NAME,), "")
    assert (tmp_path / NAME).read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("program", "why"),
    [
        pytest.param("endless(out)", "the peer sent more", id="endless login output"),
        pytest.param(f"out.write({BEGIN!r} + header(1 << 40)); endless(out)", "the peer sent more", id="endless file"),
        pytest.param(
            f"out.write({BEGIN!r} + header(1 << 32, tarfile.XHDTYPE)); endless(out)",
            "the peer sent more",
            id="endless header",
        ),
        pytest.param("send(b'other')", "sha256", id="wrong content"),
        pytest.param(
            f"out.write({BEGIN!r} + sparse(1 << 27) + bytes(1024))",
            "not found on the peer: tiny.whl",
            id="sparse file without data",
        ),
        pytest.param(
            f"out.write({BEGIN!r})\nwhile True: out.write(header(512) + bytes(512))",
            "the peer sent more",
            id="endless copies of a file",
        ),
        pytest.param(
            f"out.write({BEGIN!r})\nwhile True: out.write(sparse(1 << 23))",
            "the peer sent more",
            id="endless sparse files",
        ),
    ],
)
def test_unrequested_data_is_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, why: str) -> None:
    monkeypatch.setattr(peer_files, "MOST_BETWEEN", 1 << 23)
    monkeypatch.setattr(peer_files, "MOST_FILE", 1 << 23)
    tried = fetch_from(tmp_path, program)
    assert tried.fetched == ()
    assert why in tried.why
    assert tried.bytes < 1 << 25
    assert not list(tmp_path.iterdir()), "received data remains on the disk"


def test_endless_stderr_without_data_times_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer_files, "STALLED", 1)
    assert fetch_from(tmp_path, "endless(aside)").why.startswith("no data for 1 s")


def test_folder_that_other_users_can_replace_is_rejected(tmp_path: Path) -> None:
    """A user who can write to its parent could redirect root's reads and writes."""
    tmp_path.chmod(0o777)
    (tmp_path / "wheels").mkdir(mode=0o755)
    (tmp_path / "wheels" / NAME).write_bytes(CONTENT)
    with pytest.raises(PeerFilesError, match=f"{tmp_path} is writable by all users"):
        peer_files.fetch("nobody", [], "/srv/wheels", str(tmp_path / "wheels"), [FILE])


def test_files_are_rejected_on_an_almost_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer_files, "LEFT_FREE", 1 << 62)
    assert fetch_from(tmp_path, GOOD).why == "the disk is almost full"
    assert not list(tmp_path.iterdir())
