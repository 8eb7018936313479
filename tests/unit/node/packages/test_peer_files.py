"""What a peer sends, over whose login somebody else decides."""

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
def without_end(stream, size=1 << 16):
    while True:
        stream.write(bytes(size))
"""
GOOD = f"send({CONTENT!r})"


def answered(folder: Path, program: str) -> FetchAttempt:
    def ssh(peer: str, command: str) -> Any:
        assert (peer, NAME in command) == ("node2", True)
        argv = [sys.executable, "-c", HEAD + program]
        return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    who: Any = SimpleNamespace(ssh=ssh)
    attempt: FetchAttempt = peer_files._once(who, "node2", "/srv/wheels", folder, [FILE])
    return attempt


@pytest.mark.parametrize("before", ["", "out.write(b'Welcome!\\n' * 1000)", "aside.write(bytes(10_000_000))"])
def test_what_a_login_prints_is_passed_over(tmp_path: Path, before: str) -> None:
    tried = answered(tmp_path, f"{before}\n{GOOD}")
    assert (tried.fetched, tried.why) == ((NAME,), "")
    assert (tmp_path / NAME).read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("program", "why"),
    [
        pytest.param("without_end(out)", "the peer sends more", id="a login that prints without end"),
        pytest.param(
            f"out.write({BEGIN!r} + header(1 << 40)); without_end(out)", "the peer sends more", id="a file without end"
        ),
        pytest.param(
            f"out.write({BEGIN!r} + header(1 << 32, tarfile.XHDTYPE)); without_end(out)",
            "the peer sends more",
            id="a header without end",
        ),
        pytest.param("send(b'other')", "sha256", id="another file"),
        pytest.param(
            f"out.write({BEGIN!r} + sparse(1 << 27) + bytes(1024))",
            "tiny.whl missing on the peer",
            id="a file of holes alone",
        ),
        pytest.param(
            f"out.write({BEGIN!r})\nwhile True: out.write(header(512) + bytes(512))",
            "the peer sends more",
            id="the same file without end",
        ),
        pytest.param(
            f"out.write({BEGIN!r})\nwhile True: out.write(sparse(1 << 23))",
            "the peer sends more",
            id="holes without end",
        ),
    ],
)
def test_what_nobody_asked_for_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, why: str) -> None:
    monkeypatch.setattr(peer_files, "MOST_BETWEEN", 1 << 23)
    monkeypatch.setattr(peer_files, "MOST_FILE", 1 << 23)
    tried = answered(tmp_path, program)
    assert tried.fetched == ()
    assert why in tried.why
    assert tried.bytes < 1 << 25
    assert not list(tmp_path.iterdir()), "something of it is left on the disk"


def test_who_only_complains_and_never_ends_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer_files, "STALLED", 1)
    assert answered(tmp_path, "without_end(aside)").why.startswith("no data for 1 s")


def test_a_folder_that_others_may_exchange_is_refused(tmp_path: Path) -> None:
    """Whoever may write above it would have root read, and write, where they choose."""
    tmp_path.chmod(0o777)
    (tmp_path / "wheels").mkdir(mode=0o755)
    (tmp_path / "wheels" / NAME).write_bytes(CONTENT)
    with pytest.raises(PeerFilesError, match=f"{tmp_path} is writable by all users"):
        peer_files.fetch("nobody", [], "/srv/wheels", str(tmp_path / "wheels"), [FILE])


def test_the_disk_is_never_filled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer_files, "LEFT_FREE", 1 << 62)
    assert answered(tmp_path, GOOD).why == "the disk is almost full"
    assert not list(tmp_path.iterdir())
