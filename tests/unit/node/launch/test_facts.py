"""Facts needed to start a launch, read from this machine."""

from __future__ import annotations

import os
import pwd
import socket
from pathlib import Path

import pytest

from muster_node.launch import facts
from muster_node.tools.disk import disk_facts
from muster_node.tools.run import CommandResult

LAUNCH_ID = "20260101-120000-abcd"


def test_interface_of_an_address_is_found() -> None:
    assert facts.interface_of("127.0.0.1") == "lo"
    assert facts.interface_of("192.0.2.77") is None
    assert facts.interface_of("2001:db8::77") is None


def test_interface_of_the_own_address_is_found() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        try:
            sock.connect(("192.0.2.1", 9))  # sends nothing, only queries the routing table
        except OSError:
            pytest.skip("this machine has no route")
        address = sock.getsockname()[0]
    assert facts.interface_of(address) in [name for _, name in socket.if_nameindex()]


def test_interface_of_an_ipv6_address_is_found() -> None:
    loopback = [line for line in Path("/proc/net/if_inet6").read_text().splitlines() if line.endswith(" lo")]
    assert facts.interface_of("::1") == ("lo" if loopback else None)


def test_disk_of_the_nearest_existing_folder_is_reported(tmp_path: Path) -> None:
    disk = disk_facts(str(tmp_path / "not" / "yet"))
    assert disk["path"] == str(tmp_path)
    assert 0 < disk["free"] <= disk["total"]
    assert disk["read_only"] is False


def test_existing_and_missing_files_are_reported(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("")
    (tmp_path / "train.py").chmod(0o600)
    me, path = pwd.getpwuid(os.getuid()).pw_name, str(tmp_path / "train.py")
    assert facts.file_facts(path, me, os.R_OK) == {"path": path, "exists": True, "usable": True}
    assert facts.file_facts(f"{path}x", me, os.R_OK) == {"path": f"{path}x", "exists": False, "usable": False}


@pytest.mark.skipif(os.getuid() != 0, reason="only root can check as another user")
def test_files_are_checked_as_the_training_user(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text("")
    path.chmod(0o600)
    assert facts.file_facts(str(path), "nobody", os.R_OK)["usable"] is False
    assert facts.file_facts("/bin/sh", "nobody", os.X_OK)["usable"] is True
    assert facts.file_facts("/bin/sh", "no-such-user", os.X_OK)["exists"] is True


def test_user_facts_are_reported() -> None:
    assert facts.user_facts("root") == {"uid": 0, "gid": 0, "home": "/root"}
    assert facts.user_facts("no-such-user") is None


def test_program_is_the_first_executable_in_the_path(tmp_path: Path) -> None:
    me = pwd.getpwuid(os.getuid()).pw_name
    first, second, folder = tmp_path / "first", tmp_path / "second", tmp_path / "folder"
    for each in (first, second, folder / "tool"):
        each.mkdir(parents=True)
    for place in (first, second):
        (place / "tool").write_text("#!/bin/sh\n")
    (second / "tool").chmod(0o755)
    path = f"relative:{folder}:{first}:{second}"
    assert facts.program_facts("tool", me, path) == {"path": str(second / "tool"), "exists": True, "usable": True}
    found = facts.program_facts("tool", me, str(first))
    assert found == {"path": str(first / "tool"), "exists": True, "usable": False}
    assert facts.program_facts("tool", me, str(folder)) == {"path": "tool", "exists": False, "usable": False}
    assert facts.program_facts("/bin/sh", me, "")["usable"] is True


@pytest.mark.parametrize(
    ("active", "jobs", "why", "count"),
    [
        ("active", "42|ada|gres:gpu:8", "", 1),
        ("activating", "42|ada|N/A", "", 1),
        ("inactive", "", None, 0),
        ("", "42|ada|N/A", "systemctl did not answer within 6 s", 1),
        ("active", "\n".join(f"{number}|mallory|N/A" for number in range(150)), "100 of 150 lines of squeue", 100),
        ("active", "42|ada|N/A\n$(id>o)|alice|gres:gpu:8", "1 of 2 lines of squeue", 1),
    ],
)
def test_jobs_of_slurm_are_read_completely_or_with_a_reason(
    active: str, jobs: str, why: str | None, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = "NodeName=n1 Gres=gpu:h100:8 GresUsed=gpu:h100:8(IDX:0-7) NodeAddr=n1 OS=Linux GresUsed=gpu:0"
    said = {
        "systemctl": CommandResult(active, why or "", code=0 if active == "active" else None),
        "squeue": CommandResult(jobs, code=0),
        "scontrol": CommandResult(shown, code=0),
    }
    monkeypatch.setattr(facts, "command", lambda *argv, **_: said[argv[0]])
    seen = facts.slurm_jobs()
    assert (seen is None) == (why is None)
    if seen:
        assert (len(seen["jobs"]), seen["used"]) == (count, "gpu:h100:8(IDX:0-7)")
        assert seen["why"].startswith(why or "") if why else seen["why"] == ""
