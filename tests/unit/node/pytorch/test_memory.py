"""What an environment said is remembered for as long as none of its files is another one."""

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


class Asked:
    """An environment with a few files, whose Python says what it is to say; times are counted."""

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
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Asked:
    one = Asked(tmp_path)
    monkeypatch.setattr(PytorchRoot, "look", one.look)
    return one


def in_place(path: Path) -> None:
    """As long as before, and with the times that it had."""
    seen = path.stat()
    path.write_text("x = 2\n")
    os.utime(path, ns=(seen.st_atime_ns, seen.st_mtime_ns))


def anew(path: Path) -> None:
    path.unlink()
    path.write_text("x = 1\n")


def test_it_is_asked_once(asked: Asked) -> None:
    asked.ask()
    asked.ask()
    assert asked.times == 1


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(in_place, id="in place"),
        pytest.param(anew, id="anew"),
        pytest.param(lambda path: path.chmod(0o600), id="its mode"),
        pytest.param(lambda path: path.unlink(), id="gone"),
        pytest.param(lambda path: path.with_name("more.py").touch(), id="one more"),
        pytest.param(lambda path: path.parents[2].joinpath("bin/python").write_text(""), id="the interpreter"),
        pytest.param(lambda path: path.parent.chmod(0o700), id="a folder"),
    ],
)
def test_a_change_has_it_asked_again(asked: Asked, change: Any) -> None:
    asked.ask()
    change(asked.env / FILE)
    asked.ask()
    assert asked.times == 2


def test_byte_code_is_nothing_new(asked: Asked) -> None:
    asked.ask()
    (asked.env / "lib/torch/__pycache__/other.pyc").write_text("")
    asked.ask()
    assert asked.times == 1


def test_without_leave_nothing_is_written(asked: Asked) -> None:
    asked.ask(writes=False)
    assert not (asked.folder / "memory").exists()


def test_a_full_run_finds_that_the_memory_was_wrong(asked: Asked) -> None:
    assert asked.ask().wrong == ""
    assert asked.ask(proves=True).wrong == ""
    asked.said = {"packages": {}, "faults": ["torch is gone"]}
    assert "is wrong, although its files are unchanged" in asked.ask(proves=True).wrong
    assert asked.ask().wrong == ""
    assert asked.times == 3
