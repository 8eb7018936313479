"""Work done with another user's ids, including users who try to block it."""

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
root_only = pytest.mark.skipif(not ROOT, reason="only root can switch to another user")


def identity() -> Any:
    return [os.getresuid(), os.getresgid(), os.getgroups()]


@root_only
def test_work_runs_with_the_ids_of_the_user() -> None:
    uid, gid = NOBODY.pw_uid, NOBODY.pw_gid
    assert as_user(NOBODY, identity) == [[uid] * 3, [gid] * 3, os.getgrouplist("nobody", gid)]
    assert os.getuid() == 0


@root_only
def test_files_of_other_users_are_not_readable(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("for root alone")
    secret.chmod(0o600)
    with pytest.raises(SilentError):
        as_user(NOBODY, secret.read_text)


@root_only
def test_user_cannot_inspect_the_process() -> None:
    ours = os.getpid()
    assert as_user(NOBODY, lambda: [os.access(f"/proc/{pid}/environ", os.R_OK) for pid in (ours, os.getpid())]) == [
        False,
        False,
    ]


def test_work_runs_as_the_current_user_if_no_user_is_given() -> None:
    assert as_user(None, os.getuid) == os.getuid()


def wait() -> None:
    time.sleep(60)


def stop() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def read_endless_file() -> str:
    return Path("/dev/zero").read_text()


def return_deeply_nested() -> Any:
    nested: list[Any] = []
    for _ in range(100_000):
        nested = [nested]
    return nested


def write() -> None:
    with tempfile.TemporaryFile(buffering=0) as stream:
        stream.write(b"x")


def exit_without_result() -> None:
    os._exit(0)


@pytest.mark.parametrize("work", [wait, stop, read_endless_file, return_deeply_nested, write, exit_without_result])
def test_blocking_or_failing_work_is_ended(work: Callable[[], Any]) -> None:
    began = time.monotonic()
    with pytest.raises(SilentError):
        as_user(None, work, seconds=0.2 if work in {wait, stop} else 30)
    assert time.monotonic() - began < 30


def test_result_size_is_limited() -> None:
    assert as_user(None, lambda: "x" * 100_000) == "x" * 100_000
    with pytest.raises(SilentError, match="larger than 1000 bytes"):
        as_user(None, lambda: "x" * 100_000, most=1000)


def test_no_child_process_is_left_behind() -> None:
    before = process.children(os.getpid())
    as_user(None, os.getpid)
    assert process.children(os.getpid()) == before
