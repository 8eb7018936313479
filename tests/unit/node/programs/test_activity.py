"""Observation of files in progress and of an installation with apt, in a format recorded on Debian 12."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from muster_node.programs import activity
from muster_node.tools import process

if TYPE_CHECKING:
    from pathlib import Path

WHEEL = "torch-2.9.1+cu128-cp312-cp312-linux_x86_64.whl"
LOG = f"""\
2026-11-28T12:00:00,100 Collecting torch==2.9.1+cu128
2026-11-28T12:00:00,200   Downloading https://download.pytorch.org/whl/cu128/{WHEEL.replace("+", "%2B")} (2900.5 MB)
2026-11-28T12:00:00,300   Downloading numpy-2.3.5-cp312-cp312-manylinux_2_28_x86_64.whl.metadata (62 kB)
2026-11-28T12:00:00,400   Downloading tiny-1.0-py3-none-any.whl (812 bytes)
"""
HISTORY = """\
Start-Date: 2026-11-28  11:00:00
Commandline: apt-get install old
Install: old:amd64 (1)
End-Date: 2026-11-28  11:00:09

Start-Date: 2026-11-28  12:00:00
Commandline: apt-get install nvidia-driver
Install: nvidia-dkms-580:amd64 (580.95.05-1, automatic), libnvidia-gl-580:amd64 (580.95.05-1), old:amd64 (1:2+b1)
Upgrade: login:amd64 (1:4.13, 1:4.14)
Remove: nvidia-dkms-570:amd64 (570.1)
"""
DPKG = """\
2026-11-28 11:00:01 status installed old:amd64 1
2026-11-28 12:00:01 startup archives unpack
2026-11-28 12:00:01 install nvidia-dkms-580:amd64 <none> 580.95.05-1
2026-11-28 12:00:01 status half-installed nvidia-dkms-580:amd64 580.95.05-1
2026-11-28 12:00:02 status unpacked nvidia-dkms-580:amd64 580.95.05-1
2026-11-28 12:00:02 status unpacked nvidia-dkms-580:amd64 580.95.05-1
2026-11-28 12:00:03 status unpacked login:amd64 1:4.14
"""
CONFIGURES = """\
2026-11-28 12:00:04 status unpacked libnvidia-gl-580:amd64 580.95.05-1
2026-11-28 12:00:04 status unpacked old:amd64 1:2+b1
2026-11-28 12:00:05 startup packages configure
2026-11-28 12:00:05 status installed login:amd64 1:4.14
2026-11-28 12:00:05 status installed man-db:amd64 2.11.2-2
2026-11-28 12:00:06 status half-configured nvidia-dkms-580:amd64 580.95.05-1
"""


def test_installation_with_apt_is_counted() -> None:
    unpacks, configures = activity.apt(HISTORY, DPKG), activity.apt(HISTORY, DPKG + CONFIGURES)
    assert unpacks == [activity.work("unpack", "", 2, 4), activity.work("configure", "", 0, 4)]
    assert configures == [activity.work("unpack", "", 4, 4), activity.work("configure", "nvidia-dkms-580", 1, 4)]


@pytest.mark.parametrize("history", ["", f"{HISTORY}End-Date: 2026-11-28  12:00:09\n", "Install: cut:amd64 (1)\n"])
def test_finished_installation_is_not_reported(history: str) -> None:
    assert activity.apt(history, DPKG) == []


def test_only_written_files_are_downloads_and_sizes_come_from_pips_log(tmp_path: Path) -> None:
    log, wheel, read = tmp_path / "pip.log", tmp_path / WHEEL, tmp_path / "read-1.0-py3-none-any.whl"
    log.write_text(LOG)
    read.write_bytes(b"123")
    with log.open("a"), read.open("rb"), wheel.open("wb") as file:
        file.write(b"x" * 100_000)
        file.flush()
        assert activity.downloads(os.getpid()) == [activity.work("download", WHEEL, 100_000, 2_900_500_000)]


def test_sizes_in_pips_log() -> None:
    wheels = {name: (number, unit) for name, number, unit in activity.ANNOUNCED.findall(LOG)}
    assert wheels == {
        WHEEL.replace("+", "%2B"): ("2900.5", "MB"),
        "numpy-2.3.5-cp312-cp312-manylinux_2_28_x86_64.whl": ("62", "kB"),
        "tiny-1.0-py3-none-any.whl": ("812", "bytes"),
    }
    assert activity.ANNOUNCED.findall("Downloading x.whl (1.2.3 MB)\nDownloading (9 kB)\n") == []


@pytest.fixture
def pip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the id of a process with the command line of `pip install`, the only one that is inspected."""
    (tmp_path / "bin").mkdir()
    for name in ("torch-2.9.1.dist-info", "numpy-2.3.5.dist-info", "pip-24.0.dist-info", "torch"):
        (tmp_path / "lib/python3.12/site-packages" / name).mkdir(parents=True)
    python = str(tmp_path / "bin/python")
    argv = [python, "-m", "pip", "install"]
    code = "import sys; print(flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as running:
        assert running.stdout
        running.stdout.readline()
        monkeypatch.setattr(process, "ids", lambda: [2**22 + 1, running.pid])
        monkeypatch.setattr(process, "words", lambda _: argv)
        yield running.pid
        assert running.stdin
        running.stdin.close()


def test_installed_packages_are_counted(pip: int) -> None:
    expected = [activity.work("install", "", 2, 0)] if os.geteuid() == 0 else []
    assert activity.look({}) == {"work": expected}


def test_processes_of_other_users_are_not_inspected(pip: int, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.stat
    monkeypatch.setattr(
        os, "stat", lambda path: real(path) if path != f"/proc/{pip}" else os.stat_result([0, 0, 0, 0, 1000, *[0] * 5])
    )
    monkeypatch.setattr(activity, "downloads", lambda _: pytest.fail("a process of another user"))
    assert activity.look({}) == {"work": []}
