"""The training user's own ssh files are the user's to spoil: nobody waits for one, and none is read without end."""

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
        pytest.param(os.mkfifo, "is not a regular file", id="a pipe"),
        pytest.param(os.mkdir, "is not a regular file", id="a folder"),
        pytest.param(lambda path: path.symlink_to("/dev/zero"), "is not a regular file", id="a device without end"),
        pytest.param(huge, "more than", id="a huge file"),
    ],
)
def test_what_is_no_file_of_ssh_is_refused(home: SshFolder, put: Any, why: str) -> None:
    put(home.path / "config")
    with pytest.raises(OSError, match=why):
        home.read("config")
