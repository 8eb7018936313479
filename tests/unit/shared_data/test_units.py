"""Names and contents of the systemd units for shared folders."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from muster.shared_data.request import Mount
from muster.shared_data.units import MARK, files_of, unit_name

NAMES = {
    "/data": "data.mount",
    "/srv/data sets/é": "srv-data\\x20sets-\\xc3\\xa9.mount",
    "/srv/my-set": "srv-my\\x2dset.mount",
    "/.hidden/a.b_c:d": "\\x2ehidden-a.b_c:d.mount",
}


@pytest.mark.parametrize("path", NAMES)
def test_unit_names_match_systemd(path: str) -> None:
    assert unit_name(path, "mount") == NAMES[path]
    if shutil.which("systemd-escape"):
        said = subprocess.run(
            ["systemd-escape", "--path", "--suffix=mount", path], check=True, capture_output=True, text=True
        )
        assert said.stdout.strip() == NAMES[path]


def test_mount_and_automount_units_are_rendered() -> None:
    mount = Mount("files:/export/100%", "/data", "nfs", "hard")
    found = files_of(mount)
    assert list(found) == ["/etc/systemd/system/data.mount", "/etc/systemd/system/data.automount"]
    first, second = found.values()
    assert first.startswith(MARK)
    assert second.startswith(MARK)
    assert "What=files:/export/100%%\nWhere=/data\nType=nfs\nOptions=hard\nTimeoutSec=30\n" in first
    assert "[Install]" not in first, "the folder is mounted when it is used, and by nothing else"
    assert "Where=/data\n" in second
    assert "WantedBy=remote-fs.target" in second


def test_unit_without_mount_options_has_no_options_line() -> None:
    assert "Options=" not in files_of(Mount("fs", "/data", "9p", ""))["/etc/systemd/system/data.mount"]
