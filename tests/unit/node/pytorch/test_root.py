"""Looks at an environment, in whose Python anybody's packages run; and at who uses one."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from ansible.module_utils.muster_node.pytorch import root as pytorch_root
from ansible.module_utils.muster_node.pytorch.root import LookedAs, PytorchRoot, ask_python
from ansible.module_utils.muster_node.tools.result import RefusedError

from waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

ENVIRONMENT = "2.13.0-cpu-py3.11-1f0c2a7b"


@pytest.fixture
def root(tmp_path: Path) -> PytorchRoot:
    (tmp_path / "envs" / ENVIRONMENT / "bin").mkdir(parents=True)
    return PytorchRoot(str(tmp_path), LookedAs("nobody", None))


def looked(root: PytorchRoot, script: str) -> Any:
    python = root.envs / ENVIRONMENT / "bin/python"
    python.write_text(f"#!/bin/sh\n{script}\n")
    python.chmod(0o755)
    return root.look(root.envs / ENVIRONMENT, "files")


def test_what_it_says(root: PytorchRoot) -> None:
    assert looked(root, """echo Welcome; echo '{"version": "2.13.0"}'""") == {"version": "2.13.0"}
    said = looked(root, "echo not today >&2; exit 3")
    assert said == {"error": "its Python returned no result (exit status 3: not today)", "trace": "not today\n"}


def test_a_python_that_is_not_there_or_not_for_everybody(root: PytorchRoot) -> None:
    said = root.look(root.envs / ENVIRONMENT, "files")
    assert said == {"error": "nobody cannot start its Python: No such file or directory", "fix": ""}
    (root.envs / ENVIRONMENT / "bin/python").mkdir()
    said = root.look(root.envs / ENVIRONMENT, "files")
    assert said["error"] == "nobody cannot start its Python: Permission denied"
    assert said["fix"].startswith("its Python and pytorch_root must be readable")


@pytest.mark.parametrize(
    "script",
    [
        pytest.param("sleep 30 & exit", id="somebody who goes on holds its output"),
        pytest.param("sleep 30", id="it hangs"),
    ],
)
def test_whatever_runs_in_it_a_look_ends(root: PytorchRoot, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(pytorch_root.LOOK_TIMEOUT, "files", 1)
    began = time.monotonic()
    assert looked(root, script) == {"error": "its Python did not respond within 1 s"}
    assert time.monotonic() - began < 10


def test_whatever_it_prints_little_of_it_is_kept(root: PytorchRoot) -> None:
    said = looked(root, "head -c 20000000 /dev/zero | tr '\\0' x >&2; exit 3")
    assert len(said["trace"]) <= pytorch_root.MOST_SAID
    assert len(said["error"]) < 300


@pytest.fixture
def user(root: PytorchRoot) -> Iterator[subprocess.Popen[bytes]]:
    """A process that works in the environment."""
    child = subprocess.Popen(["sleep", "600"], cwd=root.envs / ENVIRONMENT)
    yield child
    child.kill()
    child.wait()


def test_who_uses_one(root: PytorchRoot, user: subprocess.Popen[bytes]) -> None:
    until(lambda: root.in_use() == {ENVIRONMENT})
    user.kill()
    until(lambda: not root.in_use())


def test_where_that_cannot_be_seen_each_counts_as_used(root: PytorchRoot, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever reads the command line of a process may wait for ever, if that process likes."""
    monkeypatch.setattr(pytorch_root, "USERS_SECONDS", 1.0)
    monkeypatch.setattr(Path, "read_text", lambda *_given, **_how: time.sleep(15))
    began = time.monotonic()
    assert root.in_use() == {ENVIRONMENT}
    assert time.monotonic() - began < 10


def test_a_python_that_others_may_change_is_not_run_by_root(tmp_path: Path) -> None:
    """Wherever the links lead: one in the home of somebody who trains is theirs to swap."""
    home, ran = tmp_path / "home", tmp_path / "ran"
    home.mkdir()
    python = home / "python3"
    python.write_text(f"#!/bin/sh\ntouch {ran}\n")
    python.chmod(0o755)
    link = tmp_path / "python3"
    link.symlink_to(python)
    home.chmod(0o777)
    for path in (python, link):
        with pytest.raises(RefusedError) as refused:
            ask_python(str(path))
        sentence, _, fix = str(refused.value).partition(". ")
        assert sentence == f"{path} is not safe to run as root: {home} is writable by all users"
        assert fix.startswith("Set pytorch_python to one that only root can change")
    assert not ran.exists()
    assert ask_python("python3").version.startswith("3.")
