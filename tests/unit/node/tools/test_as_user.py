"""Work that is done as another user, and that user's ways to hold it up."""

from __future__ import annotations

import os
import pwd
import signal
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from muster_node.tools import process
from muster_node.tools.as_user import SilentError, as_user

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = os.getuid() == 0
NOBODY = pwd.getpwnam("nobody")
root_only = pytest.mark.skipif(not ROOT, reason="only root can become somebody else")


def identity() -> Any:
    return [os.getresuid(), os.getresgid(), os.getgroups()]


@root_only
def test_it_is_that_user_and_nobody_else() -> None:
    uid, gid = NOBODY.pw_uid, NOBODY.pw_gid
    assert as_user(NOBODY, identity) == [[uid] * 3, [gid] * 3, os.getgrouplist("nobody", gid)]
    assert os.getuid() == 0


@root_only
def test_what_is_not_that_users_is_not_read(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("for root alone")
    secret.chmod(0o600)
    with pytest.raises(SilentError):
        as_user(NOBODY, secret.read_text)


@root_only
def test_that_user_may_not_look_into_it_though_it_is_theirs() -> None:
    ours = os.getpid()
    assert as_user(NOBODY, lambda: [os.access(f"/proc/{pid}/environ", os.R_OK) for pid in (ours, os.getpid())]) == [
        False,
        False,
    ]


def test_without_a_user_it_is_this_one() -> None:
    assert as_user(None, os.getuid) == os.getuid()


def wait() -> None:
    time.sleep(60)


def stop() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def read_without_end() -> str:
    return Path("/dev/zero").read_text()


def deep() -> Any:
    nested: list[Any] = []
    for _ in range(100_000):
        nested = [nested]
    return nested


def write() -> None:
    with tempfile.TemporaryFile(buffering=0) as stream:
        stream.write(b"x")


def leave() -> None:
    os._exit(0)


@pytest.mark.parametrize("work", [wait, stop, read_without_end, deep, write, leave])
def test_nothing_holds_it_up(work: Callable[[], Any]) -> None:
    began = time.monotonic()
    with pytest.raises(SilentError):
        as_user(None, work, seconds=0.2 if work in {wait, stop} else 30)
    assert time.monotonic() - began < 30


def test_an_answer_has_its_limit() -> None:
    assert as_user(None, lambda: "x" * 100_000) == "x" * 100_000
    with pytest.raises(SilentError, match="larger than 1000 bytes"):
        as_user(None, lambda: "x" * 100_000, most=1000)


def test_no_child_is_left() -> None:
    before = process.children(os.getpid())
    as_user(None, os.getpid)
    assert process.children(os.getpid()) == before
