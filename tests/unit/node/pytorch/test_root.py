"""Probes of an environment that contains untrusted packages, and detection of processes that use it."""

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


def probe(root: PytorchRoot, script: str) -> Any:
    python = root.envs / ENVIRONMENT / "bin/python"
    python.write_text(f"#!/bin/sh\n{script}\n")
    python.chmod(0o755)
    return root.look(root.envs / ENVIRONMENT, "files")


def test_json_output_and_errors_of_an_environment_are_returned(root: PytorchRoot) -> None:
    assert probe(root, """echo Welcome; echo '{"version": "2.13.0"}'""") == {"version": "2.13.0"}
    said = probe(root, "echo not today >&2; exit 3")
    assert said == {"error": "its Python returned no result (exit status 3: not today)", "trace": "not today\n"}


def test_missing_or_inaccessible_python_is_reported(root: PytorchRoot) -> None:
    said = root.look(root.envs / ENVIRONMENT, "files")
    assert said == {"error": "nobody cannot start its Python: No such file or directory", "fix": ""}
    (root.envs / ENVIRONMENT / "bin/python").mkdir()
    said = root.look(root.envs / ENVIRONMENT, "files")
    assert said["error"] == "nobody cannot start its Python: Permission denied"
    assert said["fix"].startswith("Make its Python and pytorch_root readable")


@pytest.mark.parametrize(
    "script",
    [
        pytest.param("sleep 30 & exit", id="child process keeps stdout open"),
        pytest.param("sleep 30", id="hangs"),
    ],
)
def test_hanging_environment_times_out(root: PytorchRoot, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(pytorch_root.LOOK_TIMEOUT, "files", 1)
    began = time.monotonic()
    assert probe(root, script) == {"error": "its Python did not respond within 1 s"}
    assert time.monotonic() - began < 10


def test_long_output_is_truncated(root: PytorchRoot) -> None:
    said = probe(root, "head -c 20000000 /dev/zero | tr '\\0' x >&2; exit 3")
    assert len(said["trace"]) <= pytorch_root.MOST_SAID
    assert len(said["error"]) < 300


@pytest.fixture
def user(root: PytorchRoot) -> Iterator[subprocess.Popen[bytes]]:
    """Run a process in the environment."""
    child = subprocess.Popen(["sleep", "600"], cwd=root.envs / ENVIRONMENT)
    yield child
    child.kill()
    child.wait()


def test_environment_in_use_is_detected(root: PytorchRoot, user: subprocess.Popen[bytes]) -> None:
    until(lambda: root.in_use() == {ENVIRONMENT})
    user.kill()
    until(lambda: not root.in_use())


def test_environments_count_as_used_if_the_check_times_out(root: PytorchRoot, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process can block reads of its command line."""
    monkeypatch.setattr(pytorch_root, "USERS_SECONDS", 1.0)
    monkeypatch.setattr(Path, "read_text", lambda *_given, **_how: time.sleep(15))
    began = time.monotonic()
    assert root.in_use() == {ENVIRONMENT}
    assert time.monotonic() - began < 10


def test_python_writable_by_other_users_is_not_run_as_root(tmp_path: Path) -> None:
    """A training user can replace a Python in their own home, also behind a link."""
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
        assert fix.startswith("Set pytorch_python to a Python that only root can change")
    assert not ran.exists()
    assert ask_python("python3").version.startswith("3.")
