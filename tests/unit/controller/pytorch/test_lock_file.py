"""The lock on the controller: who may write it, and what a node may have in it."""

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


def test_what_the_inventory_asks_for_is_written_down(tmp_path: Path) -> None:
    lock = LockFile(str(tmp_path / "pytorch.lock.txt"))
    assert lock.take(section(), [ASK])["locked"] == ["Python 3.12, x86_64, cuda: 1 wheels"]
    assert lock.read() == (section(),)


def test_what_nobody_asked_for_is_not(tmp_path: Path) -> None:
    lock = LockFile(str(tmp_path / "pytorch.lock.txt"))
    other = Ask(torch_version="2.12.0", variant="auto", gpus=8, packages=("evil==1.0",))
    with pytest.raises(LockError, match="that the inventory does not request"):
        lock.take(section(other), [ASK])
    assert not lock.read()


@pytest.mark.parametrize("name", [".", "pytorch.lock.txt"])
def test_where_everybody_may_write_no_lock_is_read(tmp_path: Path, name: str) -> None:
    path = tmp_path / "pytorch.lock.txt"
    path.write_text("")
    (tmp_path / name).chmod(0o777)
    with pytest.raises(LockError, match="is writable by all users"):
        LockFile(str(path)).read()


def test_what_comes_with_muster_is_a_lock_for_every_python_and_machine() -> None:
    found = {(one.python, one.machine, one.variant) for one in reviewed()}
    pythons = ("3.10", "3.11", "3.12", "3.13", "3.14")
    assert found == {(python, machine, "cuda") for python in pythons for machine in ("x86_64", "aarch64")}
