"""SSH files of the training user: special and huge files are rejected without blocking."""

from __future__ import annotations

import os
import pwd
from typing import TYPE_CHECKING, Any

import pytest
from ansible.module_utils.muster_node.network.mesh_files import SshFolder

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("nothing_waits")


@pytest.fixture
def home(tmp_path: Path) -> SshFolder:
    me = list(pwd.getpwuid(os.getuid()))
    me[5] = str(tmp_path)
    (tmp_path / ".ssh").mkdir()
    return SshFolder(pwd.struct_passwd(me))


def huge(path: Path) -> None:
    path.touch()
    os.truncate(path, 1 << 32)


@pytest.mark.parametrize(
    ("put", "why"),
    [
        pytest.param(os.mkfifo, "is not a regular file", id="pipe"),
        pytest.param(os.mkdir, "is not a regular file", id="folder"),
        pytest.param(lambda path: path.symlink_to("/dev/zero"), "is not a regular file", id="endless device"),
        pytest.param(huge, "more than", id="huge file"),
    ],
)
def test_special_and_huge_files_are_rejected(home: SshFolder, put: Any, why: str) -> None:
    put(home.path / "config")
    with pytest.raises(OSError, match=why):
        home.read("config")
