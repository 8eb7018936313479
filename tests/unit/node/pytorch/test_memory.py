"""Output of an environment is cached while its files are unchanged."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest
from ansible.module_utils.muster_node.pytorch.memory import RememberingRoot
from ansible.module_utils.muster_node.pytorch.root import LookedAs, PytorchRoot

if TYPE_CHECKING:
    from pathlib import Path

SAID = {"packages": {"torch": "2.13.0"}, "faults": []}
FILE = "lib/torch/version.py"


class CountedEnvironment:
    """Environment with a few files and a stub of its Python. Queries are counted."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.env = folder / "envs/one"
        for name in (FILE, "bin/python", "lib/torch/__pycache__/version.pyc"):
            (self.env / name).parent.mkdir(parents=True, exist_ok=True)
            (self.env / name).write_text("x = 1\n")
        self.said: dict[str, Any] = SAID
        self.times = 0

    def look(self, _environment: object, _depth: str) -> dict[str, Any]:
        self.times += 1
        return self.said

    def ask(self, *, writes: bool = True, proves: bool = False) -> RememberingRoot:
        memory = str(self.folder / "memory")
        root = RememberingRoot(str(self.folder), LookedAs("me", None), writes=writes, proves=proves, folder=memory)
        assert root.look(self.env, "files") == self.said
        return root


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CountedEnvironment:
    one = CountedEnvironment(tmp_path)
    monkeypatch.setattr(PytorchRoot, "look", one.look)
    return one


def change_in_place(path: Path) -> None:
    """Change the content, but keep size and timestamps."""
    seen = path.stat()
    path.write_text("x = 2\n")
    os.utime(path, ns=(seen.st_atime_ns, seen.st_mtime_ns))


def recreate(path: Path) -> None:
    path.unlink()
    path.write_text("x = 1\n")


def test_unchanged_environment_is_queried_once(environment: CountedEnvironment) -> None:
    environment.ask()
    environment.ask()
    assert environment.times == 1


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(change_in_place, id="changed in place"),
        pytest.param(recreate, id="recreated"),
        pytest.param(lambda path: path.chmod(0o600), id="mode changed"),
        pytest.param(lambda path: path.unlink(), id="removed"),
        pytest.param(lambda path: path.with_name("more.py").touch(), id="file added"),
        pytest.param(lambda path: path.parents[2].joinpath("bin/python").write_text(""), id="interpreter changed"),
        pytest.param(lambda path: path.parent.chmod(0o700), id="folder mode changed"),
    ],
)
def test_changed_environment_is_queried_again(environment: CountedEnvironment, change: Any) -> None:
    environment.ask()
    change(environment.env / FILE)
    environment.ask()
    assert environment.times == 2


def test_bytecode_files_do_not_count_as_a_change(environment: CountedEnvironment) -> None:
    environment.ask()
    (environment.env / "lib/torch/__pycache__/other.pyc").write_text("")
    environment.ask()
    assert environment.times == 1


def test_read_only_query_does_not_write_the_cache(environment: CountedEnvironment) -> None:
    environment.ask(writes=False)
    assert not (environment.folder / "memory").exists()


def test_full_run_detects_an_outdated_cache(environment: CountedEnvironment) -> None:
    assert environment.ask().wrong == ""
    assert environment.ask(proves=True).wrong == ""
    environment.said = {"packages": {}, "faults": ["torch is gone"]}
    assert "is wrong, although the files are unchanged" in environment.ask(proves=True).wrong
    assert environment.ask().wrong == ""
    assert environment.times == 3
