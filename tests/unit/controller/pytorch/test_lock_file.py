"""The lock file on the controller: who is allowed to write it, and which entries a node can add."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from muster.pytorch.choice import Ask
from muster.pytorch.lock import LockError, Wheel, WheelSection, make_section
from muster_controller.pytorch.lock_file import LockFile, reviewed

if TYPE_CHECKING:
    from pathlib import Path

ASK = Ask(torch_version="2.13.0", variant="auto", gpus=8, packages=("numpy==2.3.5",))


def section(ask: Ask = ASK) -> WheelSection:
    wheel = Wheel("torch", "2.13.0", 64 * "0", "torch-2.13.0-cp312-cp312-manylinux_2_28_x86_64.whl")
    return make_section(ask.request("3.12"), "x86_64", [wheel])


def test_requested_environment_is_added_to_the_lock(tmp_path: Path) -> None:
    lock = LockFile(str(tmp_path / "pytorch.lock.txt"))
    assert lock.take(section(), [ASK])["locked"] == ["Python 3.12, x86_64, cuda: 1 wheels"]
    assert lock.read() == (section(),)


def test_environment_that_was_not_requested_is_rejected(tmp_path: Path) -> None:
    lock = LockFile(str(tmp_path / "pytorch.lock.txt"))
    other = Ask(torch_version="2.12.0", variant="auto", gpus=8, packages=("evil==1.0",))
    with pytest.raises(LockError, match="that the inventory does not request"):
        lock.take(section(other), [ASK])
    assert not lock.read()


@pytest.mark.parametrize("name", [".", "pytorch.lock.txt"])
def test_world_writable_lock_is_rejected(tmp_path: Path, name: str) -> None:
    path = tmp_path / "pytorch.lock.txt"
    path.write_text("")
    (tmp_path / name).chmod(0o777)
    with pytest.raises(LockError, match="is writable by all users"):
        LockFile(str(path)).read()


def test_reviewed_locks_cover_all_python_versions_and_architectures() -> None:
    found = {(one.python, one.machine, one.variant) for one in reviewed()}
    pythons = ("3.10", "3.11", "3.12", "3.13", "3.14")
    assert found == {(python, machine, "cuda") for python in pythons for machine in ("x86_64", "aarch64")}
